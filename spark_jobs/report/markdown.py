"""The report as Markdown, for a ticket: tables of at most 100 columns (pure)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import dual, headline, losses, scene, words
from spark_jobs.report.elements import elsewhere, gap, unknown
from spark_jobs.report.evidence import Lines, bounds
from spark_jobs.report.units import clock, date, duration, moment, number, offset, percent, plural, with_error

WIDTH: Final = 98
IDS_SHOWN: Final = 20
LINES_SHOWN: Final = 3
"""Evidence of one claim."""
GAPS_SHOWN: Final = 30
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|~#])")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def page(overview: Row, documents: Sequence[Row]) -> str:
    """The whole report."""
    names = ", ".join(name for name in overview["clusters"] if name) or "one cluster"
    parts = [f"# Failover report: {escaped(names)}", bullets(headline.summary(overview)), _index(overview)]
    parts += [incident(one) for one in documents]
    parts += [_all_messages(overview), _clocks(overview), _gaps(overview), _ingest(overview)]
    return "\n\n".join(part for part in parts if part) + "\n"


def incident(document: Row) -> str:
    parts = [
        f"## {document['number']}. {escaped(headline.named(document))}",
        bullets(document["words"]),
        _phases(document),
        _moments(document),
        _resources(document),
        _dual(document),
        _messages(document),
        _claims("Near misses", document, document["near_misses"]),
        _claims("Hints", document, document["hints"]),
        _outages(document),
        _unknown(document),
    ]
    return "\n\n".join(part for part in parts if part)


# ---- text -----------------------------------------------------------------------------------------------------------


def escaped(text: object) -> str:
    """Without meaning to Markdown, or to HTML in it; on one line."""
    return _SPECIAL.sub(r"\\\1", _CONTROL.sub(" ", str(text)))


def code(text: str) -> str:
    """As it is; fenced by more backticks than it has itself."""
    plain = _CONTROL.sub(" ", text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def bullets(texts: Iterable[str]) -> str:
    return "\n".join(_wrapped(escaped(text), "* ") for text in texts)


def _wrapped(text: str, head: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> str:
    """Aligned as text, too.  The widest column is cut if the table is too wide."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in ([*heads], *cells)) for index in range(len(heads))]
    while sum(widths) + 3 * len(widths) + 1 > WIDTH:
        widths[widths.index(max(widths))] -= 1
    right = [name in set(numbers) for name in heads]
    rule = [
        "-" * (width - 1) + ":" if is_number else "-" * width for width, is_number in zip(widths, right, strict=True)
    ]
    lines = [_line(heads, widths, right), _line(rule, widths, right), *(_line(row, widths, right) for row in cells)]
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cut = [cell if len(cell) <= width else _cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [
        cell.rjust(width) if is_number else cell.ljust(width)
        for cell, width, is_number in zip(cut, widths, right, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _cut(cell: str, width: int) -> str:
    """Not between a backslash and what it escapes."""
    head = cell[: width - 1]
    odd = (len(head) - len(head.rstrip("\\"))) % 2
    return (head[:-1] if odd else head) + "…"


# ---- overview -------------------------------------------------------------------------------------------------------


def _index(overview: Row) -> str:
    if len(overview["incidents"]) < 2:
        return ""
    rows = [
        (
            str(row["number"]),
            moment(row["begin"], 0)[5:].removesuffix(" UTC"),
            headline.title(row),
            duration(row["total_us"]) if row["total_us"] is not None else "-",
            "unknown" if row["any_down"] is None else duration(row["any_down"]),
            "unknown" if row["lost"] is None else number(row["lost"]),
            row["dual"] or "-",
        )
        for row in overview["incidents"]
    ]
    return table(("No", "Begin (UTC)", "What", "No service", "Clients", "Lost", "Dual"), rows, ("No",))


def _all_messages(overview: Row) -> str:
    found = overview["messages"]
    if found is None:
        return f"## All messages\n\nUnknown: {headline.NO_CLIENTS}."
    return f"## All messages\n\n{escaped(headline.messages(found['total']))}\n\n{_verdicts(found)}"


def _clocks(overview: Row) -> str:
    if not overview["clocks"]:
        return ""
    rows = []
    for row in overview["clocks"]:
        known = row["err_us"] is not None
        drift = f"{row['drift_ppm']:+.1f} ppm" if known and row["drift_ppm"] is not None else ""
        rows.append(
            (row["node"], moment(row["t0"], 0), offset(row["offset_us"], row["err_us"]), drift, row["notes"] or "")
        )
    return "## Clocks\n\n" + table(("Node", "From", "Ahead by", "Drift", "Notes"), rows, ("Ahead by", "Drift"))


def _gaps(overview: Row) -> str:
    found = elsewhere(overview["gaps"])
    if not found:
        return ""
    more = f"\n* ... and {len(found) - GAPS_SHOWN} more" if len(found) > GAPS_SHOWN else ""
    return f"## Gaps in the evidence\n\n{bullets(gap(row) for row in found[:GAPS_SHOWN])}{more}"


def _ingest(overview: Row) -> str:
    found = overview["ingest"]
    text = f"{plural(found['files'], 'file')}, {plural(found['lines'], 'line')}, {plural(found['events'], 'event')}; "
    text += f"{plural(found['unknown'], 'line')} that say nothing we know."
    others = len(found["others"])
    text += f" {plural(others, 'file is', 'files are')} no logs." if others else ""
    refused = [f"{row['state']}: {row['name']}: {row['why'] or ''}" for row in found["refused"]]
    faults = [
        f"{row['file']}:{row['line_no']}: found {row['value']!r}, expected {row['wanted']}"
        for row in found["faults"][:IDS_SHOWN]
    ]
    parts = ["## What was read", escaped(text), bullets([*refused, *faults])]
    return "\n\n".join(part for part in parts if part)


# ---- one incident ---------------------------------------------------------------------------------------------------


def _phases(document: Row) -> str:
    told, silent = headline.told(document)
    if not told:
        return ""
    shares = {row["phase"]: row for row in document["budget"]}
    rows = []
    for row in told:
        name = words.PHASES.get(row["phase"], (row["phase"], ""))[0]
        if not row["known"]:
            rows.append((name, "unknown", "", "", row["note"]))
            continue
        length = with_error(row["duration_us"], row["duration_lo_us"], row["duration_hi_us"])
        setting = shares.get(row["phase"])
        share = percent(setting["share"]) if setting else ""
        note = row["note"]
        if setting and setting["setting_us"] is not None:
            note = f"{setting['setting']}: {duration(setting['setting_us'])}"
        rows.append((name, length, clock(row["begin"]), share, note))
    advice = f"\n\n{escaped(headline.advice(document['budget']))}" if document["budget"] else ""
    made = table(("Phase", "Took", "From", "Share", "Note"), rows, ("Took", "Share"))
    return "\n\n".join(part for part in ("### Phases", made, escaped(silent)) if part) + advice


def _resources(document: Row) -> str:
    rows = [
        (row["resource"], row["what"], f"{row['old_node']} → {row['new_node'] or '-'}", headline.away(row))
        for row in document["resources"]
    ]
    return "### Resources\n\n" + table(("Resource", "What", "From → to", "Away for"), rows) if rows else ""


def _moments(document: Row) -> str:
    lines = []
    found = scene.moments(document)
    for item in found:
        unsure = bounds(item.at.at, item.at.low, item.at.high)
        head = f"{item.number}. "
        text = f"{clock(item.at.at)} {unsure} **{escaped(item.text)}** ({', '.join(item.phases)})"
        lines.append(_wrapped(text, head))
        if item.event is not None:
            lines.append(" " * len(head) + code(item.at.place))
    if not lines:
        return ""
    return f"### In this order ({date(found[0].at.at)}, UTC)\n\n" + "\n".join(lines)


def _dual(document: Row) -> str:
    if not document["dual"]:
        return ""
    rows = [
        (f"{row['old_node']} → {row['new_node']}", row["verdict"], row["roles"], dual.signed_margin(row))
        for row in document["dual"]
    ]
    whys = [", ".join((f"{row['new_node']}: {row['why']}", *row["signs"])) for row in document["dual"]]
    heads = ("Old → new", "Both could confirm", "Both held the role", "Margin")
    return f"### Two primaries at once?\n\n{table(heads, rows)}\n\n{bullets(whys)}"


def _messages(document: Row) -> str:
    found = document["messages"]
    if found is None:
        return f"### Messages\n\nUnknown: {headline.NO_CLIENTS}."
    parts = ["### Messages", escaped(headline.messages(found["total"])), _verdicts(found)]
    if found["verdicts"]:
        rows = [
            (
                f"{row['producer']}:{row['pub']}" if row["pub"] else row["producer"],
                words.plain(row["verdict"]),
                losses.cause(row["cause"] or ""),
                clock(row["sent"]) if row["sent"] is not None else "never",
            )
            for row in found["verdicts"][:IDS_SHOWN]
        ]
        parts.append(table(("Message", "Verdict", "Cause", "Sent"), rows))
        rest = len(found["verdicts"]) + found["more"] - len(rows)
        parts.append(f"{rest} more are in the JSON file or were not kept." if rest > 0 else "")
    return "\n\n".join(part for part in parts if part)


def _verdicts(found: Row) -> str:
    total = found["total"]
    if headline.is_empty(total):
        return ""
    named = [name for name in words.VERDICTS if total.get(name) or name in ("lost", "unaccounted", "duplicated")]
    rows = []
    for name in named:
        because = [row for row in found["causes"] if row["verdict"] == name and row["cause"]]
        text = "; ".join(f"{row['messages']} {losses.cause(row['cause'])}" for row in because[:3])
        rows.append((words.plain(name), number(total.get(name) or 0), text))
    return table(("Verdict", "Messages", "Causes"), rows, ("Messages",))


def _claims(name: str, document: Row, rows: Sequence[Row]) -> str:
    """With the first lines that speak for each."""
    if not rows:
        return ""
    known = Lines(document, {})
    lines = []
    for row in rows:
        sure = f" ({row['confidence']})" if row.get("confidence") else ""
        lines.append(_wrapped(f"{escaped(row['text'])}{sure}", "* "))
        for place in (row["evidence"] or [])[:LINES_SHOWN]:
            event = known.get(place)
            lines.append(f"  * {code(place)}" + (f" {code(known.text(place))}" if event is not None else ""))
    return f"### {name}\n\n" + "\n".join(lines)


def _outages(document: Row) -> str:
    if not document["outages"]:
        return ""
    rows = [
        (row["client_id"] or "(no name)", headline.stood(row), clock(row["ts_begin"]), words.why(row["why"]))
        for row in document["outages"][: losses.OUTAGES_SHOWN]
    ]
    many = len(document["outages"]) + document["outages_more"]
    note = f"\n\n{len(rows)} of {many} shown, the longest first." if many > len(rows) else ""
    heads = ("Client", "Stood", "From", "Because")
    return "### Clients that stood still\n\n" + table(heads, rows, ("Stood",)) + note


def _unknown(document: Row) -> str:
    texts = [text for text, _ in unknown(document, GAPS_SHOWN)]
    return f"### What cannot be known\n\n{bullets(texts)}" if texts else ""
