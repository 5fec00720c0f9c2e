"""The base of `FailoverChannel`: the session below it, how a channel ends, how errors are reported.

A channel is open until the program closes it, the broker closes it (404, 406 ...) or the connection gives up.  As in
pika the reason is raised once, by the next call; later calls raise ChannelWrongStateError.  A fail-over does not end a
channel.

With transactions there are two sessions: tx.select is not possible on a channel that confirms, so publishing, consuming
and acknowledging move to a transactional one, and the first one keeps the declarations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions

from client_lib.core.subscription import Subscription
from client_lib.errors import MessagingError, ServerError, TransactionError
from client_lib.failover.consumer import Consumer
from client_lib.failover.content import Incoming
from client_lib.failover.errors import translate
from client_lib.failover.tags import DeliveryTags
from client_lib.session import Session

if TYPE_CHECKING:
    from client_lib.failover.connection import FailoverConnection

CLOSE_TIME = 5.0  # seconds for what is unsettled


class SessionWatcher:
    """Follows one session of a channel in the I/O thread, and wakes the application's thread."""

    def __init__(self, channel: ChannelCore) -> None:
        self._channel = channel

    def lost(self) -> None:
        self._channel._connection_lost()

    def ready(self) -> None:
        """Called in the I/O thread; does not wait."""

    def ended(self, error: MessagingError) -> None:
        self._channel._inbox.poke()

    def cancelled(self, subscription: Subscription) -> None:
        tag = subscription.consumer_tag
        self._channel._inbox.post(lambda: self._channel._cancelled_by_broker(tag))


class ChannelCore:
    def __init__(self, connection: FailoverConnection, number: int, session: Session) -> None:
        self.connection = connection
        self.channel_number = number
        self._inbox = connection.inbox
        self._declaring = self._session = session
        self._consumers: dict[str, Consumer] = {}
        self._tags: DeliveryTags[Incoming] = DeliveryTags()
        self._tags_lock = threading.Lock()
        self._cancel_callbacks: list[Callable[[Any], Any]] = []
        self._closed = False
        self._watch(session)

    def __int__(self) -> int:
        return self.channel_number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel_number} {'open' if self.is_open else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """True while it can be used, also during a fail-over."""
        return not self._closed and self._reason() is None

    @property
    def is_closed(self) -> bool:
        return not self.is_open

    def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None:
        """Waits a moment for confirms, cancels the consumers and closes; unacknowledged messages go back to their
        queues.

        Raises ChannelWrongStateError if it is closed."""
        self._check_open()
        self._end()

    def _watch(self, session: Session) -> None:
        session.watcher = SessionWatcher(self)

    # -- for the I/O thread

    def _connection_lost(self) -> None:
        with self._tags_lock:
            self._tags.lost(keep=bool(self.connection.drop_duplicates))

    # -- for the application's thread

    def _cancelled_by_broker(self, consumer_tag: str) -> None:
        """The broker ended a subscription, because its queue is gone."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        consumer.alive = False
        if consumer.on_message is not None:
            frame = pika.frame.Method(self.channel_number, pika.spec.Basic.Cancel(consumer_tag))
            for callback in self._cancel_callbacks:
                callback(frame)

    def _check_open(self) -> None:
        """Raises if the channel cannot be used: the first time the reason, then ChannelWrongStateError."""
        if not self._closed:
            reason = self._reason()
            if reason is None:
                return
            raise self._failed(reason) from reason
        raise pika.exceptions.ChannelWrongStateError("Channel is closed.")

    def _raise_if_ended(self) -> None:
        """As check_open, but does not raise for a channel that the program closed itself."""
        if not self._closed:
            self._check_open()

    def _failed(self, error: MessagingError) -> Exception:
        """The error to raise.  A close as the broker's answer ends the channel, and so does the end of its session."""
        if isinstance(error, ServerError) or self._reason() is not None:
            self._end()
        return translate(error)

    def _answer(self, future: Future[Any]) -> Any:
        """Waits for the answer to a command, over fail-overs."""
        try:
            return self._session.answer(future, None)
        except MessagingError as error:
            raise self._failed(error) from error

    def _sessions(self) -> list[Session]:
        return [self._session] if self._session is self._declaring else [self._session, self._declaring]

    def _reason(self) -> MessagingError | None:
        """The error that ended a session, or None; a lost transaction does not end one."""
        for session in self._sessions():
            try:
                session.check()
            except TransactionError:
                continue
            except MessagingError as error:
                return error
        return None

    def forsake(self) -> None:
        """The connection is being closed, and does the rest."""
        self._closed = True
        for consumer in self._consumers.values():
            consumer.alive = False
        self._consumers.clear()
        with self._tags_lock:
            self._tags.lost()

    def _end(self) -> None:
        self.forsake()
        for session in self._sessions():
            session.close(CLOSE_TIME)
        self.connection.dismiss(self)
        self._inbox.poke()
