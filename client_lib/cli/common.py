"""What `qpid-send` and `qpid-receive` share: options, signals, pace, the frame of a run.  Shell, but for `Pace`.

The first signal asks the tool to stop cleanly; a second one ends it as if there were no handler.  While senders and
receivers are being created there is nothing to stop cleanly, so the first signal raises at once.  The work is never
interrupted in the middle: it polls `stopped()` and waits at most SLICE seconds at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Protocol

from client_lib.cli import values
from client_lib.cli.report import Reporter
from client_lib.cli.sequence import CheckFailed
from client_lib.connection import Connection
from client_lib.errors import ConnectError, Timeout

OK, FAILED, USAGE, IN_DOUBT, CHECK_FAILED, SIGNALLED = 0, 1, 2, 3, 4, 128
EXIT_CODES = """\
exit codes:
  0      done; also after a signal, if no number of messages was asked for
  1      an error; one line on standard error says which
  2      an option or its value makes no sense
  3      messages are in doubt: they may have had their effect or not; one line says how many
  4      --verify-sequence or --check-redelivered found something
  128+N  ended in order by signal N before all messages were done"""

SLICE = 0.2
"""Seconds of the longest wait; a signal has its effect after that."""
FIRST_CONNECT = 10.0
"""Seconds for the first connection, if the connection options do not set any reconnect option."""
PATIENCE = 5.0
"""Seconds to wait for confirms and for the connection to close after a signal."""


class Interrupted(Exception):
    """A signal arrived before the work began."""


class Signals:
    """Context: SIGINT and SIGTERM set `number`; before `begin` they raise Interrupted."""

    def __init__(self) -> None:
        self.number = 0
        self._begun = False
        self._before: dict[int, Any] = {}

    def begin(self) -> None:
        self._begun = True

    def stopped(self) -> bool:
        return self.number != 0

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        if not self._begun:
            raise Interrupted(signal.Signals(number).name)

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Pace:
    """A rate in messages per second, 0 = as fast as possible; delays are made up for, as in Qpid's tools."""

    def __init__(self, rate: float, began: float) -> None:
        self._rate, self._began = rate, began

    def wait(self, done: int, now: float) -> float:
        """Seconds until the message after `done` others is due."""
        return max(0.0, self._began + done / self._rate - now) if self._rate else 0.0


class World:
    """What the work needs from the process; tests supply their own."""

    def __init__(self, stopped: Callable[[], bool], out: BinaryIO) -> None:
        self.stopped, self.out = stopped, out
        self.clock: Callable[[], float] = time.monotonic
        self.wall_ns: Callable[[], int] = time.time_ns
        self.sleep: Callable[[float], None] = time.sleep

    def keep_pace(self, pace: Pace, done: int) -> None:
        """Sleeps until the next message is due, or a signal comes."""
        while (left := pace.wait(done, self.clock())) > 0 and not self.stopped():
            self.sleep(min(left, SLICE))


class Work(Protocol):
    """One of the tools."""

    complete: bool
    """True when the requested work is done."""

    def prepare(self, connection: Connection) -> None:
        """Creates sessions, senders and receivers."""

    def run(self) -> None:
        """Works until everything is done or a signal arrives."""

    def finish(self, failovers: int) -> int:
        """After the connection was closed: reports; returns how many messages are in doubt."""


# -- options


class Help(argparse.RawDescriptionHelpFormatter):
    """Options in one column, what they mean in another."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


class ShowVersion(argparse.Action):
    """`--version`, which looks for the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str = argparse.SUPPRESS, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="show the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slow to import

        print(f"qpidd-py {version('qpidd-py')}")
        parser.exit()


def make_parser(program: str, description: str, examples: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [-b URL] -a ADDRESS [OPTIONS]",
        description=description,
        epilog=f"{EXIT_CODES}\n\nexamples:\n{examples}",
        allow_abbrev=False,
        formatter_class=Help,
    )
    parser.add_argument("--version", action=ShowVersion)
    add = parser.add_argument_group("connection").add_argument
    add("-b", "--broker", default="127.0.0.1", metavar="URL", help="brokers, any of them: node1,node2:5673 or amqp://")
    add("--password-file", metavar="FILE", help="the password of the user in --broker: first line of this file")
    add("-a", "--address", required=True, metavar="ADDRESS", help="NAME[/SUBJECT][;{OPTIONS}], as in Qpid's book")
    add(
        "--connection-options",
        type=values.option_map,
        default={},
        metavar="MAP",
        help="as {reconnect:true,heartbeat:5,username:me,transport:ssl}; see the options of the client library",
    )
    add("--failover-updates", action="store_true", help="no effect: what brokers say of their cluster is always used")
    return parser


def add_reports(parser: argparse.ArgumentParser, columns: str) -> None:
    group = parser.add_argument_group("reports", f"columns: {columns}")
    add = group.add_argument
    add("--report-total", action="store_true", help="report at the end")
    add("--report-every", type=values.whole("messages"), default=0, metavar="N", help="report after every N messages")
    add("--report-header", type=values.yes_no, default=True, metavar="yes|no", help="with a line of headers (yes)")
    add("--json", action="store_true", help="reports as JSON lines, with more in them")
    add("--event-log", metavar="FILE", help="append what the client sees as JSON lines; a directory gets segments")
    add("--log-enable", type=values.log_rule, metavar="LEVEL+", help="log to standard error: info+, debug+ ...")


