"""Rows as Markdown tables; no I/O."""

from collections.abc import Iterable, Sequence

from tools.docs.options import Group, Option


def cell(text: str) -> str:
    """Text that is safe in a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """Code for a table. Python-Markdown takes no pipe between backticks for the end of a cell."""
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def option_row(option: Option) -> tuple[str, str]:
    value = f" {option.value}" if option.value else ""
    names = ", ".join(code(f"{name}{value}") for name in option.names)
    words = f" One of {', '.join(map(code, option.words))}." if option.words else ""
    return names, cell(option.help) + words


def option_tables(groups: Iterable[Group], level: int) -> str:
    """A heading and a table for each group."""
    parts = []
    for group in groups:
        title = group.title[:1].upper() + group.title[1:]
        parts.append(f"{'#' * level} {title}\n\n{table(('option', ''), map(option_row, group.options))}")
    return "\n".join(parts)
