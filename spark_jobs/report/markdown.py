"""The report as Markdown, for a ticket: what the page says, in tables of at most 100 columns (pure)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_jobs.data import Row
from spark_jobs.report import headline, html, sections
from spark_jobs.report.elements import Block, Fold, Heading, Points, Table, Text
from spark_jobs.report.evidence import Cell, Lines
from spark_jobs.report.units import aligned, number

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
    plain = Writer()
    parts = [f"# Failover report: {escaped(names)}", bullets(headline.summary(overview))]
    parts += [plain.text(html.index(overview)), *map(incident, documents)]
    parts += [plain.text([Heading(title, 2), *content]) for _, title, content in html.rest(overview)]
    return "\n\n".join(part for part in parts if part) + "\n"


def incident(document: Row) -> str:
    lines = Lines(document, {})
    title = f"## {document['number']}. {escaped(headline.named(document))}"
    return "\n\n".join([title, bullets(document["words"]), Writer(lines).text(sections.told(document, lines))])


@dataclass(frozen=True)
class Writer:
    """`lines`: of the incident that is told of; of a table `width`: characters, `most`: rows."""

    lines: Lines | None = None
    width: int = WIDTH
    most: int = ROWS_SHOWN

    def text(self, blocks: Iterable[Block]) -> str:
        return "\n\n".join(part for part in map(self._shown, blocks) if part)

    def _shown(self, block: Block) -> str:
        if isinstance(block, Heading):
            return f"{'#' * block.level} {escaped(block.text)}"
        if isinstance(block, Text):
            return escaped(block.text)
        if isinstance(block, Points):
            return "\n".join(self._item("* ", escaped(item.text), item.places) for item in block.items)
        if isinstance(block, Fold):
            return self._table(block.content)
        return self._table(block) if isinstance(block, Table) else ""

    def _table(self, table: Table) -> str:
        """As a list where a row has lines of logs, or where a column that must not be cut has no room."""
        kept = [index for index, head in enumerate(table.heads) if head not in table.page]
        rows = [[row[index] for index in kept] for row in table.rows[: self.most]]
        heads, texts = [table.heads[index] for index in kept], [[*map(_said, row)] for row in rows]
        places = [[place for cell in row if isinstance(cell, Cell) for place in cell.places] for row in rows]
        widths = _widths(heads, texts, self.width, table.cut)
        if widths is None or any(places):
            items = (self._item(*_told(heads, row), of) for row, of in zip(texts, places, strict=True))
            made = "\n".join(items)
        else:
            made = _grid(heads, texts, widths, table.numbers)
        more = len(table.rows) - len(rows)
        left_out = f"... and {number(more)} more, which the page has" if more else ""
        notes = escaped("; ".join(filter(None, (left_out, table.note))))
        return "\n\n".join(part for part in (escaped(table.caption), made, notes) if part)

    def _item(self, head: str, text: str, places: Sequence[str]) -> str:
        """With the first lines of logs that say it; what is numbered says a line in words."""
        found = [_wrapped(text, head)]
        for place in places[:LINES_SHOWN]:
            line = self.lines.text(place) if self.lines else ""
            told = f"  * {code(place)}" + (f" {code(line)}" if line else "")
            found.append(told if head == "* " else " " * len(head) + code(place))
        return "\n".join(found)


def _said(cell: object) -> str:
    return escaped("" if cell is None else cell.text if isinstance(cell, Cell) else cell)


def _told(heads: Sequence[str], row: Sequence[str]) -> tuple[str, str]:
    """A row as an item: its number, if it has one; its first text, the others behind their heads."""
    begin, skipped = (f"{row[0]}. ", 1) if heads[0] == "No" else ("* ", 0)
    first, *others = zip(heads[skipped:], row[skipped:], strict=True)
    return begin, "; ".join([first[1], *(f"{name.lower()}: {text}" for name, text in others if text)])


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]], most: int, cut: str) -> list[int] | None:
    """Of the columns; None if they have no room."""
    widths = [max(2, *map(len, column)) for column in zip(heads, *rows, strict=True)]
    beyond = sum(widths) + 3 * len(widths) + 1 - most
    if beyond > 0 and cut:
        taken = min(beyond, max(0, widths[heads.index(cut)] - CUT_LEAST))
        widths[heads.index(cut)] -= taken
        beyond -= taken
    return None if beyond > 0 else widths


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], numbers: Sequence[str]) -> str:
    """Aligned as text, too."""
    right = [name in numbers for name in heads]
    rule = ["-" * (width - 1) + (":" if is_right else "-") for width, is_right in zip(widths, right, strict=True)]
    cut = [
        [cell if len(cell) <= width else _cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        for row in (heads, rule, *rows)
    ]
    return "\n".join(f"| {line} |" for line in aligned(cut, right, " | "))


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
