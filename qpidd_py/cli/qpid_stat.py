"""`qpid-stat`: what a broker has and does, as tables.  Shell; the screens are in `stat_views`.

Words and options follow Apache Qpid's tool of the same name.  All of it are management requests, which backups answer,
too.  Errors are one line `Failed: Class: text` on standard output, with exit code 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from qpidd_py.cli import stat_views
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.config_listing import to_the_right
from qpidd_py.cli.members import of_each
from qpidd_py.cli.output import describe, print_json, print_lines, print_table, run_tool
from qpidd_py.cli.stat_views import VIEWS, Json, View
from qpidd_py.cli.target import (
    Options,
    Parser,
    UsageError,
    add_address_options,
    add_login_options,
    brokers_of,
    run_parsed,
)

PROGRAM: Final = "qpid-stat"
RATE_TIME: Final = 1.0
"""Seconds between two looks at the counters."""
CLEAR: Final = "\x1b[2J\x1b[H"
"""A terminal begins a new screen."""

USAGE: Final = """\
qpid-stat [OPTIONS] [-g]               the broker
qpid-stat [OPTIONS] -c [SUBSTRING]     connections
qpid-stat [OPTIONS] -e [SUBSTRING]     exchanges
qpid-stat [OPTIONS] -q [SUBSTRING]     queues
qpid-stat [OPTIONS] -u [SUBSTRING]     subscriptions
qpid-stat [OPTIONS] -m                 memory
qpid-stat [OPTIONS] --acl              the ACL file
qpid-stat [OPTIONS] --show-broker ...  any of these, of each broker of the cluster"""

Seen = tuple[Any, Callable[[], None]]
"""What a broker answers, and what prints it as text."""
SCREENS: Final = {"general": stat_views.general, "memory": stat_views.memory, "acl": stat_views.acl}
"""Those that are no tables."""


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage="\n" + USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("substring", nargs="?", default="", metavar="SUBSTRING", help="only rows with this in a name")
    add = parser.add_argument_group("what is shown").add_mutually_exclusive_group().add_argument
    for short, name, text in (
        ("-g", "general", "the broker itself (the default)"),
        ("-c", "connections", "its connections"),
        ("-e", "exchanges", "its exchanges"),
        ("-q", "queues", "its queues"),
        ("-u", "subscriptions", "its consumers"),
        ("-m", "memory", "its memory, and what is in the page file"),
        ("", "acl", "the ACL file in force, its quotas, and how much it has refused"),
    ):
        add(*filter(None, (short, f"--{name}")), dest="what", action="store_const", const=name, help=text)
    add = parser.add_argument_group("options").add_argument
    add("-S", "--sort-by", metavar="COLUMN", help="order by this column, the greatest first")
    add("-I", "--increasing", action="store_true", help="with -S: the least first")
    add("-L", "--limit", type=int, metavar="N", help="at most so many rows")
    add("--rates", action="store_true", help=f"with -c, -q: per second, measured over {RATE_TIME:g} s")
    add("--watch", type=float, metavar="SECONDS", help="show it again each SECONDS, with rates, until interrupted")
    add("-p", "--vhost", metavar="VHOST", help="virtual host (default /; with -c all)")
    add("--show-broker", action="store_true", help="of each broker of the cluster, below its address")
    add("--json", action="store_true", help="print JSON, as the broker answers")
    add_address_options(add)
    add_login_options(add)
    parser.set_defaults(what="general")
    return parser


class Tool:
    """One call of the program.  Each look at the broker has a connection of its own, so that a repeated one survives
    the broker's restart."""

    def __init__(self, options: Options, target: Target, seconds: float) -> None:
        self._options, self._target, self._seconds = options, target, seconds
        self._before: list[Json] | None = None
        self._looked = 0.0

    def run(self) -> int:
        """Returns the exit code; raises all errors."""
        view = self.prepared()
        if not self._options.watch:
            self._look(view)
        while self._options.watch:
            self._look_again(view)
            sys.stdout.flush()
            time.sleep(self._options.watch)
        return 0

    def prepared(self) -> View | None:
        """The table, if it is one; the first look at its counters is behind us."""
        view = VIEWS.get(self._options.what)
        if view is not None and (self._options.rates or (self._options.watch and view.has_rates)):
            self._before, self._looked = self._ask(view.method), time.monotonic()
            time.sleep(RATE_TIME)
        return view

    def _look_again(self, view: View | None) -> None:
        """A broker that does not answer is part of what one watches for."""
        if sys.stdout.isatty():
            print(CLEAR, end="")
        try:
            self._look(view)
        except (OSError, BrokerError) as error:
            self._before = [] if self._before is not None else None
            print(describe(error))

    def _look(self, view: View | None) -> None:
        found, show = self.seen(view)
        print_json(found) if self._options.json else show()

    def seen(self, view: View | None) -> Seen:
        if view is None:
            info = self._ask("acl.show" if self._options.what == "acl" else "broker.info")
            return info, lambda: self._broker(info)
        else:
            before, since = self._before, self._looked
            items, self._looked = self._ask(view.method), time.monotonic()
            self._before = items if before is not None else None
            return self._table(view, items, before, self._looked - since)

    def _ask(self, method: str) -> Any:
        with ManagementSocket(self._target, Deadline(self._seconds)) as broker:
            return broker.request(method, {} if self._options.vhost is None else {"vhost": self._options.vhost})

    def _broker(self, info: Json) -> None:
        show = SCREENS[self._options.what]
        print_lines(f"{name + ':':<24}{value}" for name, value in show(info))

    def _table(self, view: View, items: list[Json], before: list[Json] | None, seconds: float) -> Seen:
        items = [item for item in items if view.has(item, self._options.substring)]
        heads, rows = view.heads(before is not None), view.rows(items, before, seconds)
        order = list(range(len(rows)))
        if self._options.sort_by:
            order = ordered(heads, rows, self._options.sort_by, self._options.increasing)
        order = order[: self._options.limit]
        rows = [rows[at] for at in order]
        cells = [view.cells(row, before is not None) for row in rows]
        return [items[at] for at in order], lambda: print_table(*aligned(heads, rows, cells))


