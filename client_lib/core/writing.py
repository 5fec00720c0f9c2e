"""What is written to a ready channel, and in which order (I/O thread).

Decisions made before a command are written before it, also if both arrived while this ran: a basic.get after a release
expects the message back, and a fence covers the acknowledgements before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client_lib.connecting.transport import Transport
from client_lib.connecting.wire import ack, flow_ok
from client_lib.core.commands import Commands
from client_lib.core.deliveries import Deliveries
from client_lib.core.ledger import Disposition
from client_lib.core.publishing import Publishing
from client_lib.core.transacting import Transacting
from client_lib.core.transaction import Phase, Transaction
from client_lib.link.suspects import Request
from client_lib.monitor import Monitor


class Writing:
    """One per session.  `wake` asks for another `flush` at once, `wake_later` for one in a moment."""

    def __init__(
        self,
        monitor: Monitor,
        commands: Commands,
        publishing: Publishing,
        deliveries: Deliveries,
        transaction: Transaction | None,
        wake: Callable[[], None],
        wake_later: Callable[[], None],
        wake_others: Callable[[], None],
    ) -> None:
        self.flowing = True
        """False while the broker asks for a pause (channel.flow), and when it has closed the channel."""
        self.transacting: Transacting | None = None
        if transaction is not None:
            self.transacting = Transacting(transaction, publishing, deliveries, monitor)
        self._monitor, self._commands, self._transaction = monitor, commands, transaction
        self._publishing, self._deliveries = publishing, deliveries
        self._wake, self._wake_later, self._wake_others = wake, wake_later, wake_others

    @property
    def request(self) -> Request | None:
        """The oldest that is not answered."""
        entry, command = self._publishing.outbox.oldest_in_flight, self._commands.oldest
        if self._transaction is not None:
            entry = self._transaction.unproven
            if entry is None and self._transaction.phase is Phase.COMMIT_SENT:
                return Request(self._transaction, "tx.commit")
        if entry is not None:
            return Request(self._transaction or entry, "a message", entry.message)
        return None if command is None else Request(command, command.what)

    @property
    def only_a_command(self) -> bool:
        """The only request is a command."""
        request, single = self.request, self._commands.single
        return request is not None and single is not None and request.key is single

    @property
    def waiting(self) -> bool:
        """There are requests to be sent."""
        ending = self._transaction is not None and self._transaction.ending
        return ending or self._commands.waiting or self._publishing.outbox.waiting > 0

    def flush(self, channel: Any, transport: Transport, ready: Callable[[], bool], limit: int | None = None) -> bool:
        """Writes acknowledgements, commands, messages, while `ready`.  True if there is more to do at once.  `limit` is
        that of unanswered requests."""
        self.send_settlements(channel, transport)
        if limit is not None:
            self._send_one(channel, transport, limit)
            return False
        while self._commands.waiting and ready():
            self.send_settlements(channel, transport)
            self._commands.start(channel, self._answered)
        if not ready():
            return False
        more = self._send_messages(channel, transport)
        if self._transaction is not None and self._transaction.ending and ready():
            self._end_transaction(channel)
        return more

    def write_now(self, channel: Any, transport: Transport) -> bool:
        """Writes the only message that waits, in the thread that has added it (lock held).  False if something else
        has to be written first, or nothing may be: that is for the I/O thread."""
        if self._commands.waiting or not self._may_publish(transport) or transport.backlog:
            return False
        if self._publishing.outbox.waiting != 1:
            return False
        self.send_settlements(channel, transport)
        self._publishing.write_next(transport, int(channel), 1)
        return True

    def _send_one(self, channel: Any, transport: Transport, limit: int) -> None:
        """At most one request, when nothing is unanswered."""
        if self.request is not None:
            self._prove(channel)
        elif limit and self._commands.waiting:
            self._commands.start(channel, self._answered)
        elif limit and self._publishing.outbox.waiting:
            self._send_messages(channel, transport, limit)
            self._prove(channel)
        elif limit and self._transaction is not None and self._transaction.ending:
            self._end_transaction(channel)

    def _prove(self, channel: Any) -> None:
        """Asks for an answer that comes when the broker has read the messages of the transaction."""
        if self._transaction is None or self._transaction.unproven is None or self._commands.oldest is not None:
            return
        transaction, published = self._transaction, self._transaction.published
        count = len(published)

        def proven() -> None:
            if published is transaction.published:
                transaction.proven = count
            self._answered()

        with self._monitor:
            self._commands.add(lambda channel, done: channel.basic_qos(callback=done), "basic.qos", first=True)
        self._commands.start(channel, proven)

    def _answered(self) -> None:
        self._wake_others()
        if self._transaction is not None and self._transaction.ending:
            self._wake()  # it waits until nothing else is outstanding

    def _end_transaction(self, channel: Any) -> None:
        # The channel holds a method back while another one waits for its answer, so nothing else may be outstanding
        if self.transacting is not None and self._commands.quiet:
            generation = self._deliveries.generation
            self.transacting.write(channel, lambda: generation == self._deliveries.generation, self._wake)

    def send_settlements(self, channel: Any, transport: Transport) -> None:
        if not self._deliveries.undecided:
            return
        if self._transaction is not None and self._transaction.phase is Phase.COMMIT_SENT:
            return  # they belong to the next one
        with self._monitor:
            methods = self._deliveries.take()
            for settle in methods:
                if settle.disposition is Disposition.ACCEPT:
                    transport.write(ack(int(channel), settle.delivery_tag, settle.multiple))
                else:
                    channel.basic_reject(settle.delivery_tag, requeue=settle.disposition is Disposition.RELEASE)
            if methods:
                self._monitor.notify_all()

    def flow(self, channel: Any, transport: Transport, active: bool, ready: Callable[[], bool]) -> None:
        """The broker asks for a pause before a planned switch-over: when it gets our answer it has read everything we
        sent.  Acknowledgements are written first; publishing resumes when the broker allows it, or on another
        connection."""
        with self._monitor:  # no thread publishes between the two
            self.flowing = active
            if not active and ready():
                self.send_settlements(channel, transport)
            transport.write(flow_ok(int(channel), active))
        if active:
            self._wake()

    def _send_messages(self, channel: Any, transport: Transport, limit: int | None = None) -> bool:
        if not self._may_publish(transport):
            return False
        return self._publishing.write(transport, int(channel), self._wake_later, limit)

    def _may_publish(self, transport: Transport) -> bool:
        return self.flowing and not transport.blocked
