"""`qpid-send`: sends messages to an address, over any number of fail-overs.  Shell around `Sending`.

Transactions: `--tx N` commits after N messages.  When a fail-over aborts a transaction its messages are sent again in a
new one; when the outcome of a commit is unknown the tool ends, and those N messages are in doubt.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from client_lib.cli import common, values
from client_lib.cli.common import PATIENCE, SLICE, Pace, World
from client_lib.cli.production import Content, Production, contents, lines
from client_lib.connection import Connection
from client_lib.errors import (
    InsufficientCapacity,
    MessagingError,
    SendError,
    Timeout,
    TransactionAborted,
    TransactionUnknown,
)
from client_lib.message import Message

PROGRAM = "qpid-send"
DESCRIPTION = """\
Send messages to an address and wait for their confirms.  A message is kept until it is confirmed; after a fail-over
it is sent again, so that none is lost and a few may come twice (with the header x-resent)."""
EXAMPLES = """\
  qpid-send -b node1,node2,node3 -a "orders; {create: always}" --content-string hello --durable
  qpid-send -b node1,node2,node3 -a orders -m 0 --send-rate 100 --report-every 1000 --report-total
  tail -F app.log | qpid-send -a logs --content-stdin --event-log events.jsonl"""


def make_parser() -> argparse.ArgumentParser:
    parser = common.make_parser(PROGRAM, DESCRIPTION, EXAMPLES)
    _add_amount(parser)
    _add_properties(parser)
    _add_content(parser)
    _add_groups(parser)
    common.add_reports(parser, "tp(m/s), messages a second")
    return parser


def _add_amount(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how many, how fast").add_argument
    add("-m", "--messages", type=values.whole("messages"), metavar="N",
        help="0 = until a signal comes (default 1; with --content-stdin all lines)")  # fmt: skip
    add("--send-rate", type=values.decimal("messages a second"), default=0.0, metavar="N",
        help="messages a second (0 = as fast as possible)")  # fmt: skip
    add("--capacity", type=values.whole("messages", 1), default=1000, metavar="N",
        help="messages that may be unconfirmed (%(default)s)")  # fmt: skip
    add(
        "--tx",
        type=values.whole("messages"),
        default=0,
        metavar="N",
        help="a transaction for every N messages (0 = none)",
    )
    add("--rollback-frequency", type=values.whole("transactions"), default=0, metavar="N",
        help="roll back every Nth transaction instead of committing it (0 = none)")  # fmt: skip
    add("--send-eos", type=values.whole("messages"), default=0, metavar="N",
        help="at the end N messages that tell qpid-receive to end")  # fmt: skip


def _add_properties(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("properties").add_argument
    add("--durable", **common.flag(False), help="the messages survive a restart of the broker (no)")
    add("--ttl", type=values.whole("milliseconds"), metavar="MS", help="time to live (0 = for ever)")
    add("--priority", type=values.whole("a priority", 0, 255), metavar="N", help="0 to 255; most queues know 0 to 9")
    add("-P", "--property", type=values.name_value, action="append", default=[], metavar="NAME=VALUE",
        help="a header; numbers and true/false become what they look like (repeatable)")  # fmt: skip
    add("--id", metavar="TEXT", help="message id; of several messages TEXT:1, TEXT:2 ... (default: generated)")
    add("--reply-to", metavar="ADDRESS", help="where answers go")
    add("--correlation-id", metavar="TEXT", help="which request this answers")
    add("--user-id", metavar="NAME", help="brokers refuse another than the one that logged in")
    add("--subject", metavar="TEXT", help="the routing key, where the address leaves it open")
    add("--sequence", **common.flag(True), help="number the messages from 1 in the header sn (yes)")
    add("--timestamp", **common.flag(True), help="header ts: ns since 1970, for latencies (yes)")


def _add_content(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("content")
    add = group.add_mutually_exclusive_group().add_argument
    add("--content-string", metavar="TEXT", help="the content of every message")
    add("--content-size", type=values.whole("octets"), default=1024, metavar="N", help="N times X (%(default)s)")
    add("--content-stdin", action="store_true", help="each line of standard input is a message")
    add("-M", "--content-map", type=values.name_value, action="append", default=[], metavar="NAME=VALUE",
        help="an entry of a map, typed as with -P (repeatable)")  # fmt: skip
    group.add_argument("--content-type", metavar="TYPE", help="as text/plain (default: what the content is)")


def _add_groups(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("message groups").add_argument
    add("--group-key", metavar="NAME", help="put messages into groups, named in this header")
    add("--group-prefix", default="GROUP-", metavar="TEXT", help="names of groups begin with (%(default)s)")
    add("--group-size", type=values.whole("messages", 1), default=10, metavar="N", help="messages of one (%(default)s)")
    add("--group-randomize-size", **common.flag(False), help="1 to --group-size messages of one, by chance (no)")
    add("--group-interleave", type=values.whole("groups", 1), default=1, metavar="N",
        help="groups that are sent in turns (%(default)s)")  # fmt: skip


class Tally:
    """Counts the outcomes of the messages; `settled` is called in the I/O thread, all else in the main thread."""

    def __init__(self) -> None:
        self.sent = self.confirmed = self.refused = self.committed = self.rolled_back = self.repeated = 0
        self.error: MessagingError | None = None

    def settled(self, _message: Message, _message_id: str, error: MessagingError | None) -> None:
        if error is None:
            self.confirmed += 1
        elif isinstance(error, SendError):
            self.refused += 1
            self.error = self.error or error

    @property
    def pending(self) -> int:
        return self.sent - self.confirmed - self.refused


class Sending:
    """The work: `source` yields contents, and None while there is nothing yet."""

    def __init__(self, options: argparse.Namespace, world: World, source: Iterable[Content | None]) -> None:
        self.complete = False
        self.tally = Tally()
        self._options, self._world, self._source = options, world, source
        self._production = Production(options, world.wall_ns, random.Random())
        self._reporter = common.make_reporter(options, world, with_latency=False)
        self._transactions = 0
        self._open: list[Message] = []  # in the present transaction
        self._unknown = 0
        self._session: Any = None
        self._sender: Any = None

    def prepare(self, connection: Connection) -> None:
        options = self._options
        self._session = connection.session(transactional=True) if options.tx else connection.session()
        self._sender = self._session.sender(options.address, capacity=options.capacity, on_settled=self.tally.settled)

    def run(self) -> None:
        self._reporter.begin()
        self._send_all()
        for _ in range(self._options.send_eos):
            self._send(self._production.end_of_stream())
        if self._open:
            self._end_transaction()
        self._settle()
        self._reporter.end()
        if self.tally.error is not None:
            raise self.tally.error

    def finish(self, failovers: int) -> int:
        self._reporter.end()
        tally = self.tally
        # Messages of a transaction that was never committed were not sent.
        doubt = self._unknown if self._options.tx else tally.pending
        confirmed = tally.committed - tally.refused if self._options.tx else tally.confirmed
        facts = {name: getattr(tally, name) for name in ("sent", "refused", "rolled_back", "repeated")}
        self._reporter.print_total(confirmed=confirmed, in_doubt=doubt, failovers=failovers, **facts)
        return doubt

    # -- sending

    def _send_all(self) -> None:
        pace, done = Pace(self._options.send_rate, self._world.clock()), 0
        for content in self._source:
            if content is not None:
                self._world.keep_pace(pace, done)
            if self._world.stopped() or self.tally.error is not None:
                return
            if content is None:
                continue
            if not self._send(self._production.message(content)):
                return
            self._reporter.message()
            done += 1
            if done == self._options.messages:
                break
        self.complete = True

    def _send(self, message: Message) -> bool:
        """False: a signal arrived before there was room for the message."""
        if self._options.tx:
            self._open.append(message)
            self._write([message])
        elif not self._put(message):
            return False
        self.tally.sent += 1
        if self._options.tx and len(self._open) == self._options.tx:
            self._end_transaction()
        return True

    def _put(self, message: Message) -> bool:
        while True:
            try:
                self._sender.send(message, sync=False, timeout=SLICE)
                return True
            except InsufficientCapacity:
                if self._world.stopped():
                    return False

    def _settle(self) -> None:
        """Waits for the confirms; after a signal for a limited time."""
        last: float | None = None
        while not self._options.tx and self.tally.pending > 0:
            if self._world.stopped():
                last = last or self._world.clock() + PATIENCE
                if self._world.clock() >= last:
                    return
            try:
                self._session.sync(SLICE)
                self._world.sleep(0.001)  # everything is confirmed; the I/O thread may still be calling `settled`
            except Timeout:
                pass

    # -- transactions

    def _write(self, messages: Sequence[Message]) -> None:
        """Sends a transaction that a fail-over aborted again, from its first message."""
        while True:
            try:
                for message in messages:
                    self._put(message)
                return
            except TransactionAborted:
                messages = self._aborted()

    def _aborted(self) -> Sequence[Message]:
        self._session.rollback()
        self.tally.repeated += len(self._open)
        return self._open

    def _end_transaction(self) -> None:
        self._transactions += 1
        every = self._options.rollback_frequency
        if every and self._transactions % every == 0:
            self._session.rollback()
            self.tally.rolled_back += len(self._open)
        else:
            self._commit()
            self.tally.committed += len(self._open)
        self._open = []

    def _commit(self) -> None:
        while True:
            try:
                self._session.commit()
                return
            except TransactionAborted:
                self._write(self._aborted())
            except TransactionUnknown:
                self._unknown = len(self._open)
                raise


def make(options: argparse.Namespace, world: World) -> Sending:
    source: Iterable[Content | None] = lines(sys.stdin.fileno(), SLICE) if options.content_stdin else contents(options)
    return Sending(options, world, source)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    if options.messages is None:
        options.messages = 0 if options.content_stdin else 1
    return common.run(PROGRAM, options, lambda world: make(options, world), limited=options.messages > 0)


if __name__ == "__main__":
    sys.exit(main())
