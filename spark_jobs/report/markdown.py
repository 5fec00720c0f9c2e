"""The report as Markdown, for a ticket: tables of at most 100 columns (pure)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import headline, html, sections
from spark_jobs.report.elements import Block, Fold, Heading, Points, Table, Text
from spark_jobs.report.evidence import Cell, Lines
from spark_jobs.report.units import number

WIDTH: Final = 98
CUT_LEAST: Final = 12
"""Characters that a column that may be cut has left."""
ROWS_SHOWN: Final = 30
"""Of a table."""
LINES_SHOWN: Final = 3
"""Evidence of one claim."""
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|~#])")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def page(overview: Row, documents: Sequence[Row]) -> str:
    """The whole report."""
    names = ", ".join(name for name in overview["clusters"] if name) or "one cluster"
    parts = [f"# Failover report: {escaped(names)}", bullets(headline.summary(overview)), shown(html.index(overview))]
    parts += [incident(one) for one in documents]
    parts += [shown([Heading(title, 2), *content]) for _, title, content in html.rest(overview)]
    return "\n\n".join(part for part in parts if part) + "\n"


def incident(document: Row) -> str:
    lines = Lines(document, {})
    title = Heading(f"{document['number']}. {headline.named(document)}", 2)
    return "\n\n".join([shown([title]), bullets(document["words"]), shown(sections.told(document, lines), lines)])


# ---- blocks ---------------------------------------------------------------------------------------------------------


def shown(blocks: Iterable[Block], lines: Lines | None = None) -> str:
    """`lines`: of the incident that they are about."""
    return "\n\n".join(part for block in blocks if (part := _shown(block, lines)))


def _shown(block: Block, lines: Lines | None) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escaped(block.text)}"
    if isinstance(block, Text):
        return escaped(block.text)
    if isinstance(block, Points):
        return "\n".join(_item("* ", [("", item)], lines) for item in block.items)
    if isinstance(block, Fold):
        return _shown(block.content, lines)
    return _table(block, lines) if isinstance(block, Table) else ""


def _table(table: Table, lines: Lines | None) -> str:
    """As a list where a row has lines of logs, or where a column that must not be cut has no room."""
    heads = [head for head in table.heads if head not in table.page]
    every = [dict(zip(table.heads, row, strict=True)) for row in table.rows[:ROWS_SHOWN]]
    rows = [[row[head] for head in heads] for row in every]
    widths = _widths(heads, rows, table.cut)
    if widths is None or any(isinstance(cell, Cell) and cell.places for row in rows for cell in row):
        pairs = [[*zip(heads, row, strict=True)] for row in rows]
        numbered = [(f"{_said(row[0][1])}. ", row[1:]) if row[0][0] == "No" else ("* ", row) for row in pairs]
        made = "\n".join(_item(head, row, lines) for head, row in numbered)
    else:
        made = _grid(heads, rows, widths, table.numbers)
    more = len(table.rows) - len(rows)
    note = f"... and {number(more)} more, which the page has." if more else table.note
    return "\n\n".join(part for part in (escaped(table.caption) + ":", made, escaped(note)) if part)


def _said(cell: object) -> str:
    return escaped("" if cell is None else cell.text if isinstance(cell, Cell) else cell)


def _item(head: str, cells: Sequence[tuple[str, object]], lines: Lines | None) -> str:
    """The first cell, then the others with their heads, and the first lines of logs that say it."""
    first, *others = ((name, _said(cell)) for name, cell in cells)
    told = [first[1], *(f"{escaped(name.lower())}: {text}" for name, text in others if text)]
    found = [_wrapped("; ".join(told), head)]
    for place in [place for _, cell in cells if isinstance(cell, Cell) for place in cell.places][:LINES_SHOWN]:
        text = lines.text(place) if lines else ""
        # what is numbered says the line in words
        numbered = " " * len(head) + code(place)
        found.append(numbered if head != "* " else f"  * {code(place)}" + (f" {code(text)}" if text else ""))
    return "\n".join(found)


def _widths(heads: Sequence[str], rows: Sequence[Sequence[object]], cut: str) -> list[int] | None:
    """Of the columns; None if they have no room."""
    widths = [max(map(len, column)) for column in zip(heads, *(map(_said, row) for row in rows), strict=True)]
    beyond = sum(widths) + 3 * len(widths) + 1 - WIDTH
    if beyond > 0 and cut:
        taken = min(beyond, max(0, widths[heads.index(cut)] - CUT_LEAST))
        widths[heads.index(cut)] -= taken
        beyond -= taken
    return None if beyond > 0 else widths


def _grid(heads: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int], numbers: Sequence[str]) -> str:
    """Aligned as text, too."""
    right = [name in numbers for name in heads]
    rule = ["-" * (width - 1) + (":" if is_right else "-") for width, is_right in zip(widths, right, strict=True)]
    return "\n".join(_line(row, widths, right) for row in (heads, rule, *([*map(_said, row)] for row in rows)))


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
