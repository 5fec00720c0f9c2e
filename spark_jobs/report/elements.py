"""Parts of the page that several sections need (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import words
from spark_jobs.report.evidence import bounds
from spark_jobs.report.figures import Figure
from spark_jobs.report.markup import Markup, joined, tag
from spark_jobs.report.units import by_note, clock, moment

TONES: Final = {"good": "✓", "bad": "✗", "doubt": "?", "neutral": ""}

Cell = object


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Sequence[str] = (), note: str = ""
) -> Markup:
    """On a phone each row is a small list, so each cell knows its head.  `numbers`: heads of columns of numbers."""
    head = tag("tr", *(tag("th", name, scope="col", class_="n" if name in numbers else None) for name in heads))
    body = [tag("tr", *(_cell(name, cell, name in numbers, not index) for index, (name, cell) in enumerate(pairs)))
            for pairs in (zip(heads, row, strict=True) for row in rows)]  # fmt: skip
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_="stack")
    return tag("div", made, tag("p", note, class_="note") if note else None, class_="table")


def _cell(name: str, cell: Cell, is_number: bool, first: bool) -> Markup:
    content = "" if cell is None else cell
    if first:
        return tag("th", content, scope="row", class_="n" if is_number else None)
    return tag("td", content, data_name=name, class_="n" if is_number else None)


def tone(text: str, name: str) -> Markup:
    """A verdict: sign and word, not colour alone."""
    return tag("span", f"{TONES[name]} {text}".strip(), class_=f"tone {name}")


def time(us: int, low: int, high: int) -> Markup:
    unsure = bounds(us, low, high).replace(" ", "\u00a0")
    return joined([tag("span", clock(us), class_="time"), " ", tag("span", unsure, class_="note")])


def figure_list(found: Iterable[Figure]) -> Markup:
    """Those of which nothing is known are one line below."""
    listed = list(found)
    made = tag("dl", *(_figure(item) for item in listed if item.value != "unknown"), class_="figures")
    text = by_note((item.name.lower(), item.note) for item in listed if item.value == "unknown")
    return joined([made, tag("p", f"Not known: {text}.", class_="note") if text else None])


def _figure(item: Figure) -> Markup:
    return tag(
        "div",
        tag("dt", item.name),
        tag("dd", _valued(f"{TONES[item.tone]} {item.value}".strip()), class_="value"),
        tag("dd", item.note, class_="why") if item.note else None,
        class_=item.tone,
    )


def _valued(text: str) -> Markup:
    """`2.28 s ±8 ms`: the error smaller."""
    value, sign, unsure = re.match(r"(.*?)(?: ([±+])(\d.*))?$", text).groups()  # type: ignore[union-attr]
    return joined([value, " ", tag("span", f"{sign}{unsure}", class_="unsure")]) if sign else joined([value])


def heading(text: str) -> Markup:
    return tag("h3", text)


def elsewhere(gaps: Iterable[Row]) -> list[Row]:
    """Without the files that were no logs, which stand with what was read."""
    return [row for row in gaps if row.get("kind") != "refused"]


def unknown(document: Row, most: int) -> list[tuple[str, list[str]]]:
    """(text, lines) of what cannot be known in an incident, each once."""
    gaps = document["gaps"]
    told = {str(row.get("text")) for row in gaps}
    found: list[tuple[str, list[str]]] = [
        (text, []) for text in document["incident"]["unknown"] or [] if text not in told
    ]
    found += [(gap(row), list(row.get("evidence") or [])) for row in gaps[:most]]
    return list({text: (text, places) for text, places in found}.values())


def gap(row: Row) -> str:
    """In words, with where and when."""
    text = str(row.get("text") or words.plain(row.get("kind") or "gap"))
    where = row.get("file") or ""
    if row.get("line_no") and where:
        where = f"{where}:{row['line_no']}"
    begin, end = row.get("begin"), row.get("end")
    span = ""
    if begin is not None:
        span = moment(begin) if end in (None, begin) else f"{moment(begin)} to {clock(end)}"
        span = "" if span == "unknown to unknown" else span  # of a clock that nothing bounds
    about = "; ".join(part for part in (where if where not in text else "", span) if part)
    return f"{text} ({about})" if about else text
