"""The channel of `FailoverConnection`: the methods of pika's BlockingChannel on a session that fails over.

docs/from-pika.md says what a fail-over means for each of them.  Callbacks run in the thread that calls start_consuming,
consume or process_data_events of the connection; publishing and acknowledging may be done from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pika
from pika.validators import require_callback

from client_lib.errors import MessagingError, Rejected, Returned, ServerError
from client_lib.failover.consuming import PRECONDITION_FAILED, Consuming
from client_lib.failover.content import Outgoing
from client_lib.failover.errors import Nacked, Unroutable
from client_lib.failover.publisher import Publisher
from client_lib.session import Session

if TYPE_CHECKING:
    from client_lib.failover.connection import FailoverConnection

ReturnCallback = Callable[["FailoverChannel", Any, Any, bytes], Any]


class FailoverChannel(Consuming):
    """Made by FailoverConnection.channel."""

    def __init__(self, connection: FailoverConnection, number: int, session: Session) -> None:
        super().__init__(connection, number, session)
        self._publisher = session.add_window(Publisher(session, connection.publish_window, self._tell_return))
        self._return_callbacks: list[ReturnCallback] = []
        self._confirming = self._transactional = False

    def __enter__(self) -> FailoverChannel:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.is_open:
            self.close()

    # -- publishing

    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes | str,
        properties: Any = None,
        mandatory: bool = False,
    ) -> None:
        """Waits until the broker has confirmed the message, over fail-overs; with `publish_window` waits only while the
        window is full, and raises the failure of an earlier message.

        Raises UnroutableError, NackError, ConnectionBlockedTimeout (see `publish_timeout`; the message is still kept),
        AMQPConnectionError, AMQPChannelError, and what pika's encoder raises."""
        self._check_open()
        waits = self.connection.publish_window is None and not self._transactional
        message = Outgoing(exchange, routing_key, body, properties, mandatory)
        try:
            self._publisher.send(message, sync=waits, timeout=self.connection.publish_timeout)
        except MessagingError as error:
            raise self._not_published(error) from error

    def wait_for_confirms(self, timeout: float | None = None) -> None:
        """Ours: waits at most `timeout` seconds until everything published is confirmed.  Raises as basic_publish, for
        the first message that was not taken; call it again for the next."""
        self._check_open()
        try:
            self._publisher.sync(timeout)
        except MessagingError as error:
            raise self._not_published(error) from error

    @property
    def unconfirmed(self) -> int:
        """Ours: how many published messages are not confirmed yet."""
        return self._publisher.unsettled()

    def confirm_delivery(self) -> None:
        """Confirms are always on; from now on a returned message raises UnroutableError even if there are callbacks."""
        self._check_open()
        if self._transactional:
            raise self._failed(ServerError(PRECONDITION_FAILED, "cannot switch from tx to confirm mode"))
        self._confirming = True

    def add_on_return_callback(self, callback: ReturnCallback) -> None:
        """callback(channel, method, properties, body) for each returned message."""
        require_callback(callback)
        self._return_callbacks.append(callback)

    def _tell_return(self, message: Outgoing, reason: Returned) -> bool:
        """Runs in the I/O thread.  As in pika, a program with callbacks that did not ask for confirms gets no
        exception."""
        if not self._return_callbacks:
            return False
        back = message.returned(reason)

        def tell() -> None:
            for callback in self._return_callbacks:
                callback(self, back.method, back.properties, back.body)

        self._inbox.post(tell)
        return not self._confirming

    def _not_published(self, error: MessagingError) -> Exception:
        if isinstance(error, Returned) and isinstance(error.message, Outgoing):
            return Unroutable(error, [error.message.returned(error)])
        if isinstance(error, Rejected):
            return Nacked(error)
        return self._failed(error)

    # -- transactions

    def tx_select(self) -> Any:
        """Begins transactions; before anything is consumed on this channel.  Returns the frame of Tx.SelectOk."""
        self._check_open()
        if self._confirming:
            raise self._failed(ServerError(PRECONDITION_FAILED, "cannot switch from confirm to tx mode"))
        if not self._transactional:
            if self._consumers or len(self._tags):
                raise NotImplementedError("tx_select after messages were consumed: call it before basic_consume")
            self.wait_for_confirms()
            self._session = self.connection.new_session(self.channel_number, transactional=True)
            self._watch(self._session)
            self._publisher = self._session.add_window(Publisher(self._session, None, self._tell_return))
            self._transactional = True
        return pika.frame.Method(self.channel_number, pika.spec.Tx.SelectOk())

    def tx_commit(self) -> Any:
        """Raises AMQPConnectionError if the connection was lost meanwhile: `client_lib.TransactionAborted` (nothing has
        happened) or `client_lib.TransactionUnknown`; then tx_rollback(), and do the transaction again."""
        self._end_transaction(lambda: self._session.commit())
        return pika.frame.Method(self.channel_number, pika.spec.Tx.CommitOk())

    def tx_rollback(self) -> Any:
        """Undoes what was published and settled since the last commit; delivered messages are delivered again."""
        self._end_transaction(lambda: self._session.rollback())
        with self._tags_lock:
            self._tags.lost()
        for consumer in self._consumers.values():
            consumer.announce_again()
        return pika.frame.Method(self.channel_number, pika.spec.Tx.RollbackOk())

    def _end_transaction(self, end: Callable[[], None]) -> None:
        self._check_open()
        if not self._transactional:
            raise self._failed(ServerError(PRECONDITION_FAILED, "channel is not transactional"))
        try:
            end()
        except MessagingError as error:
            raise self._not_published(error) from error
