"""What the tools print: tables of at most 80 columns, JSON, errors as one line."""

from collections.abc import Sequence
from typing import Any

WIDTH = 80


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Two blanks between columns; what would make lines longer than 80 is cut from the widest column."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    print()
    for row in (heads, ["=" * width for width in widths], *rows):
        print("  ".join(clip(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def clip(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + "~"


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))


def describe(error: BaseException) -> str:
    """One line, `ClassName: text`."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
