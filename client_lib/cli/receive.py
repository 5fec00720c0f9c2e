"""`qpid-receive`: receives and acknowledges messages of an address, over any number of fail-overs.  Shell around
`Receiving`.

Messages are printed before they are acknowledged.  Messages that were printed and not acknowledged when a connection is
lost are delivered again; --ignore-duplicates keeps them from being counted and printed twice (except those of an
aborted transaction, which had not been received), and lets the tool continue when the outcome of a commit is unknown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from client_lib.cli import common, show, values
from client_lib.cli.common import PATIENCE, SLICE, Pace, World
from client_lib.cli.production import EOS, TS
from client_lib.cli.sequence import SequenceTracker
from client_lib.connection import Connection
from client_lib.errors import Timeout, TransactionAborted, TransactionUnknown
from client_lib.message import Message

PROGRAM = "qpid-receive"
DESCRIPTION = """\
Receive messages of an address, print and acknowledge them.  A fail-over is not an end; what had not been
acknowledged before comes again, marked as redelivered."""
EXAMPLES = """\
  qpid-receive -b node1,node2,node3 -a orders -f --ignore-duplicates --check-redelivered
  qpid-receive -a orders -m 1000 --timeout 10 --print-content no --report-total --json
  qpid-receive -a "orders; {mode: browse}" --print-headers yes"""

EMPTY_AFTER = 0.5
"""Seconds without a message after which `--timeout 0` calls a queue empty: AMQP 0-9-1 cannot ask for the rest of it."""
CAPACITY_MAX = 65535


def make_parser() -> argparse.ArgumentParser:
    parser = common.make_parser(PROGRAM, DESCRIPTION, EXAMPLES)
    _add_amount(parser)
    _add_checks(parser)
    _add_output(parser)
    common.add_reports(parser, "tp(m/s), messages a second; l-min l-max l-avg, latency in ms by the header ts")
    return parser


def _add_amount(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how many, how long, how fast").add_argument
    add("-m", "--messages", type=values.whole("messages"), default=0, metavar="N", help="end after N (0 = no limit)")
    add("--timeout", type=values.decimal("seconds"), default=0.0, metavar="SECONDS",
        help=f"end when no message has come for so long, while connected (0 = when there are none, seen after "
             f"{EMPTY_AFTER:g} s)")  # fmt: skip
    add("-f", "--forever", action="store_true", help="do not end for want of messages")
    add("--capacity", type=values.whole("messages", 1, CAPACITY_MAX), default=1000, metavar="N",
        help="messages that the broker may send ahead (%(default)s)")  # fmt: skip
    add("--ack-frequency", type=values.whole("messages"), default=100, metavar="N",
        help="acknowledge after N, and when there are no more (%(default)s); 0 = never, they stay")  # fmt: skip
    add("--tx", type=values.whole("messages", 0, CAPACITY_MAX), default=0, metavar="N",
        help="a transaction for every N messages (0 = none)")  # fmt: skip
    add("--rollback-frequency", type=values.whole("transactions"), default=0, metavar="N",
        help="roll back every Nth transaction instead of committing it (0 = none)")  # fmt: skip
    add("--receive-rate", type=values.decimal("messages a second"), default=0.0, metavar="N",
        help="messages a second (0 = as fast as possible)")  # fmt: skip


def _add_checks(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("checks, by the header sn and the message id").add_argument
    add("--ignore-duplicates", action="store_true", help="acknowledge what came before and do not count or print it")
    add("--verify-sequence", action="store_true", help="a number that is left out is an error")
    add("--check-redelivered", action="store_true",
        help="a duplicate must be marked as redelivered, or as sent again by its sender")  # fmt: skip


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add("--print-content", type=values.yes_no, default=True, metavar="yes|no", help="content to standard output (yes)")
    add("--print-headers", type=values.yes_no, default=False, metavar="yes|no", help="with the headers before it (no)")
    add("--print-object-type", type=values.yes_no, default=False, metavar="yes|no",
        help="with binary, text, map or list before it (no)")  # fmt: skip
    add("--ready-address", metavar="ADDRESS", help="send a message there when ready to receive")
    add("--reply", action="store_true", help="send each message that asks for a reply back to its reply-to address")


class Receiving:
    """The work."""

    def __init__(self, options: argparse.Namespace, world: World) -> None:
        self.complete = False
        self.received = self.duplicates = 0
        self._options, self._world = options, world
        self._tracker = SequenceTracker(options.verify_sequence, options.check_redelivered)
        self._tracks = options.ignore_duplicates or options.verify_sequence or options.check_redelivered
        self._reporter = common.make_reporter(options, world, with_latency=True)
        self._open = 0  # fetched and not acknowledged, or in the present transaction
        self._counted = 0  # of those in the present transaction
        self._transactions = 0
        self._unknown = 0
        self._window = self._capacity()
        self._flushed = world.clock()
        self._repliers: dict[str, Any] = {}
        self._connection: Any = None
        self._session: Any = None
        self._receiver: Any = None

    def prepare(self, connection: Connection) -> None:
        options = self._options
        self._connection = connection
        self._session = connection.session(transactional=True) if options.tx else connection.session()
        self._receiver = self._session.receiver(options.address, capacity=self._window)
        if options.ready_address is not None:
            connection.session().sender(options.ready_address).send(Message(b"", durable=False))

    def _capacity(self) -> int:
        """Not more than requested, since the rest goes back to the queue as redelivered; but enough that the broker
        does not wait for acknowledgements while we wait for messages."""
        options = self._options
        if not options.ack_frequency and not options.tx:
            return CAPACITY_MAX
        wanted: int = min(options.capacity, options.messages) if options.messages else options.capacity
        return max(wanted, int(options.tx))

    def run(self) -> None:
        self._reporter.begin()
        pace = Pace(self._options.receive_rate, self._world.clock())
        done = False
        while not done:
            try:
                self._receive(pace)
                self._end()
                done = True
            except TransactionAborted:
                self._undo()
                done = self._world.stopped()
        self._reporter.end()

    def _receive(self, pace: Pace) -> None:
        while not self.complete:
            self._world.keep_pace(pace, self.received)
            message = self._fetch()
            if message is None:
                return
            self._handle(message)

    def finish(self, failovers: int) -> int:
        self._reporter.end()
        self._reporter.print_total(
            received=self.received, duplicates=self.duplicates, in_doubt=self._unknown, failovers=failovers
        )
        return self._unknown

    # -- receiving

    def _fetch(self) -> Message | None:
        """None: no message within the timeout, or a signal.  The time of an outage does not count."""
        limit = max(self._options.timeout, EMPTY_AFTER)
        quiet_since = self._world.clock()
        while not self._world.stopped():
            left = limit - (self._world.clock() - quiet_since)
            if left <= 0 and not self._options.forever:
                return None
            message: Message | None = self._receiver.poll(SLICE if self._options.forever else min(SLICE, left))
            if message is not None:
                return message
            self._idle()
            if not self._connection.is_connected:
                quiet_since = self._world.clock()
        return None

    def _idle(self) -> None:
        self._flush()
        if self._open and self._options.ack_frequency and not self._options.tx:
            self._acknowledge()

    def _handle(self, message: Message) -> None:
        duplicate = self._tracks and self._tracker.is_duplicate(message)
        self.duplicates += duplicate
        self._open += 1
        if message.body == EOS:
            self.complete = True
        elif not (duplicate and self._options.ignore_duplicates):
            self._count(message)
        self._settle()

    def _count(self, message: Message) -> None:
        self.received += 1
        self._counted += 1
        self._reporter.message(self._latency(message))
        self._print(message)
        if self._world.clock() - self._flushed >= SLICE:  # a slow stream should be visible at once
            self._flush()
        if self._options.reply and message.reply_to:
            self._reply(message)
        if self.received == self._options.messages:
            self.complete = True

    def _latency(self, message: Message) -> float | None:
        """In ms."""
        sent = message.properties.get(TS)
        return (self._world.wall_ns() - sent) / 1e6 if isinstance(sent, int) else None

    def _print(self, message: Message) -> None:
        options, out = self._options, self._world.out
        if options.json:
            if options.print_headers or options.print_content:
                out.write(show.as_json(message, options.print_headers, options.print_content).encode() + b"\n")
            return
        if options.print_headers:
            out.write(show.headers(message).encode())
        if options.print_object_type:
            out.write(f"Object: {show.object_type(message)}\n".encode())
        if options.print_content:
            out.write(show.content(message) + b"\n")

    def _flush(self) -> None:
        self._flushed = self._world.clock()
        self._world.out.flush()

    def _reply(self, message: Message) -> None:
        address = str(message.reply_to)
        if address not in self._repliers:
            self._repliers[address] = self._session.sender(address)
        answer = Message(message.body, content_type=message.content_type, durable=message.durable)
        answer.correlation_id, answer.properties = message.correlation_id or message.id, dict(message.properties)
        self._repliers[address].send(answer, sync=False)

    # -- acknowledging

    def _settle(self) -> None:
        options = self._options
        if options.tx:
            if self._open >= options.tx:
                self._end_transaction()
        elif options.ack_frequency and self._open >= min(options.ack_frequency, self._window):
            self._acknowledge()
        elif not options.ack_frequency:
            self._tracker.keep()

    def _acknowledge(self) -> None:
        """Prints before acknowledging: an acknowledged message cannot be received again."""
        self._flush()
        self._session.acknowledge(sync=False)
        self._tracker.keep()
        self._open = 0

    def _end_transaction(self) -> None:
        self._flush()
        self._transactions += 1
        every = self._options.rollback_frequency
        if every and self._transactions % every == 0:
            self._session.rollback()  # counted nevertheless, as in Qpid's tool; they are delivered again as duplicates
        else:
            self._commit()
        self._tracker.keep()
        self._open = self._counted = 0

    def _commit(self) -> None:
        self._session.acknowledge(sync=False)
        try:
            self._session.commit()
        except TransactionUnknown:
            if self._options.ignore_duplicates and not self.complete:
                return  # if the commit did not happen, the messages are delivered again and recognized
            self._unknown = self._open
            raise

    def _undo(self) -> None:
        """A fail-over aborted the transaction: its messages are delivered again and count as new."""
        self._session.rollback()
        self._tracker.undo()
        self.received -= self._counted
        self.complete = False
        self._open = self._counted = 0

    def _end(self) -> None:
        """Acknowledges the rest and waits, for a limited time, until that is written."""
        if self._options.tx and self._open:
            self._end_transaction()
        elif self._open and self._options.ack_frequency:
            self._acknowledge()
        self._flush()
        last = self._world.clock() + PATIENCE
        while self._world.clock() < last:
            try:
                self._session.sync(SLICE)
                return
            except Timeout:
                pass


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return common.run(PROGRAM, options, lambda world: Receiving(options, world), limited=options.messages > 0)


if __name__ == "__main__":
    sys.exit(main())