def flag(default: bool) -> dict[str, Any]:
    """Arguments of an option that Qpid's tools take with and without yes or no."""
    return {"type": values.yes_no, "nargs": "?", "const": True, "default": default, "metavar": "yes|no"}


def make_reporter(options: argparse.Namespace, world: World, with_latency: bool) -> Reporter:
    return Reporter(
        out=world.out,
        clock=world.clock,
        every=options.report_every,
        total=options.report_total,
        header=options.report_header,
        as_json=options.json,
        with_latency=with_latency,
    )


# -- a run


def run(program: str, options: argparse.Namespace, make: Callable[[World], Work], limited: bool) -> int:
    """The exit code.  `limited`: a number of messages was asked for."""
    say = Complaints(program)
    with logged(options.log_enable), Signals() as signals:
        return _run(program, options, make, limited, say, signals)


def _run(
    program: str,
    options: argparse.Namespace,
    make: Callable[[World], Work],
    limited: bool,
    say: Complaints,
    signals: Signals,
) -> int:
    if options.failover_updates:
        say("--failover-updates has no effect: what brokers say of their cluster is always used")
    try:
        check_writable(options.event_log)
        connection = Connection(options.broker, **connection_options(program, options))
    except (ValueError, TypeError, OSError) as error:
        say(f"error: {' '.join(str(error).split())}")
        return USAGE
    work = make(World(signals.stopped, sys.stdout.buffer))
    code = _work(connection, work, signals, say, options)
    try:
        doubt = work.finish(connection.failovers)
    except BrokenPipeError:
        leave_output()
        code, doubt = code or FAILED, work.finish(connection.failovers)
    if doubt:
        say(f"{doubt} messages are in doubt: they may have had their effect or not")
        return IN_DOUBT if code in (OK, FAILED) else code
    if code == OK and signals.number and limited and not work.complete:
        return SIGNALLED + signals.number
    return code


def _work(connection: Connection, work: Work, signals: Signals, say: Complaints, options: argparse.Namespace) -> int:
    try:
        first_connect(connection, options.connection_options)
        work.prepare(connection)
        signals.begin()
        work.run()
        return OK
    except Interrupted:
        return SIGNALLED + signals.number
    except CheckFailed as error:
        say(f"{error}")
        return CHECK_FAILED
    except BrokenPipeError:
        leave_output()
        return FAILED
    except Exception as error:
        logging.getLogger("client_lib").debug("failed", exc_info=True)
        say(f"{type(error).__name__}: {' '.join(str(error).split())}")
        return FAILED
    finally:
        signals.begin()
        connection.close(1.0 if signals.number else PATIENCE)  # the work has waited already


def leave_output() -> None:
    """The reader of standard output has gone; a further write, for example at exit, would only add a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def logged(level: int | None) -> Iterator[None]:
    """Sends the library's log to standard error, from `level` on.  None: lost connections and the like, but not the
    errors that end the run, since the tool prints those itself."""
    if level is not None:
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        yield
        return
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.levelno == logging.WARNING or record.exc_info is not None)
    logger = logging.getLogger("client_lib")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class Complaints:
    """Lines on standard error."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, text: str) -> None:
        print(f"{self._program}: {text}", file=sys.stderr, flush=True)


def first_connect(connection: Connection, given: dict[str, Any]) -> None:
    """Raises ConnectError, Interrupted.  If a reconnect option is set, the reconnect options decide how long to try."""
    names = {name.replace("-", "_") for name in given}
    unlimited = bool(names & {"reconnect", "reconnect_timeout", "reconnect_limit"})
    try:
        connection.open(None if unlimited else FIRST_CONNECT)
    except Timeout as error:
        reason = f"{error}; {{reconnect:true}} tries for ever"
        raise ConnectError(reason) from None


def connection_options(program: str, options: argparse.Namespace) -> dict[str, Any]:
    given = {name.replace("-", "_"): value for name, value in options.connection_options.items()}
    if not given.keys() & {"client_id", "container_id"}:
        given["client_id"] = f"{program}-{os.getpid()}"
    if options.password_file is not None:
        given["password"] = _password_in(options.password_file)
    if options.event_log is not None:
        given["event_log"] = options.event_log
    return given


def _password_in(path: str) -> str:
    """Raises ValueError for a file that cannot be read, or has no password."""
    try:
        with open(path, encoding="utf-8") as lines:
            password = lines.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--password-file: cannot read {path}: {error}") from None
    if not password:
        raise ValueError(f"--password-file: {path} is empty, wanted a password")
    return password


def check_writable(path: str | None) -> None:
    """Makes the file, so that it is one file whatever its name.  Raises OSError."""
    if path is not None and not Path(path).is_dir():
        with open(path, "ab"):
            pass
