"""`FailoverConnection`: a program written for pika.BlockingConnection keeps its code and survives its broker.

    connection = FailoverConnection("node1,node2,node3")      # was: pika.BlockingConnection(parameters)
    channel = connection.channel()

The methods, their arguments, their results and their errors are pika's; docs/from-pika.md says what differs.  An I/O
thread of the library answers heartbeats, however long a callback takes.  Callbacks still run only in the thread of the
program that calls start_consuming, consume or process_data_events.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pika
from pika.validators import require_callback

from client_lib.connection import CLOSE_TIME, Connection
from client_lib.errors import MessagingError
from client_lib.failover.channel import FailoverChannel
from client_lib.failover.errors import ConnectFailed, ConnectionUnusable, translate
from client_lib.failover.inbox import Callback, Inbox
from client_lib.failover.parameters import PUBLISH_TIMEOUT, Where, read_parameters
from client_lib.failover.publishing import not_taken
from client_lib.session import Session
from client_lib.unheard import giving_way, raise_first
from client_lib.waiting import Reading


@dataclass(frozen=True)
class Failover:
    """The argument of callbacks of add_on_failover_callback: old address, new address, reason, and seconds without a
    connection."""

    lost: str
    connected: str
    reason: str
    outage: float


class FailoverConnection:
    """Connects at once.  `urls`: addresses in any grammar of `client_lib.urls.url`, pika's ConnectionParameters or
    URLParameters, or a list of them; None is localhost.  Further options: see `client_lib.options.Options`.

    publish_window   None: basic_publish waits for each confirm; a number: so many may be unconfirmed on a channel
    publish_timeout  seconds basic_publish waits at most; None: for ever
    open_timeout     seconds for the first connection; None: for ever
    drop_duplicates  consumers hand each message id out once; True, or the size of the window of ids

    Raises UrlError, TypeError, ValueError, NotImplementedError, AMQPConnectionError (ConnectFailed, LoginRefused)."""

    def __init__(
        self,
        urls: Where | Iterable[Where] | None = None,
        *,
        publish_window: int | None = None,
        publish_timeout: float | None = None,
        open_timeout: float | None = 30.0,
        drop_duplicates: bool | int = False,
        **options: Any,
    ) -> None:
        addresses, asked = read_parameters(urls)
        wanted_timeout = asked.pop(PUBLISH_TIMEOUT, None)
        self.publish_timeout = wanted_timeout if publish_timeout is None else publish_timeout
        self.publish_window = publish_window
        self.drop_duplicates = drop_duplicates
        if publish_window is not None and publish_window < 1:
            raise ValueError(f"publish_window must be None (wait for each confirm) or at least 1, not {publish_window}")
        self.inbox = Inbox()
        self._channels: dict[int, FailoverChannel] = {}
        self._numbers = itertools.count(1)
        self._blocked_callbacks: list[Callable[[FailoverConnection, Any], Any]] = []
        self._unblocked_callbacks: list[Callable[[FailoverConnection, Any], Any]] = []
        self._failover_callbacks: list[Callable[[FailoverConnection, Failover], Any]] = []
        self._is_blocked = False
        self._loss: tuple[str, str] | None = None
        self._closed = False
        self._connection = Connection(addresses, **{**asked, **options})
        self._connection.link.events.listen(self._heard)
        self.inbox.reading = Reading(self._connection.link)
        self._connection.on_fork = self._forked
        self._open(open_timeout)

    def _open(self, timeout: float | None) -> None:
        try:
            self._connection.open(timeout)
        except MessagingError as error:
            self._closed = True
            self._connection.close(0)
            if isinstance(error, TimeoutError):
                raise ConnectFailed(str(error)) from error
            raise translate(error) from error

    def _forked(self) -> None:
        self.inbox.forked()
        for channel in self._channels.values():
            channel._consuming.forked()

    def __enter__(self) -> FailoverConnection:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with giving_way(error):
            if self.is_open:
                self.close()

    def __repr__(self) -> str:
        return f"<FailoverConnection {self._connection.address} {'open' if self.is_open else 'closed'}>"

    # -- state

    @property
    def is_open(self) -> bool:
        """True while it can be used, also during a fail-over."""
        return not self._closed and self._connection.error is None

    @property
    def is_closed(self) -> bool:
        return not self.is_open

    @property
    def is_connected(self) -> bool:
        """Ours: False during a fail-over."""
        return self.is_open and self._connection.is_connected

    @property
    def failovers(self) -> int:
        """Ours: how often an open connection was lost."""
        return self._connection.failovers

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown") -> None:
        """Waits a moment for confirms, then closes; never hangs.  Unconfirmed messages are logged.

        Raises ConnectionWrongStateError if it is closed; after closing, UnroutableError, NackError or PublishInDoubt
        for a message that no call has raised an error for."""
        self._check_open()
        self._closed = True
        for channel in list(self._channels.values()):
            channel._core.forsake()
        left = self._connection._end(CLOSE_TIME)
        self.inbox.poke()
        try:
            raise_first(left)
        except MessagingError as error:
            raise not_taken(error) or translate(error) from error

    def _check_open(self) -> None:
        """Raises the error that ended the connection."""
        if self._closed:
            raise ConnectionUnusable("the connection is closed")
        if self._connection.error is not None:
            raise translate(self._connection.error) from self._connection.error

    # -- channels

    def channel(self, channel_number: int | None = None) -> FailoverChannel:
        """A new channel.  Raises NotImplementedError for a given number: a fail-over numbers channels anew."""
        self._check_open()
        if channel_number is not None:
            raise NotImplementedError(f"channel_number={channel_number}: channels are numbered anew by each fail-over")
        number = next(self._numbers)
        channel = self._channels[number] = FailoverChannel(self, number)
        return channel

    def new_session(self, transactional: bool = False) -> Session:
        """For channels."""
        try:
            return self._connection.session(transactional=transactional)
        except MessagingError as error:
            raise translate(error) from error

    def dismiss(self, channel_number: int) -> None:
        """A channel has ended."""
        self._channels.pop(channel_number, None)

    # -- events

    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Runs the callbacks that are ready; waits at most `time_limit` seconds (None: for ever) for the first one."""
        self._check_open()
        self.inbox.process(time_limit, self._ended)
        if not self._closed:
            self._check_open()

    def _ended(self) -> bool:
        return self._closed or self._connection.error is not None

    def sleep(self, duration: float) -> None:
        """Runs callbacks for `duration` seconds."""
        if duration < 0:
            raise ValueError(f"duration must not be negative, got {duration}")
        deadline = time.monotonic() + duration
        self.process_data_events(duration)
        while (left := deadline - time.monotonic()) > 0:
            self.process_data_events(left)

    def call_later(self, delay: float, callback: Callback) -> int:
        """Runs `callback` after `delay` seconds, in a thread that processes events; returns a number to remove it."""
        require_callback(callback)
        return self.inbox.call_later(delay, callback)

    def remove_timeout(self, timeout_id: int) -> None:
        """Unknown and expired timers are ignored."""
        self.inbox.remove(timeout_id)

    def add_callback_threadsafe(self, callback: Callback) -> None:
        """Runs `callback` soon, in a thread that processes events."""
        require_callback(callback)
        self._check_open()
        self.inbox.post(callback)

    def add_on_connection_blocked_callback(self, callback: Callable[[FailoverConnection, Any], Any]) -> None:
        """callback(connection, frame of Connection.Blocked)."""
        require_callback(callback)
        self._blocked_callbacks.append(callback)

    def add_on_connection_unblocked_callback(self, callback: Callable[[FailoverConnection, Any], Any]) -> None:
        """callback(connection, frame of Connection.Unblocked), also when a blocked connection is lost."""
        require_callback(callback)
        self._unblocked_callbacks.append(callback)

    def add_on_failover_callback(self, callback: Callable[[FailoverConnection, Failover], Any]) -> None:
        """Ours: callback(connection, Failover) each time a connection was lost and another one is open."""
        require_callback(callback)
        self._failover_callbacks.append(callback)

    def update_secret(self, new_secret: str, reason: str) -> None:
        """Raises NotImplementedError: the next connection would log in with the old secret."""
        raise NotImplementedError("update_secret(new_secret=...): open a new FailoverConnection with the new secret")

    def _heard(self, event: Mapping[str, Any]) -> None:
        """An event of the connection, in the I/O thread."""
        kind = event["kind"]
        if kind == "disconnected":
            self._unblock()
            self._loss = (str(event.get("peer")), str(event.get("reason", "")))
        elif kind == "connected" and self._loss is not None:
            outage = int(event.get("attrs", {}).get("outage_us", 0)) / 1e6
            self._tell(self._failover_callbacks, Failover(self._loss[0], str(event.get("peer")), self._loss[1], outage))
        elif kind == "blocked":
            self._is_blocked = True
            self._tell(self._blocked_callbacks, _frame(pika.spec.Connection.Blocked(str(event.get("reason", "")))))
        elif kind == "unblocked":
            self._unblock()

    def _unblock(self) -> None:
        if self._is_blocked:
            self._is_blocked = False
            self._tell(self._unblocked_callbacks, _frame(pika.spec.Connection.Unblocked()))

    def _tell(self, callbacks: list[Callable[[FailoverConnection, Any], Any]], what: Any) -> None:
        for callback in callbacks:
            self.inbox.post(lambda callback=callback: callback(self, what))  # type: ignore[misc]

    # -- capabilities of the broker; always true, since qpidd-py and RabbitMQ have all of them

    @property
    def basic_nack_supported(self) -> bool:
        return True

    @property
    def consumer_cancel_notify_supported(self) -> bool:
        return True

    @property
    def exchange_exchange_bindings_supported(self) -> bool:
        return True

    @property
    def publisher_confirms_supported(self) -> bool:
        return True

    basic_nack = basic_nack_supported
    consumer_cancel_notify = consumer_cancel_notify_supported
    exchange_exchange_bindings = exchange_exchange_bindings_supported
    publisher_confirms = publisher_confirms_supported


def _frame(method: Any) -> Any:
    return pika.frame.Method(0, method)
