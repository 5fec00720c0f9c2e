"""The sections about messages and about clients' outages (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import headline, words
from spark_jobs.report.elements import Cell, heading, table, tone
from spark_jobs.report.markup import Markup, joined, tag
from spark_jobs.report.units import clock, duration, number, plural
from spark_jobs.schema import EXPLAINED_BY

IDS_SHOWN: Final = 100

OUTAGES_SHOWN: Final = 20


def messages(found: Row | None, scope: str) -> Markup:
    """Counts, causes, and the first of those that are not ok."""
    if found is None:
        return tag("p", f"Unknown: {headline.NO_CLIENTS}.")
    parts = [tag("p", headline.messages(found["total"]))]
    if headline.is_empty(found["total"]):
        return joined(parts)
    parts.append(_verdicts(found, scope))
    if len(found["summary"]) > 1:
        heads = ("Queue", "Sent", "Confirmed", "Lost", "Unaccounted", "Duplicated", "Recovered")
        names = ("attempts", "confirmed", "lost", "unaccounted", "duplicated", "recovered")
        rows = [
            (row["queue"] or "(no name)", *(number(row.get(name) or 0) for name in names)) for row in found["summary"]
        ]
        shown = rows[:OUTAGES_SHOWN]
        note = f"{len(shown)} of {len(rows)} shown" if len(rows) > len(shown) else ""
        parts.append(table("By queue", heads, shown, heads[1:], note))
    if found.get("verdicts"):
        parts.append(_ids(found))
    return joined(parts)


def _verdicts(found: Row, scope: str) -> Markup:
    total = found["total"]
    rows = []
    for name, meaning in words.VERDICTS.items():
        count = total.get(name) or 0
        if not count and name not in ("lost", "unaccounted", "duplicated"):
            continue
        named = [row for row in found["causes"] if row["verdict"] == name and row["cause"]]
        because = "; ".join(f"{number(row['messages'])} {cause(row['cause'])}" for row in named[:5])
        rows.append((tone(words.plain(name), _verdict_tone(name, count, total)), number(count), meaning, because))
    return table(f"Messages {scope}", ("Verdict", "Messages", "Meaning", "Causes"), rows, ("Messages",))


def _verdict_tone(name: str, count: int, total: Row) -> str:
    if name in ("lost", "unaccounted", "unexpected", "duplicated") and not count:
        return "good"
    bad = name == "lost" or (name == "duplicated" and total.get("unmarked"))
    bad = bad or (name == "unexpected" and count > (total.get("unlogged") or 0))
    return "bad" if bad else "doubt" if name in ("unaccounted", "unexpected") else "neutral"


def cause(text: str) -> str:
    if text in EXPLAINED_BY:
        return f"by {words.plain(text)}"
    return words.CAUSES.get(text, text)


def _ids(found: Row) -> Markup:
    listed = found["verdicts"][:IDS_SHOWN]
    rows = [
        (
            tag("code", f"{row['producer']}:{row['pub']}" if row["pub"] else row["producer"]),
            words.plain(row["verdict"]),
            cause(row["cause"] or ""),
            row.get("queue") or "",
            *(
                clock(row[name]) if row.get(name) is not None else "never"
                for name in ("sent", "confirmed", "delivered")
            ),
        )
        for row in listed
    ]
    of_all = len(found["verdicts"]) + found["more"]
    note = f"{number(len(rows))} of {number(of_all)} shown; the JSON file has more" if of_all > len(rows) else ""
    heads = ("Message", "Verdict", "Cause", "Queue", "Sent", "Confirmed", "Delivered")
    fold = table("Those that are not simply ok, the worst first", heads, rows, (), note)
    return tag("details", tag("summary", f"Which ones ({number(len(rows))} of {number(of_all)})"), fold)


def stood_still(document: Row) -> Markup | None:
    union = document["outage_union"]
    if not document["outages"]:
        return None
    parts = [heading("Clients that stood still")]
    if union:
        text = f"Any client: {duration(union['any_down'])}; all clients at once: {duration(union['all_down'])}; "
        parts.append(tag("p", f"{text}summed over clients: {duration(union['client_us'])}."))
    many = len(document["outages"]) + document["outages_more"]
    rows = outages(document["outages"][:OUTAGES_SHOWN])
    note = f"{len(rows)} of {plural(many, 'outage')} shown, the longest first" if many > len(rows) else ""
    parts.append(table("The longest first", ("Client", "From", "Until", "Stood", "Because"), rows, ("Stood",), note))
    return joined(parts)


def outages(found: Iterable[Row]) -> list[Sequence[Cell]]:
    return [
        (
            row["client_id"] or "(no name)",
            tag("span", clock(row["ts_begin"]), class_="time"),
            "never back" if row["censored"] else tag("span", clock(row["ts_end"]), class_="time"),
            headline.stood(row),
            words.why(row["why"]),
        )
        for row in found
    ]
