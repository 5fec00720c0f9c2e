"""`failover-report VERB ...`: the parser of all verbs, and the handling of errors.  Shell.

An error of the user is one line and exit code 2.  A defect of the program is also one line, without a traceback, unless
FAILOVER_REPORT_DEBUG is set.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Final, NoReturn

from spark_jobs.cli import output
from spark_jobs.cli.errors import DEBUG, EXIT_CODES, INTERNAL, INTERRUPTED, NO_READER, USAGE
from spark_jobs.data import table

PROGRAM: Final = "failover-report"
DESCRIPTION: Final = "What happened in a fail-over, from the logs that brokers, clients and the cluster left behind."
_TEXTS: Final = table(__package__, "verbs")
VERBS: Final = tuple(_TEXTS)
_IN_TASK: Final = re.compile(r"Traceback \(most recent call last\):\n(?:(?:[ \t].*)?\n)+(\S.*)")
"""The error of a task's Python inside of Spark's."""
"""Each is a module in this package: add_arguments(parser), run(options) -> exit code."""


class Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{PROGRAM}: {message}; see `{self.prog} --help`\n")


class Help(argparse.RawDescriptionHelpFormatter):
    """Options in one column, what they mean in another."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class ShowVersion(argparse.Action):
    """`--version`, which looks for the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str = argparse.SUPPRESS, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slow to import

        print(f"qpidd-py {version('qpidd-py')}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, epilog=EXIT_CODES, formatter_class=Help, allow_abbrev=False)
    parser.add_argument("--version", action=ShowVersion)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name in VERBS:
        module, texts = importlib.import_module(f"spark_jobs.cli.{name}"), _TEXTS[name]
        verb = verbs.add_parser(
            name,
            help=texts["help"],
            description=texts["description"],
            epilog=f"examples:\n{texts['examples']}\n\n{EXIT_CODES}",
            formatter_class=Help,
            allow_abbrev=False,
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    try:
        options = make_parser().parse_args(argv)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else USAGE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no arrow shows a question mark
    return guarded(lambda: int(options.run(options)))


def guarded(work: Callable[[], int]) -> int:
    """Its exit code, also when it fails."""
    with _noticed() as interrupts:
        try:
            return work()
        except KeyboardInterrupt:
            return _interrupted()
        except BrokenPipeError:
            output.leave_output()
            return NO_READER
        except Exception as error:
            return _interrupted() if interrupts else _failed(error)


@contextlib.contextmanager
def _noticed() -> Iterator[list[int]]:
    """SIGINT raises as ever, and is noted: DuckDB makes an error of its own of it."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        logging.disable()  # py4j would tell the user with a traceback
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupted() -> int:
    _complain("interrupted")
    return INTERRUPTED


def _failed(error: Exception) -> int:
    if os.environ.get(DEBUG):
        raise error
    in_task = _IN_TASK.search(str(error))
    text = " ".join(str(error).split())
    if is_users(error):
        _complain(text)
        return USAGE
    _complain(f"a task of Spark failed: {in_task[1]}" if in_task else f"{type(error).__name__}: {text}")
    return INTERNAL


def is_users(error: Exception) -> bool:
    """True for a file that cannot be read, and for errors that our code raises with a message for users.

    A plain ValueError or RuntimeError is a defect of the program."""
    ours = type(error).__module__.startswith("spark_jobs.")
    return isinstance(error, OSError) or (ours and not isinstance(error, RuntimeError))


def _complain(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
