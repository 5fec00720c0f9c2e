"""Output of the tools: tables of at most 80 columns, JSON, errors as one line."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

WIDTH = 80


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Two blanks between columns; if lines were longer than 80, the widest column is cut."""
    if not rows:
        return
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    print()
    for row in (heads, ["=" * width for width in widths], *rows):
        print("  ".join(clip(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def plain(text: str) -> str:
    """Clients name what is printed: nothing in it controls a terminal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def print_lines(lines: Iterable[str]) -> None:
    print("\n".join(map(plain, lines)))


def clip(text: str, width: int) -> str:
    text = plain(text)
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + "~"


def print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))


def describe(error: BaseException) -> str:
    """One line, `ClassName: text`."""
    return plain(f"{type(error).__name__}: {' '.join(str(error).split())}")


def installed_version() -> str:
    """As all programs print it."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return f"qpidd-py {version('qpidd-py')}"
    except PackageNotFoundError:
        return "qpidd-py 0"


class ShowVersion(argparse.Action):
    """`--version`, which looks for the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str = argparse.SUPPRESS, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(installed_version())
        parser.exit()


def run_tool(run: Callable[[Sequence[str]], int], arguments: Sequence[str] | None, prefix: str = "") -> int:
    """The exit code of `run`, which gets those of the command line for None; an exception becomes one line on standard
    output, after `prefix`, and code 1."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(f"{prefix}KeyboardInterrupt: interrupted")
    except BrokenPipeError:
        # The reader of standard output has gone; writing again at exit would only add a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        print_json({"error": describe(error)}) if "--json" in words else print(f"{prefix}{describe(error)}")
    return 1
