"""The life of a session's channel, and all that the I/O thread does on it (shell).

Theory.  States, all changes made by the I/O thread:

    LOST --open_on--> OPENING --select-ok--> RESTORING --last ok--> READY
      ^                  |                      |                     |
      +------------------+--- connection_lost --+---------------------+
      any -> FAILED (channel closed by the broker; the connection gave up)      any -> CLOSED (by the application)

* Restoring: the declared topology in its order, then the receivers, then the commands and messages that wait, oldest
  first.  Restoring uses no-wait except for the last step, so it costs few round trips.  If the broker closes the
  channel meanwhile (a queue is still locked by the connection we lost, or not there yet) it is tried again for
  `restore_timeout` seconds.
* `generation` counts channels.  A delivery tag means something only together with the generation it came in; callbacks
  of older generations are ignored.
* While the broker asks us to pause (connection.blocked, channel.flow) messages wait; everything else goes on.
* A confirmed message was taken by the broker.  An unconfirmed one is sent again, same id, header `x-resent`: it may
  arrive twice.  Acknowledgements for deliveries of a lost connection are dropped: those messages come again.
* Lock: `condition` guards everything here except `channel` and `transport`, which belong to the I/O thread.  Neither
  the application's callbacks nor pika are called with it held.  No other lock of ours is taken inside it except the
  event log's, which takes none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from client_lib.errors import ClientError, Closed, ReceiverCancelled, Rejected, Returned, SessionFailed
from client_lib.ledger import Disposition, Ledger, Settle
from client_lib.message import Message, received
from client_lib.outbox import Entry, Outbox, Outcome
from client_lib.receiver import Delivery, Receiver
from client_lib.transport import ChannelClosed, Transport, content_frames, flow_ok, publish_method

if TYPE_CHECKING:
    from client_lib.connection import Connection

LOGGER = logging.getLogger("client_lib")
RESTORE_INTERVAL = 0.1  # seconds
PUBLISH_CHUNK = 256  # messages written in one piece
PUBLISH_TURN = 2048  # messages written before the loop looks for input
BACKLOG_MAX = 4 << 20  # octets
METHOD_CACHE = 1024  # encoded basic.publish methods


class State(Enum):
    LOST = "lost"
    OPENING = "opening"
    RESTORING = "restoring"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True)
class Declaration:
    """A piece of topology: a method of pika's channel and its arguments."""

    method: str
    arguments: dict[str, Any]

    def concerns(self, kind: str, name: str) -> bool:
        """Is this about the queue or exchange `name`?"""
        keys = ("queue",) if kind == "queue" else ("exchange", "source", "destination")
        return any(self.arguments.get(key) == name for key in keys)


@dataclass(eq=False)
class Command:
    """Something to be done once on a ready channel; done again if the connection is lost before the answer."""

    run: Callable[[Any, Callable[[Any], None]], None]
    future: Future[Any] = field(default_factory=Future)


