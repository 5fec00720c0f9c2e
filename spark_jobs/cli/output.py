"""What the verbs print: tables of at most 80 columns, JSON; numbers are written by `report.units`."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.report.units import UNKNOWN as BEYOND
from spark_jobs.report.units import aligned, duration

WIDTH: Final = 80
UNKNOWN: Final = "?"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    """Two blanks between columns; what would make lines longer than 80 is cut from the widest column.  `right`: heads
    of columns of numbers."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    cut = [
        [cell if len(cell) <= width else cell[: width - 1] + "~" for cell, width in zip(row, widths, strict=True)]
        for row in (heads, *rows)
    ]
    return [line.rstrip() for line in aligned(cut, [head in right for head in heads])]


def wrapped(text: str, indent: int = 0, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * indent if first is None else first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def half(lo: int, hi: int) -> str:
    """Half of the width of bounds, us; unknown beyond those of a clock that nothing bounds."""
    return UNKNOWN if hi - lo > BEYOND else duration((hi - lo + 1) // 2)


def place_of(event: Mapping[str, Any]) -> str:
    return f"{event.get('file')}:{event.get('line_no')}"


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def show(lines: Sequence[str]) -> None:
    print("\n".join(lines), flush=True)


def leave_output() -> None:
    """The reader of standard output has gone; writing again at exit would only add a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
