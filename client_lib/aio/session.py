"""A session of the asyncio API: the names, options and errors of `client_lib.session`, awaited.

That module says what survives a fail-over and what may arrive twice.  In addition:

* A call that is cancelled while it waits for the broker's answer is treated like a timeout: it is not repeated after a
  fail-over, and it may have had its effect.
* `sync` and other calls that wait for a state of the session end once the state was reached, even if another task has
  changed it since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from client_lib.addresses.scratch import start_request
from client_lib.aio.receiver import Receiving
from client_lib.aio.sender import Sending
from client_lib.aio.waiting import Waiting
from client_lib.core.handle import Handle
from client_lib.core.ledger import Disposition
from client_lib.core.notifying import Handler, error_of, notifier
from client_lib.core.receivers import Build
from client_lib.core.window import SettledCallback
from client_lib.errors import MessagingError
from client_lib.message import Message
from client_lib.unheard import giving_way

Arguments = dict[str, Any]

# The rest is aio/session.py without async and await, copied by `python -m tools.threaded_session`


class Sender(Sending):
    __doc__ = Sending.__doc__

    def __init__(self, session: Session, waiting: Waiting, *arguments: Any) -> None:
        super().__init__(waiting, *arguments)
        self.session = session


class Receiver(Receiving):
    __doc__ = Receiving.__doc__

    def __init__(self, session: Session, waiting: Waiting, *arguments: Any) -> None:
        super().__init__(waiting, *arguments)
        self.session = session


class Opener(Handle["Session"]):
    """What sessions are made by: `Connection`."""

    async def session(self, name: str | None = None, transactional: bool = False) -> Session:
        raise NotImplementedError

    async def close(self, timeout: float = 5.0) -> list[Message]:
        raise NotImplementedError


class Session:
    """Made by Connection.session."""

    def __init__(self, connection: Opener, waiting: Waiting) -> None:
        self.connection = connection
        self.name = waiting.worker.name
        self.events = waiting.worker.events
        self._waiting, self._core, self._topology = waiting, waiting.core, waiting.core.topology

    @property
    def transactional(self) -> bool:
        return self._waiting.worker.transaction is not None

    @property
    def senders(self) -> list[Sender]:
        """Those that are open."""
        return self._core.senders.all()

    @property
    def receivers(self) -> list[Receiver]:
        """Those that are open."""
        return self._core.receivers.all()

    def unsettled(self) -> int:
        """Messages of all senders without a confirm, or in a transaction that is not committed; exact."""
        return self._core.unsettled()

    def check_error(self) -> None:
        """Raises the error that ended the session or its transaction, if there is one."""
        with self._waiting.worker.monitor:
            self._waiting.worker.check()

    def get_error(self) -> MessagingError | None:
        """The error that `check_error` raises."""
        return error_of(self.check_error)

    def set_async_exception_notify_handler(self, handler: Handler | None) -> None:
        """As for a connection, for the end of the session."""
        self._waiting.worker.ending.failed = notifier(self, handler)

    # -- senders and receivers

    async def sender(
        self,
        address: str,
        capacity: int = 1000,
        on_settled: SettledCallback | None = None,
        timeout: float | None = None,
        exactly_once: bool | str = False,
    ) -> Sender:
        """A sender to an address, see `client_lib.addresses.address`.

        `exactly_once`: what is sent again after a fail-over enters the queue, or passes the exchange, once; it has to
        be declared with `x-message-deduplication` (AssertionFailed if not).  True: by message id; a text: by the header
        of that name, its `x-deduplication-key`.  `send` raises ValueError for a message without key, or with CC or BCC.

        Raises AddressError and its subclasses, Timeout."""

        def make(routing_key: str, exchange: str, mandatory: bool) -> Sender:
            return self._sender(routing_key, exchange, capacity, mandatory, on_settled)

        return await self._waiting.run(self._core.senders.opening(address, make, exactly_once), timeout)

    async def receiver(
        self,
        address: str,
        capacity: int = 100,
        drop_duplicates: bool | int = False,
        no_ack: bool = False,
        timeout: float | None = None,
    ) -> Receiver:
        """A receiver from an address, see `client_lib.addresses.address`.  `capacity` messages are fetched ahead; 0:
        each fetch asks the broker for one.

        `drop_duplicates`: each message id is handed out once; the number of ids to remember, or True.  Raises
        AddressError and its subclasses, Timeout."""

        def make(queue: str, unreliable: bool, exclusive: bool, arguments: Mapping[str, Any]) -> Receiver:
            return self._receiver(queue, capacity, no_ack or unreliable, exclusive, arguments, drop_duplicates)

        return await self._waiting.run(self._core.receivers.opening(address, make), timeout)

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
        return self._core.senders.add(self._sender(routing_key, exchange, capacity, mandatory, on_settled))

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
        """Subscribes to a queue; asks and declares nothing.  `capacity` is the prefetch limit (None: no limit, 0: each
        fetch asks for one message); with `no_ack` there is none.  `drop_duplicates` is the window of the filter (True:
        its default)."""
        receiver = self._receiver(queue, capacity, no_ack, exclusive, arguments, drop_duplicates)
        return await self._waiting.run(self._core.receivers.subscribing(receiver), timeout)

    async def next_receiver(self, timeout: float | None = None) -> Receiver:
        """The receiver that has the oldest of all messages that have arrived.  Another caller may be quicker to
        fetch.

        Raises Empty, SessionError, ConnectionError."""
        receiver = await self._waiting.next_receiver(timeout)
        assert isinstance(receiver, Receiver)
        return receiver

    async def get(
        self, queue: str, no_ack: bool = False, timeout: float | None = None, build: Build | None = None
    ) -> Message | None:
        """basic.get: one message, None if the queue is empty."""
        return await self._waiting.run(self._core.receivers.getting(queue, no_ack, build), timeout)

    # -- settling

    async def acknowledge(
        self, message: Message | None = None, disposition: Disposition | None = None, sync: bool = True
    ) -> None:
        """Settles one message, or all that were fetched in this session; with `sync` waits until the broker knows.

        Ignored are messages that were settled before, need no acknowledgement, or whose connection was lost.  Raises
        ValueError (not received here), SessionError, ConnectionError; in a transaction TransactionAborted for a
        message that was fetched before a loss or rollback."""
        disposition = disposition or Disposition.ACCEPT
        if message is None:
            self._waiting.settle_all(disposition)
        else:
            self._waiting.settle(message, disposition)
        if sync:
            await self.fence()

    def reject(self, message: Message) -> None:
        """Rejects the message: the broker drops it or dead-letters it."""
        self._waiting.settle(message, Disposition.REJECT)

    def release(self, message: Message) -> None:
        """Gives the message back to its queue."""
        self._waiting.settle(message, Disposition.RELEASE)

    async def fence(self, timeout: float | None = None) -> None:
        """Waits until the broker has read all acknowledgements, rejects and releases.  Raises Timeout."""
        await self._waiting.run(self._core.fencing(), timeout)

    # -- transactions

    async def commit(self, timeout: float | None = None) -> None:
        """Commits everything sent and settled since the last commit or rollback.  `timeout` in seconds.

        Raises NontransactionalSession; TransactionAborted: nothing has happened, call rollback();
        TransactionUnknown: all of it or nothing has happened, a new transaction has begun; Timeout: its text says
        whether nothing has happened and the transaction is still open, or the outcome is not known yet: commit() again
        waits for it; Returned: committed, but no queue was bound for a mandatory message."""
        await self._waiting.run(self._core.transactions.committing(), timeout)

    async def rollback(self, timeout: float | None = None) -> None:
        """Discards everything sent and settled since the last commit or rollback; all messages that were fetched and
        whose acknowledgement was not committed are delivered again.

        Raises NontransactionalSession, TransactionError (a commit() that had timed out was done after all),
        TransactionUnknown (the outcome of that commit is unknown), Timeout (call it again)."""
        await self._waiting.run(self._core.transactions.rolling_back(), timeout)

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
        steps = self._topology.declaring_queue(queue, passive, durable, exclusive, auto_delete, arguments)
        return await self._waiting.run(steps, timeout)

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
        steps = self._topology.declaring_exchange(exchange, exchange_type, passive, durable, auto_delete, arguments)
        await self._waiting.run(steps, timeout)

    async def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Binds now and after each fail-over."""
        await self._waiting.run(self._topology.binding_queue(queue, exchange, routing_key, arguments), timeout)

    async def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        steps = self._topology.binding_queue(queue, exchange, routing_key, arguments, bind=False)
        await self._waiting.run(steps, timeout)

    async def bind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        """Messages of `source` go to `destination` as well, now and after each fail-over."""
        await self._waiting.run(self._topology.binding_exchange(destination, source, routing_key, arguments), timeout)

    async def unbind_exchange(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments | None = None,
        timeout: float | None = None,
    ) -> None:
        steps = self._topology.binding_exchange(destination, source, routing_key, arguments, bind=False)
        await self._waiting.run(steps, timeout)

    async def delete_queue(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> None:
        await self._waiting.run(self._topology.deleting_queue(queue, if_unused, if_empty), timeout)

    async def delete_exchange(self, exchange: str, if_unused: bool = False, timeout: float | None = None) -> None:
        await self._waiting.run(self._topology.deleting_exchange(exchange, if_unused), timeout)

    async def purge_queue(self, queue: str, timeout: float | None = None) -> int:
        """Returns how many messages were removed."""
        return await self._waiting.run(self._topology.purging_queue(queue), timeout)

    async def declare(self, method: str, remember: bool, timeout: float | None = None, **arguments: Any) -> Any:
        """Calls a method of the channel, by pika's name, and returns its answer; with `remember` also after
        each fail-over."""
        return await self._waiting.answer(self._topology.start_declaration(method, remember, **arguments), timeout)

    async def manage(self, method: str, arguments: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """A management request to a qpidd-py broker: its answer, of one part.  It is sent again after a fail-over.

        Raises InvalidOption where there is no management."""
        body = json.dumps(arguments).encode()
        request = start_request(self._waiting.worker.requests, method, body)
        found = await self._waiting.answer(request, timeout)
        answer: dict[str, Any] = json.loads(found)
        return answer

    # -- waiting, end

    async def sync(self, timeout: float | None = None) -> None:
        """Waits until all messages are confirmed (in a transaction: written) and all acknowledgements written.

        Raises Timeout, and the first refusal that no call has raised yet."""
        await self._waiting.sync(timeout)

    async def close(self, timeout: float | None = 5.0) -> None:
        """Waits for what is unsettled, then closes the channel.  Never longer than `timeout` seconds; in a callback of
        the threaded API, and when cancelled with asyncio, not at all.  An open transaction is rolled back.  Harmless
        when repeated.

        What is not confirmed then is in doubt: it is logged, and on_settled is called with SessionClosed.  Raises,
        when the session is closed, the first refusal that no call has raised yet, or InDoubt; not in a callback."""
        await self._waiting.close(timeout)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with giving_way(error):
            await self.close()

    # -- inside

    def _sender(self, *arguments: Any) -> Sender:
        return Sender(self, self._waiting, *arguments)

    def _receiver(self, *arguments: Any) -> Receiver:
        return self._core.receivers.new(partial(Receiver, self, self._waiting), *arguments)
