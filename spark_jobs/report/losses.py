"""The sections about messages and about clients' outages (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import headline, words
from spark_jobs.report.elements import Block, Fold, Heading, Table, Text, timed, tone
from spark_jobs.report.evidence import Cell
from spark_jobs.report.markup import tag
from spark_jobs.report.units import clock, duration, number, plural
from spark_jobs.schema import EXPLAINED_BY

IDS_SHOWN: Final = 100

OUTAGES_SHOWN: Final = 20


def messages(found: Row | None, scope: str) -> list[Block]:
    """Counts, causes, and the first of those that are not ok."""
    if found is None:
        return [Text(f"Unknown: {headline.NO_CLIENTS}.")]
    parts: list[Block] = [Text(headline.messages(found["total"]))]
    if headline.is_empty(found["total"]):
        return parts
    parts.append(_verdicts(found, scope))
    if len(found["summary"]) > 1:
        heads = ("Queue", "Sent", "Confirmed", "Lost", "Unaccounted", "Duplicated", "Recovered")
        names = ("attempts", "confirmed", "lost", "unaccounted", "duplicated", "recovered")
        rows = [
            (row["queue"] or "(no name)", *(number(row.get(name) or 0) for name in names)) for row in found["summary"]
        ]
        shown = rows[:OUTAGES_SHOWN]
        note = f"{len(shown)} of {len(rows)} shown" if len(rows) > len(shown) else ""
        parts.append(Table("By queue", heads, shown, heads[1:], note, cut="Queue"))
    return [*parts, _ids(found)] if found.get("verdicts") else parts


def _verdicts(found: Row, scope: str) -> Table:
    total = found["total"]
    rows = []
    for name, meaning in words.VERDICTS.items():
        count = total.get(name) or 0
        if not count and name not in ("lost", "unaccounted", "duplicated"):
            continue
        named = [row for row in found["causes"] if row["verdict"] == name and row["cause"]]
        because = "; ".join(f"{number(row['messages'])} {cause(row['cause'])}" for row in named[:5])
        rows.append((tone(words.plain(name), _verdict_tone(name, count, total)), number(count), meaning, because))
    heads = ("Verdict", "Messages", "Meaning", "Causes")
    return Table(f"Messages {scope}", heads, rows, ("Messages",), page=("Meaning",), cut="Causes")


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


def _ids(found: Row) -> Fold:
    listed = found["verdicts"][:IDS_SHOWN]
    rows = [
        (
            Cell(named := f"{row['producer']}:{row['pub']}" if row["pub"] else row["producer"], tag("code", named)),
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
    made = Table(
        "Those that are not simply ok, the worst first",
        heads,
        rows,
        (),
        note,
        ("Queue", "Confirmed", "Delivered"),
        "Cause",
    )
    return Fold(f"Which ones ({number(len(rows))} of {number(of_all)})", made)


def stood_still(document: Row) -> list[Block]:
    union = document["outage_union"]
    if not document["outages"]:
        return []
    parts: list[Block] = [Heading("Clients that stood still")]
    if union:
        text = f"Any client: {duration(union['any_down'])}; all clients at once: {duration(union['all_down'])}; "
        parts.append(Text(f"{text}summed over clients: {duration(union['client_us'])}."))
    many = len(document["outages"]) + document["outages_more"]
    found = document["outages"][:OUTAGES_SHOWN]
    note = f"{len(found)} of {plural(many, 'outage')} shown, the longest first" if many > len(found) else ""
    return [*parts, outages("The longest first", found, note)]


def outages(caption: str, found: Iterable[Row], note: str = "") -> Table:
    rows = [
        (
            row["client_id"] or "(no name)",
            timed(clock(row["ts_begin"])),
            "never back" if row["censored"] else timed(clock(row["ts_end"])),
            headline.stood(row),
            words.why(row["why"]),
        )
        for row in found
    ]
    return Table(caption, ("Client", "From", "Until", "Stood", "Because"), rows, ("Stood",), note, cut="Because")