def of_members(options: Options, target: Target, seconds: float) -> int:
    """`--show-broker`: what each broker shows, or why it does not; 1 if none does."""

    def look(address: str) -> Seen:
        tool = Tool(options, target.at(address), seconds)
        return tool.seen(tool.prepared())

    found: dict[str, Any] = {}
    for address, answer in of_each(members(target, seconds), look, 2 * seconds + RATE_TIME if seconds else 0):
        if isinstance(answer, OSError | BrokerError):
            answer = describe(answer), partial(print, describe(answer))
        elif isinstance(answer, Exception):
            raise answer
        found[address], show = answer
        if not options.json:
            print(f"{address}:")
            show()
    if options.json:
        print_json(found)
    return int(all(isinstance(answer, str) for answer in found.values()))


def members(target: Target, seconds: float) -> list[str]:
    """The addresses of the cluster; that of the broker itself where there is none."""
    with ManagementSocket(target, Deadline(seconds)) as broker:
        try:
            url = broker.request("ha.query").get("brokers_url")
        except RequestRefused:  # it has no cluster
            url = ""
    return brokers_of(url) or [target.address]


def ordered(heads: Sequence[str], rows: Sequence[Sequence[Any]], column: str, increasing: bool) -> list[int]:
    """Numbers of rows; those without a value come last.  Raises UsageError."""
    if column not in heads:
        raise UsageError(f"argument -S: found {column!r}, wanted one of {', '.join(heads)}")
    at = heads.index(column)
    known = [number for number, row in enumerate(rows) if row[at] is not None]
    known.sort(key=lambda number: rows[number][at], reverse=not increasing)
    return known + [number for number, row in enumerate(rows) if row[at] is None]


def aligned(
    heads: Sequence[str], rows: Sequence[Sequence[Any]], cells: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells; columns of numbers are set to the right."""
    columns = [list(column) for column in zip(heads, *cells, strict=True)]
    for at, column in enumerate(columns):
        if any(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in rows):
            columns[at] = to_the_right(column)
    head, *body = (list(line) for line in zip(*columns, strict=True))
    return head, body


def check(options: Options) -> None:
    """Raises UsageError for what would do nothing."""
    rated = options.what in VIEWS and VIEWS[options.what].has_rates
    if options.rates and not rated:
        raise UsageError("argument --rates: is for -c and -q")
    if options.what not in VIEWS and (options.substring or options.sort_by or options.limit is not None):
        raise UsageError(f"SUBSTRING, -S and -L are for tables, and --{options.what} is none")
    if options.what not in VIEWS and options.vhost is not None:
        raise UsageError(f"argument -p: is for tables, and --{options.what} is of the whole broker")
    if options.limit is not None and options.limit < 1:
        raise UsageError(f"argument -L: found {options.limit}, wanted 1 or more")
    if options.watch is not None and not 0.1 <= options.watch <= 86400:
        raise UsageError(f"argument --watch: found {options.watch:g}, wanted seconds from 0.1 to 86400")
    if options.watch is not None and options.show_broker:
        raise UsageError("--watch is for one broker, and --show-broker for each; watch qpid-ha status --all")
    if options.increasing and not options.sort_by:
        raise UsageError("argument -I: needs -S")


def run(options: Options, target: Target, seconds: float) -> int:
    """Raises all errors; `main` prints them as one line."""
    check(options)
    target = target._replace(vhost=options.vhost or target.vhost)
    return of_members(options, target, seconds) if options.show_broker else Tool(options, target, seconds).run()


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(lambda words: run_parsed(make_parser(), words, run), arguments, "Failed: ")


if __name__ == "__main__":
    sys.exit(main())
