"""Parts of the page that several sections need (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import words
from spark_jobs.report.evidence import Cell, bounds
from spark_jobs.report.figures import Figure
from spark_jobs.report.markup import Markup, joined, tag
from spark_jobs.report.units import by_note, clock, moment

TONES: Final = {"good": "✓", "bad": "✗", "doubt": "?", "neutral": ""}


# ---- what a page says, in all of its forms --------------------------------------------------------------------------


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 3


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    class_: str | None = None


@dataclass(frozen=True)
class Points:
    """A list."""

    items: Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """Cells are texts or `Cell`s.  `numbers`: heads of columns of numbers; where there is no room, `page`: of those
    that are left out, `cut`: of the one that may be cut."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    numbers: Sequence[str] = ()
    note: str = ""
    page: Sequence[str] = ()
    cut: str = ""


@dataclass(frozen=True)
class Fold:
    """What a page shows on demand."""

    summary: str
    content: Table


Block = Heading | Text | Points | Table | Fold | Markup
"""Markup is the page's alone."""


def shown(blocks: Iterable[Block | None]) -> Markup:
    """As HTML."""
    return joined(_shown(block) for block in blocks if block is not None)


def _shown(block: Block) -> Markup:
    if isinstance(block, Heading):
        return tag(f"h{block.level}", block.text)
    if isinstance(block, Text):
        return tag("p", block.text, class_=block.class_)
    if isinstance(block, Points):
        return tag("ul", *(tag("li", item.html) for item in block.items), class_="words")
    if isinstance(block, Fold):
        return tag("details", tag("summary", block.summary), _table(block.content))
    return _table(block) if isinstance(block, Table) else block


def _table(table: Table) -> Markup:
    """On a phone each row is a small list, so each cell knows its head."""
    heads, numbers = table.heads, table.numbers
    head = tag("tr", *(tag("th", name, scope="col", class_="n" if name in numbers else None) for name in heads))
    body = [tag("tr", *(_cell(name, cell, name in numbers, not index) for index, (name, cell) in enumerate(pairs)))
            for pairs in (zip(heads, row, strict=True) for row in table.rows)]  # fmt: skip
    made = tag("table", tag("caption", table.caption), tag("thead", head), tag("tbody", *body), class_="stack")
    return tag("div", made, tag("p", table.note, class_="note") if table.note else None, class_="table")


def _cell(name: str, cell: object, is_number: bool, first: bool) -> Markup:
    content = cell.html if isinstance(cell, Cell) else "" if cell is None else cell
    if first:
        return tag("th", content, scope="row", class_="n" if is_number else None)
    return tag("td", content, data_name=name, class_="n" if is_number else None)


def tone(text: str, name: str) -> Cell:
    """A verdict: sign and word, not colour alone."""
    return Cell(text, tag("span", f"{TONES[name]} {text}".strip(), class_=f"tone {name}"))


def timed(text: str) -> Cell:
    """A time, in figures of one width."""
    return Cell(text, tag("span", text, class_="time"))


def time(us: int, low: int, high: int) -> Cell:
    """With its error."""
    unsure = bounds(us, low, high)
    note = tag("span", unsure.replace(" ", "\u00a0"), class_="note")
    return Cell(f"{clock(us)} {unsure}".rstrip(), joined([timed(clock(us)).html, " ", note]))


# ---- parts of several sections --------------------------------------------------------------------------------------


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
