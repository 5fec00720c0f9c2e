"""A session of the asyncio API: the names, options and errors of `client_lib.session`, awaited.

That module says what survives a fail-over and what may arrive twice.  In addition:

* A call that is cancelled while it waits for the broker's answer is treated like a timeout: it is not repeated after a
  fail-over, and it may have had its effect.
* `sync` and other calls that wait for a state of the session end once the state was reached, even if another task has
  changed it since.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from client_lib.aio.receiver import Receiver
from client_lib.aio.sender import Sender
from client_lib.aio.waiting import WaitingSession, single
from client_lib.core.ledger import Disposition
from client_lib.core.session_core import Build
from client_lib.core.window import SettledCallback
from client_lib.errors import Empty, MessagingError, Timeout
from client_lib.message import Message

LOGGER = logging.getLogger("client_lib")
Arguments = dict[str, Any]


class Session(WaitingSession):
    """Made by Connection.session."""

    # -- senders and receivers

    async def sender(
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

        return await self.run(self.opening_sender(address, make), timeout)

    async def receiver(
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

        return await self.run(self.opening_receiver(address, make), timeout)

    async def queue_sender(
        self,
        routing_key: str = "",
        exchange: str = "",
        capacity: int = 1000,
        mandatory: bool = False,
        on_settled: SettledCallback | None = None,
    ) -> Sender:
        """A sender to a queue (the default exchange) or to an exchange; asks and declares nothing.

        Without a routing key each message's `subject` is used."""
        self.own_loop()
        return self.add_window(Sender(self, routing_key, exchange, capacity, mandatory, on_settled))

    async def queue_receiver(
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
        return await self.run(self.subscribing(receiver), timeout)

    async def next_receiver(self, timeout: float | None = None) -> Receiver:
        """The receiver that has the oldest of all messages that have arrived.  Another task may be quicker to fetch.

        Raises Empty, SessionError, ConnectionError."""
        loop = self.own_loop()
        deadline = None if timeout is None else loop.time() + timeout
        woken = again = False
        while True:
            self.check()
            receiver = self.ready_receiver()
            if receiver is not None:
                assert isinstance(receiver, Receiver)
                return receiver
            if again and not woken:
                raise Empty(f"no message for any receiver within {timeout} s")
            left = None if deadline is None else max(0.0, deadline - loop.time())
            woken, again = await self.arrivals.wait(left, again), True

    async def get(
        self, queue: str, no_ack: bool = False, timeout: float | None = None, build: Build | None = None
    ) -> Message | None:
        """basic.get: one message, None if the queue is empty."""
        return await self.run(self.getting(queue, no_ack, build), timeout)

    # -- settling

    async def acknowledge(
        self, message: Message | None = None, disposition: Disposition | None = None, sync: bool = True
    ) -> None:
        """Settles one message, or all that were fetched in this session; with `sync` waits until the broker knows.

        Ignored are messages that were settled before, need no acknowledgement, or whose connection was lost.  Raises
        ValueError (not a received message), SessionError, ConnectionError; in a transaction TransactionAborted for a
        message that was fetched before a loss or rollback."""
        self.own_loop()
        disposition = disposition or Disposition.ACCEPT
        if message is None:
            self.settle_all(disposition)
        else:
            self.settle(message, disposition)
        if sync:
            await self.fence()

    async def reject(self, message: Message) -> None:
        """Rejects the message: the broker drops it or dead-letters it."""
        self.own_loop()
        self.settle(message, Disposition.REJECT)

    async def release(self, message: Message) -> None:
        """Gives the message back to its queue."""
        self.own_loop()
        self.settle(message, Disposition.RELEASE)

    async def fence(self, timeout: float | None = None) -> None:
        """Waits until the broker has read all acknowledgements, rejects and releases.  Raises Timeout."""
        await self.run(self.fencing(), timeout)

    # -- transactions

    async def commit(self, timeout: float | None = None) -> None:
        """Commits everything sent and settled since the last commit or rollback.  `timeout` in seconds.

        Raises NontransactionalSession; TransactionAborted: nothing has happened, call rollback();
        TransactionUnknown: all of it or nothing has happened, a new transaction has begun; Timeout: its text says
        whether nothing has happened and the transaction is still open, or the outcome is not known yet: commit() again
        waits for it; Returned: committed, but no queue was bound for a mandatory message."""
        await self.run(self.committing(), timeout)

    async def rollback(self, timeout: float | None = None) -> None:
        """Discards everything sent and settled since the last commit or rollback; all messages that were fetched and
        whose acknowledgement was not committed are delivered again.

        Raises NontransactionalSession, TransactionError (a commit() that had timed out was done after all),
        TransactionUnknown (the outcome of that commit is unknown), Timeout (call it again)."""
        await self.run(self.rolling_back(), timeout)

    # -- topology; declared now and after each fail-over (see `client_lib.core.topology`)

    async def declare_queue(
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
        return await self.run(steps, timeout)

    async def declare_exchange(
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
        await self.run(
            self.declaring_exchange(exchange, exchange_type, passive, durable, auto_delete, arguments), timeout
        )

    async def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Binds now and after each fail-over."""
        await self.run(self.binding_queue(queue, exchange, routing_key, arguments), timeout)

    async def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        await self.run(self.binding_queue(queue, exchange, routing_key, arguments, bind=False), timeout)

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Messages of `source` go to `destination` as well, now and after each fail-over."""
        await self.run(self.binding_exchange(destination, source, routing_key, arguments), timeout)

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        await self.run(self.binding_exchange(destination, source, routing_key, arguments, bind=False), timeout)

    async def delete_queue(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> None:
        await self.run(self.deleting_queue(queue, if_unused, if_empty), timeout)

    async def delete_exchange(self, exchange: str, if_unused: bool = False, timeout: float | None = None) -> None:
        await self.run(self.deleting_exchange(exchange, if_unused), timeout)

    async def purge_queue(self, queue: str, timeout: float | None = None) -> int:
        """Returns how many messages were removed."""
        return await self.run(self.purging_queue(queue), timeout)

    async def declare(self, method: str, remember: bool, timeout: float | None = None, **arguments: Any) -> Any:
        """Calls a method of pika's channel and returns its answer; with `remember` also after each fail-over."""
        return await self.run(single(self.start_declaration(method, remember, **arguments)), timeout)

    # -- waiting, end

    async def sync(self, timeout: float | None = None) -> None:
        """Waits until all messages are confirmed (in a transaction: written) and all acknowledgements written.

        Raises Timeout."""
        if not await self.wait_for(self.idle, timeout):
            raise Timeout(f"{self.publishing.outbox.unsettled} messages unsettled after {timeout} s")
        self.check()

    async def close(self, timeout: float | None = 5.0) -> None:
        """Waits for what is unsettled, then closes the channel.  Never longer than `timeout` seconds; cancelled, it
        closes at once.  An open transaction is rolled back.  Harmless when repeated.

        What is not confirmed then is in doubt: it is logged, and on_settled is called with SessionClosed."""
        loop = self.own_loop()
        try:
            await self.drain(None if timeout is None else loop.time() + timeout)
        finally:
            self.connection.close_session(self)

    async def drain(self, deadline: float | None) -> None:
        """Waits for unsettled messages and does what the addresses ask for at close, as far as possible."""
        loop = self.own_loop()
        try:
            await self.sync(None if deadline is None else deadline - loop.time())
            await self.run(self.ending(), None if deadline is None else deadline - loop.time())
        except MessagingError as error:
            LOGGER.debug("%s: %s", self.name, error)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
