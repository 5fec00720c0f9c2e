"""What an incident's sections say of primaries, resources, near misses and hints (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.data import Row
from spark_jobs.report import dual, headline, words
from spark_jobs.report.elements import Block, Heading, Table, time, tone
from spark_jobs.report.evidence import Cell, Lines
from spark_jobs.report.markup import Markup, joined, tag
from spark_jobs.report.units import clock


def primaries(document: Row, lines: Lines) -> list[Block]:
    spans = []
    for row in document["primary_spans"]:
        begin = time(row["from_est"], row["from_lo"] if row["from_lo"] is not None else row["from_est"], row["from_hi"])
        low = row["to_lo"] if row["to_lo"] is not None else row["to_est"]
        end = "no end is known" if row["to_est"] is None else time(row["to_est"], low, row["to_hi"])
        places = [f"{row[f'{side}_file']}:{row[f'{side}_line']}" for side in ("from", "to") if row[f"{side}_file"]]
        told = " / ".join(words.plain(row[name]) for name in ("from_kind", "to_kind") if row[name])
        term = "unknown" if row["term"] is None else str(row["term"])
        spans.append((row["node"], term, begin, end, lines.cell(told, places)))
    heads = ("Node", "Term", "Since", "Until", "Said by")
    parts: list[Block] = [Heading("Who was primary"), Table("Times on one axis, with their errors", heads, spans)]
    return [*parts, *_dual(document["dual"], lines)] if spans else []


def _dual(found: Iterable[Row], lines: Lines) -> list[Block]:
    rows = []
    for row in found:
        why = [row["why"], *(f"sign: {sign}" for sign in row["signs"])]
        if row["confirms_by_old"] or row["confirms_by_new"]:
            both = f"{row['confirms_by_old']} by {row['old_node']}, {row['confirms_by_new']} by {row['new_node']}"
            why.append(f"confirms seen while both held the role: {both}")
        said = [text for text in why if text]
        html = joined([tag("div", text) for text in said] + [lines.places(row["evidence"])])
        rows.append(
            (
                f"{_with_term(row, 'old')} → {_with_term(row, 'new')}",
                *(tone(row[name], dual.TONES[row[name]]) for name in ("verdict", "roles")),
                dual.signed_margin(row),
                Cell("; ".join(said), html, row["evidence"]),
            )
        )
    heads = ("Old → new", "Both could confirm", "Both held the role", "Margin", "Why")
    text = "Two primaries at once? Margin: from the end of the old one to the promotion of the new one"
    return [Table(text, heads, rows, ("Margin",))] if rows else []


def _with_term(row: Row, side: str) -> str:
    term = row[f"{side}_term"]
    return f"{row[f'{side}_node']} (term {term})" if term is not None else str(row[f"{side}_node"])


def resources(document: Row, lines: Lines) -> list[Block]:
    rows = [
        (
            row["resource"],
            row["what"],
            f"{row['old_node']} → {row['new_node'] or 'not seen again'}",
            headline.away(row),
            Cell("", lines.places(row["evidence"]) or Markup(""), row["evidence"]),
        )
        for row in document["resources"]
    ]
    text = "Ordinary resources of Pacemaker that were up and then were not"
    return _titled("Resources", Table(text, ("Resource", "What", "From → to", "Away for", "Lines"), rows))


def near_misses(document: Row, lines: Lines) -> list[Block]:
    rows = [
        (words.plain(row["kind"]), row["node"], clock(row["at"]), lines.cell(row["text"], row["evidence"]))
        for row in document["near_misses"]
    ]
    text = "What went well by luck: reported even if nothing was lost"
    return _titled("Near misses", Table(text, ("Kind", "Node", "Time", "What"), rows))


def hints(document: Row, lines: Lines) -> list[Block]:
    rows = [
        (lines.cell(row["text"], row["evidence"]), row["confidence"], words.plain(row["rule"]))
        for row in document["hints"]
    ]
    text = "What an expert would look at; certain: the lines say it, likely: they fit, possible: worth a look"
    return _titled("Hints", Table(text, ("Hint", "Confidence", "Rule"), rows))


def _titled(title: str, table: Table) -> list[Block]:
    return [Heading(title), table] if table.rows else []
