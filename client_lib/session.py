"""A session as the application sees it.

What survives a fail-over, and what may arrive twice:

* A message given to a sender is kept until the broker confirms it; if the connection is lost before, it is sent again,
  in order, with the same id and the header `x-resent`.  The first copy may have arrived: consumers may see both.
* Queues, exchanges and bindings declared here are declared again, then receivers subscribe again.
* What a receiver had fetched and not acknowledged is delivered again; acknowledging the old delivery does nothing,
  unless the receiver drops duplicates: then the new copy is attached to the old message and settled with it.
* A transaction that is not empty does not survive: every call raises TransactionAborted until `rollback`.

The states and the locking are explained in `client_lib.core.channel_worker`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from client_lib.connecting.link import Link
from client_lib.core.ledger import Disposition
from client_lib.core.session_core import Build, SessionCore
from client_lib.core.steps import Steps
from client_lib.core.window import SettledCallback
from client_lib.errors import Empty, MessagingError, Timeout
from client_lib.message import Message
from client_lib.receiver import Receiver
from client_lib.sender import Sender

if TYPE_CHECKING:
    from client_lib.connection import Connection

LOGGER = logging.getLogger("client_lib")
T = TypeVar("T")
Arguments = dict[str, Any]


class Session(SessionCore):
    """Made by Connection.session."""

    monitor: threading.Condition

    def __init__(self, connection: Connection, link: Link, name: str, transactional: bool = False) -> None:
        super().__init__(link, name, threading.Condition(), transactional)
        self.connection = connection

    # -- senders and receivers

    def sender(
        self,
        address: str,
        capacity: int = 1000,
        on_settled: SettledCallback | None = None,
        timeout: float | None = None,
    ) -> Sender:
        """A sender to an address, see `client_lib.addresses.address`.  Raises AddressError and its subclasses,
        Timeout."""

        def make(routing_key: str, exchange: str, mandatory: bool) -> Sender:
            return Sender(self, routing_key, exchange, capacity, mandatory, on_settled)

        return self.run(self.opening_sender(address, make), timeout)

    def receiver(
        self,
        address: str,
        capacity: int = 100,
        drop_duplicates: bool | int = False,
        no_ack: bool = False,
        timeout: float | None = None,
    ) -> Receiver:
        """A receiver from an address, see `client_lib.addresses.address`.  `capacity` messages are fetched ahead.

        `drop_duplicates`: each message id is handed out once; the number of ids to remember, or True.  Raises
        AddressError and its subclasses, Timeout."""

        def make(queue: str, unreliable: bool, exclusive: bool, arguments: Mapping[str, Any]) -> Receiver:
            return self.subscription(
                Receiver, queue, capacity, no_ack or unreliable, exclusive, arguments, drop_duplicates
            )

        return self.run(self.opening_receiver(address, make), timeout)

    def queue_sender(
        self,
        routing_key: str = "",
        exchange: str = "",
        capacity: int = 1000,
        mandatory: bool = False,
        on_settled: SettledCallback | None = None,
    ) -> Sender:
        """A sender to a queue (the default exchange) or to an exchange; asks and declares nothing.

        Without a routing key each message's `subject` is used."""
        return self.add_window(Sender(self, routing_key, exchange, capacity, mandatory, on_settled))

    def queue_receiver(
        self,
        queue: str,
        capacity: int | None = 100,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        drop_duplicates: bool | int = False,
        timeout: float | None = None,
    ) -> Receiver:
        """Subscribes to a queue; asks and declares nothing.  `capacity` is the prefetch limit (None: no limit); with
        `no_ack` there is none.  `drop_duplicates` is the window of the filter (True: its default)."""
        receiver = self.subscription(Receiver, queue, capacity, no_ack, exclusive, arguments, drop_duplicates)
        return self.run(self.subscribing(receiver), timeout)

    def next_receiver(self, timeout: float | None = None) -> Receiver:
        """The receiver that has the oldest of all messages that have arrived.  Another thread may be quicker to fetch.

        Raises Empty, SessionError, ConnectionError."""
        self.refuse_io_thread("next_receiver")
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.monitor:
            while True:
                self.check()
                receiver = self.ready_receiver()
                if receiver is not None:
                    assert isinstance(receiver, Receiver)
                    return receiver
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise Empty(f"no message for any receiver within {timeout} s")
                self.waiting_for_any += 1
                try:
                    self.monitor.wait(left)
                finally:
                    self.waiting_for_any -= 1

    def get(
        self, queue: str, no_ack: bool = False, timeout: float | None = None, build: Build | None = None
    ) -> Message | None:
        """basic.get: one message, None if the queue is empty."""
        return self.run(self.getting(queue, no_ack, build), timeout)

    # -- settling

    def acknowledge(
        self, message: Message | None = None, disposition: Disposition | None = None, sync: bool = True
    ) -> None:
        """Settles one message, or all that were fetched in this session; with `sync` waits until the broker knows.

        Ignored are messages that were settled before, need no acknowledgement, or whose connection was lost.  Raises
        ValueError (not a received message), SessionError, ConnectionError; in a transaction TransactionAborted for a
        message that was fetched before a loss or rollback."""
        disposition = disposition or Disposition.ACCEPT
        if message is None:
            self.settle_all(disposition)
        else:
            self.settle(message, disposition)
        if sync:
            self.fence()

    def reject(self, message: Message) -> None:
        """Rejects the message: the broker drops it or dead-letters it."""
        self.settle(message, Disposition.REJECT)

    def release(self, message: Message) -> None:
        """Gives the message back to its queue."""
        self.settle(message, Disposition.RELEASE)

    def fence(self, timeout: float | None = None) -> None:
        """Waits until the broker has read all acknowledgements, rejects and releases.  Raises Timeout."""
        self.run(self.fencing(), timeout)

    # -- transactions

    def commit(self, timeout: float | None = None) -> None:
        """Commits everything sent and settled since the last commit or rollback.  `timeout` in seconds.

        Raises NontransactionalSession; TransactionAborted: nothing has happened, call rollback();
        TransactionUnknown: all of it or nothing has happened, a new transaction has begun; Timeout: its text says
        whether nothing has happened and the transaction is still open, or the outcome is not known yet: commit() again
        waits for it; Returned: committed, but no queue was bound for a mandatory message."""
        self.run(self.committing(), timeout)

    def rollback(self, timeout: float | None = None) -> None:
        """Discards everything sent and settled since the last commit or rollback; all messages that were fetched and
        whose acknowledgement was not committed are delivered again.

        Raises NontransactionalSession, TransactionError (a commit() that had timed out was done after all),
        TransactionUnknown (the outcome of that commit is unknown), Timeout (call it again)."""
        self.run(self.rolling_back(), timeout)

    # -- topology; declared now and after each fail-over (see `client_lib.core.topology`)

    def declare_queue(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> str:
        """Declares a queue now and after each fail-over; returns its name, which is generated here when empty.

        An exclusive or auto-delete queue is gone with its connection: after a fail-over it is there again, empty."""
        steps = self.declaring_queue(queue, passive, durable, exclusive, auto_delete, arguments)
        return self.run(steps, timeout)

    def declare_exchange(
        self,
        exchange: str,
        exchange_type: str = "direct",
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Declares an exchange now and after each fail-over."""
        self.run(self.declaring_exchange(exchange, exchange_type, passive, durable, auto_delete, arguments), timeout)

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Binds now and after each fail-over."""
        self.run(self.binding_queue(queue, exchange, routing_key, arguments), timeout)

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        self.run(self.binding_queue(queue, exchange, routing_key, arguments, bind=False), timeout)

    def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Messages of `source` go to `destination` as well, now and after each fail-over."""
        self.run(self.binding_exchange(destination, source, routing_key, arguments), timeout)

    def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        self.run(self.binding_exchange(destination, source, routing_key, arguments, bind=False), timeout)

    def delete_queue(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> None:
        self.run(self.deleting_queue(queue, if_unused, if_empty), timeout)

    def delete_exchange(self, exchange: str, if_unused: bool = False, timeout: float | None = None) -> None:
        self.run(self.deleting_exchange(exchange, if_unused), timeout)

    def purge_queue(self, queue: str, timeout: float | None = None) -> int:
        """Returns how many messages were removed."""
        return self.run(self.purging_queue(queue), timeout)

    def declare(self, method: str, remember: bool, timeout: float | None = None, **arguments: Any) -> Any:
        """Calls a method of pika's channel and returns its answer; with `remember` also after each fail-over."""
        return self.answer(self.start_declaration(method, remember, **arguments), timeout)

    # -- waiting, end

    def sync(self, timeout: float | None = None) -> None:
        """Waits until all messages are confirmed (in a transaction: written) and all acknowledgements written.

        Raises Timeout."""
        with self.monitor:
            if not self.wait_for(self.idle, timeout):
                raise Timeout(f"{self.publishing.outbox.unsettled} messages unsettled after {timeout} s")
            self.check()

    def close(self, timeout: float | None = 5.0) -> None:
        """Waits for what is unsettled, then closes the channel.  Never longer than `timeout` seconds, and not at all
        in a callback.  An open transaction is rolled back.  Harmless when repeated.

        What is not confirmed then is in doubt: it is logged, and on_settled is called with SessionClosed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if not self.in_io_thread():
                self.drain(deadline)
        finally:
            self.connection.close_session(self, deadline)

    def drain(self, deadline: float | None) -> None:
        """Waits for unsettled messages and does what the addresses ask for at close, as far as possible."""
        try:
            self.sync(_left(deadline))
            self.run(self.ending(), _left(deadline))
        except MessagingError as error:
            LOGGER.debug("%s: %s", self.name, error)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- for senders and receivers

    def in_io_thread(self) -> bool:
        return self.connection.in_io_thread()

    def refuse_io_thread(self, what: str) -> None:
        if self.connection.in_io_thread():
            raise RuntimeError(f"{what} would block the I/O thread; callbacks must not wait")

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Waits with the lock held; False at the timeout.  Raises what ends the session meanwhile."""
        self.refuse_io_thread("waiting")
        deadline = None if timeout is None else time.monotonic() + timeout
        while not predicate():
            self.check()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.monitor.wait(left)
        return True

    def answer(self, future: Future[Any], timeout: float | None) -> Any:
        """Waits for the answer to a command.  Raises Timeout: then it is not asked again."""
        self.refuse_io_thread("a command")
        try:
            return future.result(timeout)
        except TimeoutError:
            # Not if the command itself failed with a timeout, or was answered at this moment
            if future.done() or (not future.cancel() and future.done()):
                return future.result()
            raise Timeout(f"no answer within {timeout} s") from None

    def run(self, steps: Steps[T], timeout: float | None) -> T:
        """Runs all steps, waiting for each; at the timeout Timeout is thrown into them, so that they undo what they
        must."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            future = next(steps)
            while True:
                try:
                    result = self.answer(future, _left(deadline))
                except BaseException as error:
                    future = steps.throw(error)
                else:
                    future = steps.send(result)
        except StopIteration as stop:
            found: T = stop.value
            return found

    def finish(self, steps: Steps[None], deadline: float | None) -> None:
        """As `run`, for closing: what ended the session before is no error, and in a callback nothing is waited for."""
        if self.in_io_thread():
            for _ in steps:
                pass
            return
        try:
            self.run(steps, _left(deadline))
        except Timeout:
            raise
        except MessagingError:
            pass


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
