"""Pieces of text that several kinds of files share."""

import textwrap
from collections.abc import Iterable

WIDTH = 116


def period(seconds: float) -> str:
    """For Pacemaker and people: `5s`, or `250ms` where seconds do not do."""
    return f"{round(seconds)}s" if abs(seconds - round(seconds)) < 1e-9 else f"{round(seconds * 1000)}ms"


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def comment(text: str, indent: str = "", mark: str = "#") -> list[str]:
    """Lines of a comment; a line break in `text` begins a new line."""
    width = WIDTH - len(indent) - len(mark)
    lines = [part for line in text.splitlines() for part in (textwrap.wrap(line, width) or [""])]
    return [f"{indent}{mark} {line}".rstrip() for line in lines]


def paragraph(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH))


def joined(lines: Iterable[str]) -> str:
    """A file of these lines."""
    return "\n".join(lines) + "\n"
