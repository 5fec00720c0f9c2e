"""`qpid-printevents`: what happens in brokers, live.  Shell; what is asked and printed is in `event_lines`.

Each broker is asked by a thread of its own, which connects again by itself.  The main thread prints; if it cannot go on
printing, nothing more is asked for, and the next line says how many events were missed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from queue import Queue
from threading import Thread
from typing import Final

from qpidd_py.cli.client_socket import (
    AuthenticationFailure,
    BrokerError,
    Deadline,
    ManagementSocket,
    ProtocolFailure,
    RequestRefused,
    Target,
)
from qpidd_py.cli.event_lines import WAIT, Follow, Row, line, wanted
from qpidd_py.cli.output import describe, run_tool
from qpidd_py.cli.target import (
    Options,
    Parser,
    UsageError,
    add_address_options,
    add_login_options,
    config_of,
    parsed,
    target_of,
    timeout_of,
)
from qpidd_py.errors import ReplyCode

PROGRAM: Final = "qpid-printevents"
USAGE: Final = "qpid-printevents [OPTIONS] [ADDRESS...]"
PAUSES: Final = (0.25, 0.5, 1.0)
"""Seconds before the next attempt to connect; the last one goes on."""
ROWS: Final = 1000
"""Rows that wait to be printed."""
Put = Callable[[Row | Exception], None]


def make_parser() -> Parser:
    parser = Parser(prog=PROGRAM, usage=USAGE, add_help=False, allow_abbrev=False)
    text = "brokers, each as in --broker; a user and password in one count for that one only"
    parser.add_argument("addresses", nargs="*", metavar="ADDRESS", help=text)
    add = parser.add_argument_group("options").add_argument
    text = "only events whose line contains this regular expression, such as a name; may be repeated"
    add("--filter", action="append", default=[], metavar="REGEX", help=text)
    add("--json", action="store_true", help="a JSON object for each event")
    add("--since", metavar="N", help="begin behind event N; 0: with all that the broker still has (default: new ones)")
    add_address_options(add)
    add_login_options(add)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_main, arguments, f"{PROGRAM}: ")


def _main(words: Sequence[str]) -> int:
    options = parsed(make_parser(), words)
    if options is None:
        return 0
    filters = [_compiled(each) for each in options.filter]
    since = _since(options)
    targets = _targets(options)
    seconds = timeout_of(options, config_of(options))
    rows: Queue[Row | Exception] = Queue(ROWS)
    try:
        for target in targets:
            Thread(target=_watch, args=(target, seconds, since, rows.put), daemon=True).start()
        while True:
            row = rows.get()
            if isinstance(row, Exception):
                raise row
            if wanted(row, filters):
                print(json.dumps(row) if options.json else line(row), flush=True)
    except KeyboardInterrupt:
        return 0


def _compiled(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"argument --filter: {text!r}: {error}") from None


def _since(options: Options) -> int | None:
    if options.since is None:
        return None
    if not (options.since.isascii() and options.since.isdigit()):
        raise UsageError(f"argument --since: found {options.since!r}, wanted a number, 0 or more")
    return int(options.since)


def _targets(options: Options) -> list[Target]:
    config = config_of(options)
    addresses = [*([options.broker] if options.broker else []), *options.addresses] or [None]
    each_options = (argparse.Namespace(**{**vars(options), "broker": address}) for address in addresses)
    return [target_of(each, config) for each in each_options]


def _watch(target: Target, seconds: float, since: int | None, put: Put) -> None:
    """For ever, in a thread; ends with an error that trying again would not change."""
    follow, attempt = Follow(target.address, since, time.time_ns() // 1000), 0
    while True:
        try:
            with ManagementSocket(target, Deadline(seconds)) as broker:
                while True:
                    result = broker.request("event.list", follow.request(), Deadline(seconds and seconds + WAIT))
                    now, attempt = time.time_ns() // 1000, 0
                    for row in (*follow.up(now), *follow.answered(now, result)):
                        put(row)
        except (OSError, BrokerError) as error:
            if _final(error):
                put(RequestRefused(f"{target.address}: {error}") if isinstance(error, RequestRefused) else error)
                return
            for row in follow.down(time.time_ns() // 1000, describe(error)):
                put(row)
        except Exception as error:
            put(error)
            return
        time.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
        attempt += 1


def _final(error: Exception) -> bool:
    """A login or request that is refused, and no AMQP.  A broker that reads its journal says 320."""
    if isinstance(error, RequestRefused):
        return error.code not in (0, ReplyCode.CONNECTION_FORCED)
    if isinstance(error, BrokerError) and error.code == ReplyCode.NOT_ALLOWED:
        return True
    return isinstance(error, (AuthenticationFailure, ProtocolFailure))


if __name__ == "__main__":
    sys.exit(main())
