"""The life of a session's channel (shell).

Theory.  States, all changes made by the I/O thread:

    LOST --open_on--> OPENING --select-ok--> RESTORING --last ok--> READY
      ^                  |                      |                     |
      +------------------+--- connection_lost --+---------------------+
      any -> FAILED (channel closed by the broker; the connection gave up)      any -> CLOSED (by the application)

* Restoring: the declared topology in its order, then what senders and receivers of addresses declared, then the
  receivers, then the commands and messages that wait, oldest first.  Restoring uses no-wait except for the last step,
  so it costs few round trips.  If the broker closes the channel meanwhile (a queue is still locked by the lost
  connection, or does not exist yet), restoring is repeated for `restore_timeout` seconds.
* `generation` counts channels.  A delivery tag means something only together with the generation it came in; callbacks
  of older generations are ignored.
* While the broker asks for a pause (connection.blocked, channel.flow) only messages wait.
* A confirmed message was taken by the broker.  An unconfirmed one is sent again, same id, header `x-resent`: it may
  arrive twice.  Acknowledgements for deliveries of a lost connection are dropped: those messages come again.
* Commands are in `client_lib.core.commands`, the end of transactions in `client_lib.core.transacting`.
* Lock: `monitor` guards everything here except `_channel` and `_transport`, which belong to the I/O thread.  The
  application's callbacks and pika are called without it.  No other lock of ours is taken inside it except the
  event log's, which takes none.  With asyncio the application runs in the I/O thread and the lock is none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from client_lib.connecting.link import Link
from client_lib.connecting.transport import ChannelClosed, Transport, cancel_consumer, flow_ok
from client_lib.core.commands import Commands, Run
from client_lib.core.declarations import Declarations
from client_lib.core.deliveries import Deliveries
from client_lib.core.getting import Getting
from client_lib.core.ledger import Disposition, Settle
from client_lib.core.monitor import Monitor
from client_lib.core.outbox import Entry, some_ids
from client_lib.core.publishing import Publishing
from client_lib.core.steps import answer, refuse
from client_lib.core.subscription import Subscription
from client_lib.core.transacting import Answers, Transacting
from client_lib.core.transaction import Phase, Transaction
from client_lib.core.watcher import NoWatcher, Watcher
from client_lib.errors import MessagingError, ReceiverCancelled, SessionClosed, server_error
from client_lib.event_runs import NOWHERE, Where

LOGGER = logging.getLogger("client_lib")
RESTORE_INTERVAL = 0.1  # seconds
LOCKED = (403, 405)
"""Reply codes for a queue or a consumer that is exclusive to another connection."""
UNCAUSED = (0, 200, 320, 541)
"""Reply codes of closes that no request of the client caused: none, success, forced, internal error."""
FATAL_RESTORES = 3
"""After so many connections that the broker closed because of a request while restoring, the session ends."""


class State(Enum):
    LOST = "lost"
    OPENING = "opening"
    RESTORING = "restoring"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


ENDED = (State.FAILED, State.CLOSED)


@dataclass
class Aftermath:
    """What to report, without the lock, after a channel was lost."""

    unconfirmed: int = 0
    entries: list[Entry] = field(default_factory=list)
    answers: Answers = field(default_factory=list)


class ChannelWorker:
    """The part of a session that belongs to the I/O thread; `session_core` has the part for applications."""

    def __init__(self, link: Link, name: str, monitor: Monitor, transactional: bool = False) -> None:
        self.name = name
        self.monitor = monitor
        self.events = link.events
        self.transaction = Transaction() if transactional else None
        self.publishing = Publishing(name, monitor, link.events, self.transaction)
        self.deliveries = Deliveries(self.wake, self.transaction)
        self.state = State.LOST
        self.generation = 0
        self.where = NOWHERE
        """The channel as it appears in events."""
        self.watcher: Watcher = NoWatcher()
        self.waiting_for_any = 0
        """The number of calls that wait for a message of any receiver."""
        self._link = link
        self.declarations = Declarations()
        self.restores = self.declarations.restores
        self._commands = Commands(monitor)
        self.getting = Getting()
        self.transacting: Transacting | None = None
        if self.transaction is not None:
            self.transacting = Transacting(self.transaction, self.publishing, self.deliveries, monitor)
        self.error: MessagingError | None = None
        """What ended the session."""
        self._channel: Any = None
        self._transport: Transport | None = None
        self._restoring_since = 0.0
        self._proven = False  # has anything been confirmed on this connection?
        self._fatal_restores = 0
        self._flowing = True

    # -- from any thread

    def wake(self) -> None:
        self._link.wake()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """A call in the I/O thread."""
        self._link.post(lambda: self._call_later(seconds, callback))

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._link.call_later(seconds, callback)

    def start_command(self, run: Run) -> Future[Any]:
        """`run(channel, done)` in the I/O thread, once there is a channel; again if it is lost before `done`."""
        with self.monitor:
            self.check()
            return self.add_command(run)

    def add_command(self, run: Run) -> Future[Any]:
        """Lock held; the session has not ended."""
        future = self._commands.add(run)
        self.wake()
        return future

    def renew(self, subscription: Subscription) -> None:
        """Subscribes again, with another capacity.  Not waited for."""

        def renew(channel: Any, done: Callable[[Any], None]) -> None:
            def subscribe(_frame: Any) -> None:
                if self._knows(subscription):
                    self.subscribe(channel, subscription, done)
                else:
                    done(None)

            self.cancel(channel, subscription, subscribe)

        with self.monitor:
            if self._knows(subscription) and self.error is None:
                self.add_command(renew)

    def _knows(self, subscription: Subscription) -> bool:
        return self.deliveries.subscriptions.get(subscription.consumer_tag) is subscription

    def check(self) -> None:
        """Raises the error that ended the session or its transaction, if there is one."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # otherwise each raise makes the traceback longer
        if self.transaction is not None:
            self.transaction.check()

    # -- life of a channel

    def open_on(self, transport: Transport) -> None:
        """The connection is open: opens a channel on it."""
        with self.monitor:
            if self.state in ENDED:
                return
            aftermath = self._reset(State.OPENING)
            generation = self.generation
        self._tell(aftermath)
        self._transport = transport
        self._restoring_since = time.monotonic()
        self._proven = False
        self._open_channel(generation)

    def _open_channel(self, generation: int) -> None:
        if generation != self.generation or self._transport is None or self.state is not State.OPENING:
            return

        def opened(channel: Any) -> None:
            if generation != self.generation:
                return
            channel.add_on_return_callback(lambda _c, method, properties, _body: self._returned(method, properties))
            channel.add_on_cancel_callback(self._cancelled)
            channel.add_on_flow_callback(lambda frame: self._flow(generation, frame.method.active))
            self.where = Where(str(self._link.address), self._link.conn_id, str(int(channel)))
            self.publishing.new_channel(self.where)
            self.getting.new_channel(channel)
            self._select(channel, generation)

        self._flowing = True
        self._channel = self._transport.channel(on_open_callback=opened)
        self._channel.add_on_close_callback(lambda _channel, reason: self._channel_closed(generation, reason))

    def _select(self, channel: Any, generation: int) -> None:
        """Selects transactions or publisher confirms."""
        if self.transaction is not None:
            channel.tx_select(callback=lambda _ok: self._restore(generation))
            return
        try:
            channel.confirm_delivery(
                lambda frame: self._confirmed(generation, frame.method), callback=lambda _ok: self._restore(generation)
            )
        except Exception as error:  # the broker knows no publisher confirms
            self.fail(server_error(540, str(error)))

    def _restore(self, generation: int) -> None:
        if generation != self.generation:
            return
        with self.monitor:
            self.state = State.RESTORING
            topology, subscriptions = self.declarations.all(), list(self.deliveries.subscriptions.values())
        channel = self._channel

        def ready(_frame: Any = None) -> None:
            if generation == self.generation:
                self._ready()

        for index, declared in enumerate(topology):
            last = index == len(topology) - 1 and not subscriptions
            getattr(channel, declared.method)(**declared.arguments, callback=ready if last else None)
        for index, subscription in enumerate(subscriptions):
            self.subscribe(channel, subscription, ready if index == len(subscriptions) - 1 else None)
        if not topology and not subscriptions:
            ready()

    def _ready(self) -> None:
        with self.monitor:
            self.state = State.READY
            self._fatal_restores = 0
            self.monitor.notify_all()
        self.watcher.ready()
        self._recovered()
        self.flush()

    def _recovered(self) -> None:
        """Reports the end of the outage if this was the last session to recover."""
        if self._link.recovery.active and self.state is State.READY and not self.publishing.resent:
            attrs = self._link.recovery.done(self, time.monotonic())
            if attrs is not None:
                self.events.fact("recovered", peer=self.where.peer, conn_id=self.where.conn_id, attrs=attrs)

    def _channel_closed(self, generation: int, reason: Exception) -> None:
        """The channel ended.  If the connection ended with it, `connection_lost` does the work."""
        if generation != self.generation or not isinstance(reason, ChannelClosed):
            return
        if self.state not in (State.OPENING, State.RESTORING):
            self.fail(server_error(reason.reply_code, reason.reply_text))
            return
        patience = self._patience(reason.reply_code)
        if time.monotonic() >= self._restoring_since + patience:
            text = f"{reason.reply_text} (still so {patience} s after reconnecting)"
            self.fail(server_error(reason.reply_code, text))
            return
        LOGGER.info("%s: restoring failed, trying again: %s", self.name, reason)
        self._open_another(RESTORE_INTERVAL)

    def _open_another(self, delay: float) -> None:
        """Opens a new channel on the same connection."""
        with self.monitor:
            aftermath = self._reset(State.OPENING)
            again = self.generation
        self._tell(aftermath)
        self._link.call_later(delay, lambda: self._open_channel(again))

    def _patience(self, reply_code: int) -> float:
        """Seconds for which refusals while restoring are tolerated.  A broker that has not noticed the loss of our
        connection keeps its exclusive queues until its own heartbeat expires."""
        options = self._link.options
        return max(options.restore_timeout, 2.0 * options.heartbeat if reply_code in LOCKED else 0.0)

    def connection_lost(self, refusal: tuple[int, str] | None = None) -> int:
        """Returns the number of messages sent and not confirmed.

        `refusal`: code and text of the broker's connection.close, if there was one."""
        error = None
        if refusal is not None and refusal[0] not in UNCAUSED:
            error = server_error(refusal[0], f"{refusal[1]} (the broker closed the connection)")
        with self.monitor:
            if self.state in ENDED:
                return 0
            restoring = self.state in (State.OPENING, State.RESTORING)
            aftermath = self._reset(State.LOST, error)
        self._tell(aftermath)
        self.watcher.lost()
        if error is not None and restoring:
            self._fatal_restores += 1
            if self._fatal_restores >= FATAL_RESTORES:
                self.fail(error)
        return aftermath.unconfirmed

    def _reset(self, state: State, error: MessagingError | None = None) -> Aftermath:
        """Forgets everything tied to a channel (lock held).  `error`: for commands without an answer."""
        aftermath = Aftermath()
        if self.transacting is not None:
            aftermath.entries, aftermath.answers = self.transacting.connection_lost(self.state is State.READY)
        self.generation += 1
        self.state = state
        self._channel = None
        if state is not State.OPENING:
            self._transport = None
        aftermath.unconfirmed = self.publishing.connection_lost()
        self.deliveries.connection_lost(self.generation, keep=self.transaction is None)
        self.getting.connection_lost()
        aftermath.answers += [(future, error) for future in self._commands.connection_lost(error)]
        self.monitor.notify_all()
        return aftermath

    def _tell(self, aftermath: Aftermath) -> None:
        self.publishing.report(aftermath.entries)
        for future, result in aftermath.answers:
            if isinstance(result, BaseException):
                refuse(future, result)
            else:
                answer(future, result)

    def fail(self, error: MessagingError, closed: bool = False) -> list[Entry]:
        """Ends the session; returns the messages whose outcome is unknown."""
        with self.monitor:
            if self.state in ENDED:
                return []
            self.error = error
            doubtful = self._doubtful()
            futures = self._commands.end()
            ends = self.transacting.end(error, closed) if self.transacting is not None else []
            left = self.publishing.end(error)
            self._reset(State.CLOSED if closed else State.FAILED)
        self._tell(Aftermath(answers=[*((future, error) for future in futures), *ends]))
        self._link.recovery.gone(self)
        if doubtful:
            LOGGER.warning("%s: %s; %d messages in doubt: %s", self.name, error, len(doubtful), some_ids(doubtful))
        self.publishing.report(left)
        self.watcher.ended(error)
        return doubtful

    def _doubtful(self) -> list[Entry]:
        """Lock held."""
        if self.transacting is not None and not self.transacting.doubtful:
            return []
        return self.publishing.unsettled()

    def close_channel(self) -> None:
        """Ends the session for the application; the channel is closed if there is one."""
        channel = self._channel
        self.fail(SessionClosed(f"session {self.name} is closed"), closed=True)
        if channel is not None and channel.is_open:
            channel.close()

    # -- work on a ready channel

    def flush(self) -> bool:
        """Writes acknowledgements, commands, messages.  True if there is more to do at once.

        Decisions made before a command are written before it, also if both arrived while this ran: a basic.get after a
        release expects the message back, and a fence covers the acknowledgements before it."""
        if self.state is not State.READY or self._channel is None or not self._channel.is_open:
            return False
        self._send_settlements()
        while self._commands.waiting and self.state is State.READY:
            self._send_settlements()
            self._commands.start(self._channel, self._answered)
        more = self._send_messages()
        if self.transaction is not None and self.transaction.ending:
            self._end_transaction()
        return more

    def _answered(self) -> None:
        if self.transaction is not None and self.transaction.ending:
            self.wake()  # it waits until nothing else is outstanding

    def _end_transaction(self) -> None:
        # pika holds a method back while another one waits for its answer, so nothing else may be outstanding
        if self.transacting is not None and self._commands.quiet and self.state is State.READY:
            generation = self.generation
            self.transacting.write(self._channel, lambda: generation == self.generation, self.wake)

    def subscribe(self, channel: Any, subscription: Subscription, done: Callable[[Any], None] | None) -> None:
        generation = self.generation
        if not subscription.no_ack:
            channel.basic_qos(prefetch_count=subscription.prefetch)
        channel.basic_consume(
            queue=subscription.queue,
            on_message_callback=lambda _c, method, properties, body: self._delivered(
                generation, subscription, method, properties, body
            ),
            auto_ack=subscription.no_ack,
            exclusive=subscription.exclusive,
            arguments=subscription.arguments,
            consumer_tag=subscription.consumer_tag,
            callback=done,
        )

    def cancel(self, channel: Any, subscription: Subscription, done: Callable[[Any], None]) -> None:
        if subscription.consumer_tag in channel.consumer_tags:
            cancel_consumer(channel, subscription.consumer_tag, done)
        else:
            done(None)

    def _send_settlements(self) -> None:
        if not self.deliveries.undecided:
            return
        if self.transaction is not None and self.transaction.phase is Phase.COMMIT_SENT:
            return  # they belong to the next one
        with self.monitor:
            methods = self.deliveries.take()
            if methods:
                self.monitor.notify_all()
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
        return self.publishing.write(transport, int(self._channel), self._wake_later)

    def _wake_later(self) -> None:
        self._link.call_later(0.005, self.wake)

    # -- from the broker

    def _confirmed(self, generation: int, method: Any) -> None:
        taken = method.NAME == "Basic.Ack"
        if not self._proven:
            if not taken and generation == self.generation and self._not_ready():
                return
            self._proven = taken
        with self.monitor:
            if generation != self.generation:
                return
            entries = self.publishing.confirmed(method.delivery_tag, method.multiple, taken)
        self.publishing.report(entries)
        if self._link.recovery.active:
            self._recovered()

    def _not_ready(self) -> bool:
        """Handles a nack before the first confirm after a fail-over: the broker has not located the queue's new leader
        yet.  RabbitMQ does that once per channel, so a new channel is opened, until `restore_timeout`."""
        waited = time.monotonic() - self._restoring_since
        if self._link.failovers == 0 or waited > self._link.options.restore_timeout:
            return False
        LOGGER.info("%s: not taken (basic.nack) after reconnecting, trying again", self.name)
        channel = self._channel
        self._open_another(max(RESTORE_INTERVAL, min(waited, 1.0)))
        if channel is not None and channel.is_open:
            channel.close()
        return True

    def _returned(self, method: Any, properties: Any) -> None:
        with self.monitor:
            self.publishing.returned(method, properties)

    def _delivered(
        self, generation: int, subscription: Subscription, method: Any, properties: Any, body: bytes
    ) -> None:
        message = subscription.build(method, properties, body)
        with self.monitor:
            if generation != self.generation:
                return
            self.deliveries.arrived(subscription, message, method.delivery_tag)
            if subscription.waiting or self.waiting_for_any:
                self.monitor.notify_all()

    def _cancelled(self, frame: Any) -> None:
        """The broker ended a subscription, because its queue is gone."""
        with self.monitor:
            subscription = self.deliveries.subscriptions.pop(frame.method.consumer_tag, None)
            if subscription is None:
                return
            subscription.error = ReceiverCancelled(f"the broker cancelled the subscription to {subscription.queue}")
            self.monitor.notify_all()
        self.watcher.cancelled(subscription)

    def _flow(self, generation: int, active: bool) -> None:
        """The broker asks for a pause before a planned switch-over: when it gets our answer it has read everything we
        sent.  Acknowledgements are written first; publishing resumes when the broker allows it, or on another
        connection."""
        if generation != self.generation or self._transport is None:
            return
        self._flowing = active
        if not active and self.state is State.READY:
            self._send_settlements()
        self._transport.write(flow_ok(int(self._channel), active))
        if active:
            self.wake()
