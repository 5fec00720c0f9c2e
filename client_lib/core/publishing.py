"""Writes a session's messages and books confirms and refusals (I/O thread unless stated otherwise).

With publisher confirms an entry stays in the outbox until its confirm.  In a transaction it leaves the outbox when it
is written, and is settled with the transaction.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol

from client_lib.connecting.transport import Transport
from client_lib.connecting.wire import content_frames, publish_method
from client_lib.core.outbox import Entry, Outbox, Outcome, mark_returned
from client_lib.core.resent import mark_resent
from client_lib.core.transaction import Transaction
from client_lib.errors import MessagingError, Rejected, Returned, SendError
from client_lib.event_runs import NOWHERE, Where
from client_lib.events import EventLog
from client_lib.message import Message
from client_lib.monitor import Monitor
from client_lib.properties import short_string

LOGGER = logging.getLogger("client_lib")
PUBLISH_CHUNK = 256  # messages written in one piece
PUBLISH_TURN = 2048  # messages written before the loop looks for input
BACKLOG_MAX = 4 << 20  # octets
METHOD_CACHE = 1024  # encoded basic.publish methods
HEADER_FRAME = 20 + 16  # octets of it that are no properties, and those that the header x-resent may add


class Failing(Protocol):
    """The part of a sender that this module uses."""

    failures: deque[SendError]


class Publishing:
    """One per session; `monitor` guards the outbox and the transaction."""

    def __init__(
        self, name: str, monitor: Monitor, events: EventLog, transaction: Transaction | None, frame_max: int = 131072
    ) -> None:
        self.name = name
        self.outbox = Outbox()
        self.failing: dict[Failing, None] = {}
        """Senders that may have failures that no call has raised."""
        self.sync_waiters = 0
        """The number of calls that wait for a certain message."""
        self.resent = 0
        """Unsettled entries that had been on the wire when a connection was lost."""
        self._monitor, self._events, self._transaction = monitor, events, transaction
        self._frame_max = frame_max
        self._where = NOWHERE
        self._producer = f"{name}-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count(1)
        self._where_to = ("", "")
        """Routing key and exchange of the last message."""
        self._methods: dict[tuple[str, str, bool], bytes] = {}

    def next_message_id(self) -> str:
        """May be called from any thread."""
        return f"{self._producer}:{next(self._numbers)}"

    def entry(
        self,
        message: Message,
        owner: Any,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        payload: bytes,
        body: bytes,
        message_id: str,
    ) -> Entry:
        """One publish, which can be encoded: afterwards there is no caller to raise an error to.  May be called from
        any thread.  Raises TypeError, ValueError."""
        where = self._where_to
        if where[0] is not routing_key or where[1] is not exchange:
            short_string(routing_key, "routing key")
            short_string(exchange, "exchange")
            self._where_to = routing_key, exchange
        if len(payload) > self._frame_max - HEADER_FRAME:
            raise ValueError(self._too_tall(payload))
        return Entry(message, owner, exchange, routing_key, mandatory, payload, body, message_id)

    def _too_tall(self, payload: bytes) -> str:
        return f"the properties have {len(payload)} octets, {self._frame_max - HEADER_FRAME} fit into a frame"

    # -- writing

    def new_channel(self, where: Where, frame_max: int) -> None:
        self._where = where
        self._methods.clear()  # the templates contain the channel's number
        smaller, self._frame_max = frame_max < self._frame_max, frame_max
        if smaller and self._transaction is None:
            self._refuse_tall()

    def _refuse_tall(self) -> None:
        """This broker takes smaller frames than we had assumed."""
        with self._monitor:
            entries = [e for e in self.outbox.entries() if len(e.payload) > self._frame_max - HEADER_FRAME]
            self.outbox.remove(entries)
            for entry in entries:
                entry.outcome, entry.error = Outcome.REJECTED, SendError(self._too_tall(entry.payload), entry.message)
            self.resent -= sum(entry.resent for entry in entries)
            self.settle(entries)
        self.report(entries)

    def write(self, transport: Transport, channel: int, later: Callable[[], None], limit: int | None = None) -> bool:
        """Writes waiting messages, with a `limit` at most so many; True if there is more to do at once.  If the socket
        is full it schedules itself with `later`."""
        for _ in range(PUBLISH_TURN // PUBLISH_CHUNK):
            if not self.outbox.waiting:
                return False
            if transport.backlog > BACKLOG_MAX:
                later()
                return False
            with self._monitor:
                self.write_next(transport, channel, limit or PUBLISH_CHUNK)
            if limit is not None:
                return False
        return self.outbox.waiting > 0

    def write_next(self, transport: Transport, channel: int, count: int) -> None:
        """Writes up to `count` waiting messages, from any thread (lock held: delivery tags count in the order of
        writing)."""
        if self._transaction is None:
            entries = self.outbox.send_next(count)
        else:
            entries = self._send_in_transaction(self._transaction, count)
        self._write(transport, channel, entries)

    def _send_in_transaction(self, transaction: Transaction, count: int) -> list[Entry]:
        entries = self.outbox.take_next(count)
        transaction.written(entries)
        wanted = False
        for entry in entries:
            wanted = bool(entry.owner.written(entry)) or wanted
        if wanted or not self.outbox.waiting:
            self._monitor.notify_all()
        return entries

    def _write(self, transport: Transport, channel: int, entries: list[Entry]) -> None:
        pieces: list[bytes] = []
        body_max, methods = transport.body_max, self._methods
        for entry in entries:
            if entry.resent:
                entry.payload = mark_resent(entry.payload)
            key = (entry.exchange, entry.routing_key, entry.mandatory)
            method = methods.get(key)
            if method is None:
                if len(methods) >= METHOD_CACHE:
                    methods.clear()
                method = methods[key] = publish_method(channel, *key)
            pieces.append(method)
            pieces += content_frames(channel, entry.payload, entry.body, body_max)
        if self._events.enabled:
            self._note("publish", entries)
        transport.write(b"".join(pieces))

    def _note(self, kind: str, entries: Iterable[Entry]) -> None:
        for (queue, resent), group in groupby(entries, key=lambda entry: (entry.routing_key, entry.resent)):
            name = "resend" if resent and kind == "publish" else kind
            self._events.messages(name, queue, [entry.message_id for entry in group], resent, self._where)

    # -- from the broker

    def confirmed(self, delivery_tag: int, multiple: bool, taken: bool) -> list[Entry]:
        """basic.ack and basic.nack (lock held).  Returns what must be reported without the lock."""
        entries = self.outbox.settled(delivery_tag, multiple)
        for entry in entries:
            if entry.resent:
                self.resent -= 1
            if taken and entry.returned is None:
                entry.outcome = Outcome.CONFIRMED
            else:
                self._refused(entry, taken)
        self.settle(entries)
        return entries

    def settle(self, entries: Iterable[Entry]) -> None:
        """Books entries whose outcome is known (lock held)."""
        wanted = self.sync_waiters > 0 or self.outbox.unsettled == 0
        for entry in entries:
            wanted = entry.owner.settled(entry) or wanted
        if wanted:
            self._monitor.notify_all()

    def committed(self, entries: list[Entry]) -> None:
        """The transaction of these entries was committed (lock held)."""
        for entry in entries:
            if entry.returned is None:
                entry.outcome = Outcome.CONFIRMED
            else:
                self._refused(entry, True)
        self.settle(entries)

    def give_up(self, entries: list[Entry], error: MessagingError) -> None:
        """These entries failed, or their outcome is unknown (lock held)."""
        for entry in entries:
            entry.outcome, entry.error = Outcome.FAILED, error
        self.settle(entries)

    def _refused(self, entry: Entry, taken: bool) -> None:
        if entry.returned is not None:
            entry.outcome, entry.error = Outcome.RETURNED, Returned(*entry.returned, entry.message)
        elif not taken:
            entry.outcome = Outcome.REJECTED
            entry.error = Rejected(f"the broker did not take {entry.message_id} (basic.nack)", entry.message)

    def returned(self, method: Any, properties: Any) -> None:
        """basic.return (lock held)."""
        where = (properties.message_id, method.reply_code, method.reply_text)
        if self._transaction is None:
            self.outbox.returned(*where)
        else:
            mark_returned(self._transaction.published, *where)

    def next_failure(self) -> SendError | None:
        """The oldest failure of a sender; it will not be raised again (lock held)."""
        while self.failing:
            failures = next(iter(self.failing)).failures
            if failures:
                return failures.popleft()
            del self.failing[next(iter(self.failing))]
        return None

    # -- the end of a channel

    def unsettled(self) -> list[Entry]:
        """Oldest first (lock held)."""
        published = [] if self._transaction is None else self._transaction.published
        return [*published, *self.outbox.entries()]

    def withdraw(self) -> list[Entry]:
        """Gives up waiting messages, which will not be sent (lock held; in a transaction)."""
        entries = self.outbox.discard()
        for entry in entries:
            entry.owner.written(entry)  # booked together with those that were sent
        return entries

    def end(self, error: MessagingError) -> list[Entry]:
        """The session ends (lock held).  Returns what must be reported."""
        if self._transaction is None:
            entries = self.outbox.discard()
        else:
            entries = [*self._transaction.published, *self.withdraw()]
            self._transaction.published = []
        self.give_up(entries, error)
        self.resent = 0
        return entries

    def connection_lost(self) -> int:
        """Lock held.  Returns how many had been sent and not confirmed."""
        count = self.outbox.connection_lost()
        self.resent = self.outbox.resent
        return count

    def report(self, entries: Iterable[Entry]) -> None:
        """Informs the event log and the application (without the lock)."""
        if self._events.enabled:
            self._note("confirm", (entry for entry in entries if entry.outcome is Outcome.CONFIRMED))
        for entry in entries:
            if entry.outcome in (Outcome.RETURNED, Outcome.REJECTED):
                kind = "return" if entry.outcome is Outcome.RETURNED else "nack"
                where, reason = self._where.fields(), str(entry.error)
                self._events.fact(kind, queue=entry.routing_key, msg_id=entry.message_id, reason=reason, **where)
                LOGGER.warning("%s: %s was not taken: %s", self.name, entry.message_id, reason)
            try:
                entry.owner.report(entry)
            except Exception:
                LOGGER.exception("%s: on_settled raised for %s", self.name, entry.message_id)