class ChannelWorker:
    """The part of a session that belongs to the I/O thread; `client_lib.session` adds the part for applications."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self.condition = threading.Condition()
        self.events = connection.events
        self.outbox = Outbox()
        self.fetched: OrderedDict[Delivery, Message] = OrderedDict()
        self.sync_waiters = 0
        self.state = State.LOST
        self.generation = 0
        self._connection = connection
        self._ledger = Ledger()
        self._receivers: dict[str, Receiver] = {}
        self._topology: list[Declaration] = []
        self._commands: deque[Command] = deque()
        self._outstanding: list[Command] = []
        self._error: ClientError | None = None
        self._channel: Any = None
        self._transport: Transport | None = None
        self._restore_deadline = 0.0
        self._methods: dict[tuple[str, str, bool], bytes] = {}
        self._flowing = True

    # -- from any thread

    def wake(self) -> None:
        self._connection.wake()

    def check(self) -> None:
        """Raises what ended the session, if anything did."""
        if self._error is not None:
            raise self._error

    def settle_tag(self, generation: int, delivery_tag: int, disposition: Disposition) -> bool:
        """False for a delivery of a channel that is gone (lock held)."""
        if generation != self.generation or not self._ledger.settle(delivery_tag, disposition):
            return False
        self.wake()
        return True

    # -- the I/O thread: life of a channel

    def open_on(self, transport: Transport) -> None:
        """The connection is there: open a channel on it."""
        with self.condition:
            if self.state in (State.FAILED, State.CLOSED):
                return
            self._reset(State.OPENING)
            generation = self.generation
        self._transport = transport
        self._restore_deadline = time.monotonic() + self._connection.options.restore_timeout
        self._open_channel(generation)

    def _open_channel(self, generation: int) -> None:
        if generation != self.generation or self._transport is None or self.state is not State.OPENING:
            return

        def opened(channel: Any) -> None:
            if generation != self.generation:
                return
            channel.add_on_return_callback(
                lambda _channel, method, properties, _body: self._returned(method, properties)
            )
            channel.add_on_cancel_callback(self._cancelled)
            channel.add_on_flow_callback(lambda frame: self._flow(generation, frame.method.active))
            try:
                channel.confirm_delivery(
                    lambda frame: self._confirmed(generation, frame.method),
                    callback=lambda _ok: self._restore(generation),
                )
            except Exception as error:  # the broker knows no publisher confirms
                self.fail(SessionFailed(540, str(error)))

        self._flowing = True
        self._channel = self._transport.channel(on_open_callback=opened)
        self._channel.add_on_close_callback(lambda _channel, reason: self._channel_closed(generation, reason))
        self._methods.clear()

    def _restore(self, generation: int) -> None:
        if generation != self.generation:
            return
        with self.condition:
            self.state = State.RESTORING
            topology, receivers = list(self._topology), list(self._receivers.values())
        channel = self._channel

        def ready(_frame: Any = None) -> None:
            if generation == self.generation:
                self._ready()

        for index, declared in enumerate(topology):
            last = index == len(topology) - 1 and not receivers
            getattr(channel, declared.method)(**declared.arguments, callback=ready if last else None)
        for index, receiver in enumerate(receivers):
            self._subscribe(channel, receiver, ready if index == len(receivers) - 1 else None)
        if not topology and not receivers:
            ready()

    def _ready(self) -> None:
        with self.condition:
            self.state = State.READY
            self.condition.notify_all()
        self.flush()

    def _channel_closed(self, generation: int, reason: Exception) -> None:
        """The channel ended while the connection lives, or with it; the latter is connection_lost's affair."""
        if generation != self.generation or not isinstance(reason, ChannelClosed):
            return
        restoring = self.state in (State.OPENING, State.RESTORING)
        if restoring and time.monotonic() < self._restore_deadline:
            LOGGER.info("%s: restoring failed, trying again: %s", self.name, reason)
            with self.condition:
                self._reset(State.OPENING)
                again = self.generation
            self._connection.call_later(RESTORE_INTERVAL, lambda: self._open_channel(again))
            return
        self.fail(SessionFailed(reason.reply_code, reason.reply_text))

    def connection_lost(self) -> int:
        """Returns how many messages had been sent and not confirmed."""
        with self.condition:
            if self.state in (State.FAILED, State.CLOSED):
                return 0
            return self._reset(State.LOST)

    def _reset(self, state: State) -> int:
        """Forgets everything that was tied to a channel (lock held)."""
        self.generation += 1
        self.state = state
        self._channel = None
        if state is State.LOST:
            self._transport = None
        count = self.outbox.connection_lost()
        self._ledger.connection_lost()
        for receiver in self._receivers.values():
            receiver.drain()
        for delivery in list(self.fetched):
            # With a filter the delivery is still needed: its next copy is attached to it
            if delivery.receiver.duplicates is None:
                del self.fetched[delivery]
        again = [command for command in self._outstanding if not command.future.done()]
        self._commands.extendleft(reversed(again))
        self._outstanding.clear()
        self.condition.notify_all()
        return count

    def fail(self, error: ClientError, closed: bool = False) -> list[Entry]:
        """The end of the session; returns what was unsettled."""
        with self.condition:
            if self.state in (State.FAILED, State.CLOSED):
                return []
            self._error = error
            commands = [*self._outstanding, *self._commands]
            self._commands.clear()
            self._reset(State.CLOSED if closed else State.FAILED)
            left = self.outbox.discard()
            for entry in left:
                entry.outcome, entry.error = Outcome.FAILED, error
                entry.owner.settled(entry)
            self.condition.notify_all()
        for command in commands:
            if not command.future.done():
                command.future.set_exception(error)
        for entry in left:
            self._report(entry)
        return left

    # -- the I/O thread: work on a ready channel

    def flush(self) -> bool:
        """Commands, acknowledgements, messages.  True if there is more to do at once."""
        if self.state is not State.READY or self._channel is None or not self._channel.is_open:
            return False
        self._run_commands()
        self._send_settlements()
        return self._send_messages()

    def _run_commands(self) -> None:
        while self._commands and self.state is State.READY:
            with self.condition:
                command = self._commands.popleft()
                self._outstanding.append(command)
            if command.future.cancelled():
                self._outstanding.remove(command)
                continue
            try:
                command.run(self._channel, lambda frame, command=command: self._command_done(command, frame))  # type: ignore[misc]
            except Exception as error:  # the arguments were wrong; that is the caller's affair
                self._outstanding.remove(command)
                if not command.future.done():
                    command.future.set_exception(error)

    def _command_done(self, command: Command, frame: Any) -> None:
        if command in self._outstanding:
            self._outstanding.remove(command)
        if not command.future.done():
            command.future.set_result(frame)

    def _subscribe(self, channel: Any, receiver: Receiver, done: Callable[[Any], None] | None) -> None:
        generation = self.generation
        if not receiver.no_ack:
            channel.basic_qos(prefetch_count=receiver.capacity)
        channel.basic_consume(
            queue=receiver.queue,
            on_message_callback=lambda _c, method, properties, body: self._delivered(
                generation, receiver, method, properties, body
            ),
            auto_ack=receiver.no_ack,
            exclusive=receiver.exclusive,
            consumer_tag=receiver.consumer_tag,
            callback=done,
        )

    def _flow(self, generation: int, active: bool) -> None:
        """The broker wants a pause, before a planned switch-over: after our answer it has read all that we have sent.
        What was decided about deliveries goes first; publishing goes on when it says so, or on another connection."""
        if generation != self.generation or self._transport is None:
            return
        self._flowing = active
        if not active and self.state is State.READY:
            self._send_settlements()
        self._transport.write(flow_ok(int(self._channel), active))
        if active:
            self.wake()

    def _cancel(self, channel: Any, receiver: Receiver, done: Callable[[Any], None]) -> None:
        if receiver.consumer_tag in channel.consumer_tags:
            channel.basic_cancel(receiver.consumer_tag, callback=done)
        else:
            done(None)

    def _send_settlements(self) -> None:
        with self.condition:
            methods = self._ledger.take()
            if methods:
                self.condition.notify_all()
        for settle in methods:
            self._send_settlement(settle)

    def _send_settlement(self, settle: Settle) -> None:
        if settle.disposition is Disposition.ACCEPT:
            self._channel.basic_ack(settle.delivery_tag, multiple=settle.multiple)
        else:
            self._channel.basic_reject(settle.delivery_tag, requeue=settle.disposition is Disposition.RELEASE)

    def _send_messages(self) -> bool:
        transport = self._transport
        if transport is None or transport.blocked or not self._flowing:
            return False
        for _ in range(PUBLISH_TURN // PUBLISH_CHUNK):
            if not self.outbox.waiting:
                return False
            if transport.backlog > BACKLOG_MAX:
                self._connection.call_later(0.005, self.wake)
                return False
            with self.condition:
                entries = self.outbox.send_next(PUBLISH_CHUNK)
            self._write(transport, entries)
        return self.outbox.waiting > 0

    def _write(self, transport: Transport, entries: list[Entry]) -> None:
        channel, pieces, body_max = int(self._channel), [], transport.body_max
        for entry in entries:
            if entry.resent:
                entry.payload = entry.message.encode(entry.message_id, resent=True)
            pieces.append(self._publish_method(channel, entry))
            pieces += content_frames(channel, entry.payload, entry.body, body_max)
            kind = "resend" if entry.resent else "publish"
            self.events.message(kind, entry.routing_key, entry.message_id, entry.resent)
        transport.write(b"".join(pieces))

    def _publish_method(self, channel: int, entry: Entry) -> bytes:
        key = (entry.exchange, entry.routing_key, entry.mandatory)
        method = self._methods.get(key)
        if method is None:
            if len(self._methods) >= METHOD_CACHE:
                self._methods.clear()
            method = self._methods[key] = publish_method(channel, *key)
        return method

    # -- the I/O thread: what the broker says

    def _confirmed(self, generation: int, method: Any) -> None:
        taken = method.NAME == "Basic.Ack"
        with self.condition:
            if generation != self.generation:
                return
            entries = self.outbox.settled(method.delivery_tag, method.multiple)
            wanted = self.sync_waiters > 0 or self.outbox.unsettled == 0
            for entry in entries:
                self._decide(entry, taken)
                wanted = entry.owner.settled(entry) or wanted
            if wanted:
                self.condition.notify_all()
        for entry in entries:
            self._report(entry)

    def _decide(self, entry: Entry, taken: bool) -> None:
        if entry.returned is not None:
            entry.outcome, entry.error = Outcome.RETURNED, Returned(*entry.returned, entry.message)
        elif taken:
            entry.outcome = Outcome.CONFIRMED
        else:
            entry.outcome = Outcome.REJECTED
            entry.error = Rejected(f"the broker did not take {entry.message_id} (basic.nack)", entry.message)

    def _report(self, entry: Entry) -> None:
        if entry.outcome is Outcome.CONFIRMED:
            self.events.message("confirm", entry.routing_key, entry.message_id, entry.resent)
        elif entry.outcome is not Outcome.FAILED:
            kind = "return" if entry.outcome is Outcome.RETURNED else "nack"
            self.events.fact(kind, queue=entry.routing_key, msg_id=entry.message_id, reason=str(entry.error))
        try:
            entry.owner.report(entry)
        except Exception:
            LOGGER.exception("%s: on_settled raised for %s", self.name, entry.message_id)

    def _returned(self, method: Any, properties: Any) -> None:
        with self.condition:
            self.outbox.returned(properties.message_id, method.reply_code, method.reply_text)

    def _delivered(self, generation: int, receiver: Receiver, method: Any, properties: Any, body: bytes) -> None:
        message = received(method.exchange, method.routing_key, method.redelivered, properties, body)
        with self.condition:
            if generation != self.generation:
                return
            if not receiver.no_ack:
                message._delivery = Delivery(receiver, generation, method.delivery_tag)
                self._ledger.delivered(method.delivery_tag)
            if receiver.error is not None:
                if message._delivery is not None:
                    self.settle_tag(generation, method.delivery_tag, Disposition.RELEASE)
                return
            receiver.arrived(message)
            if receiver.waiting:
                self.condition.notify_all()

    def _cancelled(self, frame: Any) -> None:
        """The broker ended a subscription, because its queue is gone."""
        with self.condition:
            receiver = self._receivers.pop(frame.method.consumer_tag, None)
            if receiver is not None:
                receiver.error = ReceiverCancelled(f"the broker cancelled the subscription to {receiver.queue}")
                self.condition.notify_all()

    def close_channel(self) -> None:
        """Ends the session for the application; the channel is closed if there is one."""
        channel = self._channel
        self.fail(Closed(f"session {self.name} is closed"), closed=True)
        if channel is not None and channel.is_open:
            channel.close()
