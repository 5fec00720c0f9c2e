"""The life of a session's channel (shell).

Theory.  The states are in `client_lib.core.states`; the I/O thread makes all changes.

* Restoring: the declared topology in its order, then what senders and receivers of addresses declared, then the
  receivers, then the commands and messages that wait, oldest first.  Restoring uses no-wait except for the last step,
  so it costs few round trips.  If the broker closes the channel meanwhile (a queue is still locked by the lost
  connection, or does not exist yet), restoring is repeated for `restore_timeout` seconds.
* `generation` counts channels.  A delivery tag means something only together with the generation it came in; callbacks
  of older generations are ignored.
* While the broker asks for a pause (connection.blocked, channel.flow) only messages wait.
* A confirmed message was taken by the broker.  An unconfirmed one is sent again, same id, header `x-resent`: it may
  arrive twice.  Acknowledgements for deliveries of a lost connection are dropped: those messages come again.
* What a ready channel writes is in `client_lib.core.writing`, subscriptions and their deliveries in
  `client_lib.core.subscribing`, the end of transactions in `client_lib.core.transacting`.
* Lock: `monitor` guards everything here except `_channel` and `_transport`, which belong to the I/O thread; in READY
  another thread may use them with the lock, for `write_now`.  The application's callbacks and those of channels are
  called without it.  No other lock of ours is taken inside it except the event log's and the stream's, which take
  none.  With asyncio the application runs in the I/O thread and the lock is none.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from client_lib.connecting.transport import ChannelClosed, Transport
from client_lib.core.aftermath import Aftermath
from client_lib.core.deliveries import Deliveries
from client_lib.core.ending import Ending
from client_lib.core.opening import open_channel
from client_lib.core.outbox import Entry
from client_lib.core.publishing import Publishing
from client_lib.core.requests import Requests
from client_lib.core.restoring import RESTORE_INTERVAL, Restoring, refused, replay
from client_lib.core.states import ENDED, State
from client_lib.core.subscribing import Subscribing
from client_lib.core.subscription import Subscription
from client_lib.core.transaction import Transaction
from client_lib.core.watcher import NoWatcher, Watcher
from client_lib.core.writing import Writing
from client_lib.errors import MessagingError, SessionClosed, server_error
from client_lib.event_runs import NOWHERE, Where
from client_lib.link.link import Link
from client_lib.link.suspects import INTERNAL_ERROR, Request
from client_lib.monitor import Monitor
from client_lib.unheard import Unheard

LOGGER = logging.getLogger("client_lib")
ASK_LIMIT = 10.0  # seconds, and two heartbeat intervals


class ChannelWorker:
    """The part of a session that belongs to the I/O thread; `session_core` has the part for applications."""

    def __init__(self, link: Link, name: str, monitor: Monitor, transactional: bool = False) -> None:
        self.name = name
        self.monitor = monitor
        self.events = link.events
        self.transaction = Transaction() if transactional else None
        self.publishing = Publishing(name, monitor, link.events, self.transaction, link.options.frame_max)
        self.deliveries = Deliveries(link.wake, self.transaction)
        self.subscribing = Subscribing(monitor, self.deliveries)
        self.state = State.LOST
        self.generation = 0
        self.where = NOWHERE
        """The channel as it appears in events."""
        self.watcher: Watcher = NoWatcher()
        self.max_buffered = link.options.max_buffered
        self._link = link
        self.requests = Requests(monitor, self.check, link)
        self._commands = self.requests.commands
        self._writing = Writing(
            monitor,
            self._commands,
            self.publishing,
            self.deliveries,
            self.transaction,
            self.wake,
            self._wake_later,
            self.wake_others,
        )
        self.transacting = self._writing.transacting
        self.ending = Ending(name, self.publishing, self._commands, self.transacting)
        self._channel: Any = None
        self._transport: Transport | None = None
        self._restoring = Restoring(link.options.restore_timeout, link.options.heartbeat)
        self._commits = -1
        """Of the transactional session when its connection was lost."""

    # -- from any thread

    def wake(self) -> None:
        self._link.wake()

    def _wake_later(self) -> None:
        self._link.call_later(0.005, self.wake)

    def wake_others(self) -> None:
        """A session may wait for its turn."""
        if self._link.sessions.careful:
            self.wake()

    @property
    def opening(self) -> bool:
        return self.state in (State.OPENING, State.RESTORING)

    @property
    def trouble(self) -> str:
        """While there is no connection: why, as `; last: ADDRESS: reason; ...`, else empty."""
        return "" if self._transport is not None else self._link.trouble

    def patience(self, timeout: float | None) -> float:
        """Seconds in which a broker must say that there is no message, after a call has waited for one in vain for
        `timeout` seconds: enough for a fail-over."""
        return max(timeout or 0.0, ASK_LIMIT + 2 * self._link.options.heartbeat)

    @property
    def overfull(self) -> bool:
        return self.subscribing.overfull

    @property
    def hungry(self) -> bool:
        return self.subscribing.hungry

    def hold(self) -> None:
        """A receiver is overfull (I/O thread)."""
        self._link.hold()

    @property
    def request(self) -> Request | None:
        """The oldest that is not answered."""
        if self.opening:
            timeout = self._link.options.restore_timeout
            return Request(self._restoring, "what a session declares again", patience=timeout)
        return None if self.ended else self._writing.request

    @property
    def due(self) -> bool:
        """It has something to send, or waits for an answer."""
        if self.ended:
            return False
        return self.state is not State.READY or self._writing.waiting or self.request is not None

    @property
    def cleared(self) -> bool:
        """Nothing that it sent on a lost connection is unanswered; in a transaction: it has committed since."""
        if self.ended or self.state is not State.READY:
            return self.ended
        if self.transaction is not None:
            return self.transaction.commits != self._commits
        return self.publishing.resent == 0 and not self._commands.repeats

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def renew(self, subscription: Subscription) -> None:
        """Subscribes again, with another capacity.  Not waited for."""
        with self.monitor:
            if self.subscribing.knows(subscription) and self.ending.error is None:
                self.requests.add_command(
                    lambda channel, done: self.subscribing.renew(channel, subscription, done),
                    f"basic.consume {subscription.queue!r}",
                )

    def check(self) -> None:
        """Raises the error that ended the session or its transaction, if there is one."""
        self.ending.check(self.transaction)

    # -- life of a channel

    def open_on(self, transport: Transport) -> None:
        """The connection is open: opens a channel on it, unless there is one, or the broker has just closed it."""
        if not transport.is_open:
            return
        with self.monitor:
            if self.state is not State.LOST:
                return
            aftermath = self._reset(State.OPENING)
            generation = self.generation
        aftermath.tell(self.publishing)
        self._transport = transport
        self._restoring.begin(time.monotonic())
        self._open_channel(generation)

    def _open_channel(self, generation: int) -> None:
        if generation != self.generation or self._transport is None or self.state is not State.OPENING:
            return
        if not self._transport.is_open:  # its end will be told
            return
        self._writing.flowing = True
        self._channel = open_channel(self._transport, self)

    def channel_opened(self, channel: Any) -> None:
        self.where = Where(str(self._link.address), self._link.conn_id, str(int(channel)))
        self.publishing.new_channel(self.where, channel.connection.params.frame_max)

    def channel_selected(self, generation: int) -> None:
        if generation != self.generation:
            return
        with self.monitor:
            self.state = State.RESTORING
            topology, subscriptions = self.requests.declarations.all(), list(self.deliveries.subscriptions.values())
        subscriptions = [subscription for subscription in subscriptions if subscription.established]
        channel = self._channel

        def ready(_frame: Any = None) -> None:
            if generation == self.generation:
                self._ready()

        replay(channel, topology, subscriptions, self.subscribing, ready)

    def _ready(self) -> None:
        with self.monitor:
            self.state = State.READY
            self.monitor.notify_all()
        self.watcher.ready()
        self._recovered()
        self.flush(self._link.sessions.limit(self))
        self.wake_others()

    def _recovered(self) -> None:
        """Reports the end of the outage if this was the last session to recover."""
        if self._link.sessions.recovery.active and self._is_ready() and not self.publishing.resent:
            attrs = self._link.sessions.recovery.done(self, time.monotonic())
            if attrs is not None:
                self.events.fact("recovered", peer=self.where.peer, conn_id=self.where.conn_id, attrs=attrs)

    def channel_ending(self, generation: int) -> None:
        with self.monitor:
            if generation == self.generation:
                self._writing.flowing = False

    def channel_closed(self, generation: int, reason: Exception) -> None:
        """The channel ended.  If the connection ended with it, `connection_lost` does the work."""
        if generation != self.generation or not isinstance(reason, ChannelClosed):
            return
        if not self.opening:
            self.fail(server_error(reason.reply_code, reason.reply_text))
            return
        error = self._restoring.error(reason.reply_code, reason.reply_text, time.monotonic())
        if error is not None:
            self.fail(error)
            return
        LOGGER.info("%s: restoring failed, trying again: %s", self.name, reason)
        self._open_another(RESTORE_INTERVAL)

    def _open_another(self, delay: float) -> None:
        """Opens a new channel on the same connection."""
        with self.monitor:
            aftermath = self._reset(State.OPENING)
            again = self.generation
        aftermath.tell(self.publishing)
        self._link.call_later(delay, lambda: self._open_channel(again))

    def connection_lost(self, refusal: tuple[int, str] | None = None) -> int:
        """Returns the number of messages sent and not confirmed.

        `refusal`: code and text of the broker's connection.close, if it was for a request of this session.  A command
        is refused by it if there was nothing else that could be meant."""
        error = None
        with self.monitor:
            if self.state in ENDED:
                return 0
            self._commits = -1 if self.transaction is None else self.transaction.commits
            if refusal is not None and refusal[0] != INTERNAL_ERROR and self._writing.only_a_command:
                error = refused(*refusal)
            aftermath = self._reset(State.LOST, error)
        aftermath.tell(self.publishing)
        self.watcher.lost()
        return aftermath.unconfirmed

    def _reset(self, state: State, error: MessagingError | None = None) -> Aftermath:
        """Forgets everything tied to a channel (lock held).  `error`: for commands without an answer."""
        aftermath = Aftermath()
        if self.transacting is not None:
            aftermath.entries, aftermath.answers = self.transacting.connection_lost(self._is_ready())
        self.generation += 1
        self.state = state
        self._channel = None
        if state is not State.OPENING:
            self._transport = None
        aftermath.unconfirmed = self.publishing.connection_lost()
        self.deliveries.connection_lost(self.generation, keep=self.transaction is None)
        aftermath.answers += [(future, error) for future in self._commands.connection_lost(error)]
        self.monitor.notify_all()
        return aftermath

    def fail(self, error: MessagingError, closed: bool = False) -> list[Entry]:
        """Ends the session; returns the messages whose outcome is unknown."""
        with self.monitor:
            if self.state in ENDED:
                return []
            aftermath = self.ending.end(error, closed)
            self._reset(State.CLOSED if closed else State.FAILED)
        self._link.sessions.recovery.gone(self)
        self.wake_others()
        aftermath.tell(self.publishing)
        self.watcher.ended(error)
        if not closed:
            self.ending.failed(error)
        return list(self.ending.lost)

    def take_unheard(self) -> Unheard:
        """The session has ended: what was refused or is in doubt, once."""
        with self.monitor:
            return self.ending.take_unheard(self.state is State.CLOSED)

    def close_channel(self) -> None:
        """Ends the session for the application; the channel is closed if there is one."""
        channel = self._channel
        self.fail(SessionClosed(f"session {self.name} is closed"), closed=True)
        if channel is not None and channel.is_open:
            channel.close()

    # -- work on a ready channel

    def flush(self, limit: int | None = None) -> bool:
        """Writes what waits.  True if there is more to do at once.  `limit` is that of unanswered requests."""
        channel, transport = self._channel, self._transport
        if not self._is_ready() or transport is None or channel is None or not channel.is_open:
            return False
        return self._writing.flush(channel, transport, self._is_ready, limit)

    def write_now(self) -> bool:
        """Writes the message that was added last, in the thread that has added it (lock held).  False: the I/O thread
        has to be woken for it."""
        channel, transport = self._channel, self._transport
        if not self._is_ready() or transport is None or channel is None or self._link.sessions.careful:
            return False
        return self.transaction is None and self._writing.write_now(channel, transport)

    def _is_ready(self) -> bool:
        return self.state is State.READY

    # -- from the broker

    def confirmed(self, generation: int, delivery_tag: int, multiple: bool, taken: bool) -> None:
        if not self._restoring.proven:
            if not taken and generation == self.generation and self._not_ready():
                return
            self._restoring.proven = taken
        with self.monitor.lock:
            if generation != self.generation:
                return
            entries = self.publishing.confirmed(delivery_tag, multiple, taken)
        self.publishing.report(entries)
        self.wake_others()
        if self._link.sessions.recovery.active:
            self._recovered()

    def _not_ready(self) -> bool:
        """Handles a nack before the first confirm after a fail-over (see `Restoring.pause_after_nack`)."""
        pause = self._restoring.pause_after_nack(time.monotonic())
        if self._link.failovers == 0 or pause is None:
            return False
        LOGGER.info("%s: not taken (basic.nack) after reconnecting, trying again", self.name)
        channel = self._channel
        self._open_another(pause)
        if channel is not None and channel.is_open:
            channel.close()
        return True

    def returned(self, method: Any, properties: Any) -> None:
        with self.monitor:
            self.publishing.returned(method, properties)

    def cancelled(self, consumer_tag: str) -> None:
        subscription = self.subscribing.cancelled(consumer_tag)
        if subscription is not None:
            self.watcher.cancelled(subscription)
            if subscription.error is not None:
                subscription.failed(subscription.error)

    def flow(self, generation: int, active: bool) -> None:
        if generation == self.generation and self._transport is not None:
            self._writing.flow(self._channel, self._transport, active, self._is_ready)
