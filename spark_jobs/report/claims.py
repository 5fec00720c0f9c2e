"""The sections of an incident about who was primary, near misses and hints (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.data import Row
from spark_jobs.report import dual, headline, words
from spark_jobs.report.elements import heading, table, time, tone
from spark_jobs.report.evidence import Lines
from spark_jobs.report.markup import Markup, joined, tag
from spark_jobs.report.units import clock


def primaries(document: Row, lines: Lines) -> Markup | None:
    if not document["primary_spans"]:
        return None
    spans = []
    for row in document["primary_spans"]:
        begin = time(row["from_est"], row["from_lo"] if row["from_lo"] is not None else row["from_est"], row["from_hi"])
        low = row["to_lo"] if row["to_lo"] is not None else row["to_est"]
        end = "no end is known" if row["to_est"] is None else time(row["to_est"], low, row["to_hi"])
        places = [f"{row[f'{side}_file']}:{row[f'{side}_line']}" for side in ("from", "to") if row[f"{side}_file"]]
        told = " / ".join(words.plain(row[name]) for name in ("from_kind", "to_kind") if row[name])
        spans.append((row["node"], _maybe(row["term"]), begin, end, joined([told, lines.places(places)])))
    heads = ("Node", "Term", "Since", "Until", "Said by")
    parts = [heading("Who was primary"), table("Times on one axis, with their errors", heads, spans)]
    if document["dual"]:
        parts.append(_dual(document["dual"], lines))
    return joined(parts)


def _dual(found: Iterable[Row], lines: Lines) -> Markup:
    rows = []
    for row in found:
        why = [row["why"], *(f"sign: {sign}" for sign in row["signs"])]
        if row["confirms_by_old"] or row["confirms_by_new"]:
            both = f"{row['confirms_by_old']} by {row['old_node']}, {row['confirms_by_new']} by {row['new_node']}"
            why.append(f"confirms seen while both held the role: {both}")
        rows.append(
            (
                f"{_with_term(row, 'old')} → {_with_term(row, 'new')}",
                *(tone(row[name], dual.TONES[row[name]]) for name in ("verdict", "roles")),
                dual.signed_margin(row),
                joined([tag("div", text) for text in why if text] + [lines.places(row["evidence"])]),
            )
        )
    heads = ("Old → new", "Both could confirm", "Both held the role", "Margin", "Why")
    text = "Two primaries at once? Margin: from the end of the old one to the promotion of the new one"
    return table(text, heads, rows, ("Margin",))


def _with_term(row: Row, side: str) -> str:
    term = row[f"{side}_term"]
    return f"{row[f'{side}_node']} (term {term})" if term is not None else str(row[f"{side}_node"])


def _maybe(value: object) -> str:
    return "unknown" if value is None else str(value)


def resources(document: Row, lines: Lines) -> Markup | None:
    if not document["resources"]:
        return None
    rows = [
        (
            row["resource"],
            row["what"],
            f"{row['old_node']} → {row['new_node'] or 'not seen again'}",
            headline.away(row),
            lines.places(row["evidence"]),
        )
        for row in document["resources"]
    ]
    text = "Ordinary resources of Pacemaker that were up and then were not"
    return joined([heading("Resources"), table(text, ("Resource", "What", "From → to", "Away for", "Lines"), rows)])


def near_misses(document: Row, lines: Lines) -> Markup | None:
    if not document["near_misses"]:
        return None
    rows = [
        (words.plain(row["kind"]), row["node"], clock(row["at"]), joined([row["text"], lines.places(row["evidence"])]))
        for row in document["near_misses"]
    ]
    text = "What went well by luck: reported even if nothing was lost"
    return joined([heading("Near misses"), table(text, ("Kind", "Node", "Time", "What"), rows)])


def hints(document: Row, lines: Lines) -> Markup | None:
    if not document["hints"]:
        return None
    rows = [
        (joined([row["text"], lines.places(row["evidence"])]), row["confidence"], words.plain(row["rule"]))
        for row in document["hints"]
    ]
    text = "What an expert would look at; certain: the lines say it, likely: they fit, possible: worth a look"
    return joined([heading("Hints"), table(text, ("Hint", "Confidence", "Rule"), rows)])
