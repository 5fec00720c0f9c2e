"""A session as the application sees it.

What survives a fail-over, and what may come twice:

* A message given to a sender is kept until the broker confirms it; if the connection is lost before, it is sent again,
  in order, with the same id and the header `x-resent`.  The first copy may have arrived: consumers may see both.
* Queues, exchanges and bindings declared here are declared again, then receivers subscribe again.
* What a receiver had fetched and not acknowledged is delivered again; acknowledging the old delivery does nothing,
  unless the receiver drops duplicates: then the new copy is attached to the old message and settled with it.

The states and the locking are explained in `client_lib.channel_worker`.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from client_lib.channel_worker import ChannelWorker, Command, Declaration
from client_lib.dedup import DuplicateFilter
from client_lib.errors import Closed, Timeout
from client_lib.ledger import Disposition
from client_lib.message import Message
from client_lib.receiver import Delivery, Receiver
from client_lib.sender import Sender, SettledCallback

if TYPE_CHECKING:
    from client_lib.connection import Connection


class Session(ChannelWorker):
    """Made by Connection.session."""

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, name)
        self._producer = f"{name}-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count(1)
        self._tags = itertools.count(1)

    # -- for the application

    def sender(
        self,
        routing_key: str = "",
        exchange: str = "",
        capacity: int = 1000,
        mandatory: bool = False,
        on_settled: SettledCallback | None = None,
    ) -> Sender:
        """A sender to a queue (the default exchange) or to an exchange.

        Without a routing key each message's `subject` is used."""
        self.check()
        return Sender(self, routing_key, exchange, capacity, mandatory, on_settled)

    def receiver(
        self,
        queue: str,
        capacity: int = 100,
        no_ack: bool = False,
        exclusive: bool = False,
        drop_duplicates: bool | int = False,
        timeout: float | None = None,
    ) -> Receiver:
        """Subscribes.  `capacity` is the prefetch limit; with `no_ack` there is none.

        `drop_duplicates` is the window of the filter (True: its default)."""
        window: DuplicateFilter[Delivery] | None = None
        if drop_duplicates:
            window = DuplicateFilter() if drop_duplicates is True else DuplicateFilter(drop_duplicates)
        tag = f"{self.name}-{next(self._tags)}"
        receiver = Receiver(self, queue, tag, capacity, no_ack, exclusive, window)

        def subscribe(channel: Any, done: Callable[[Any], None]) -> None:
            if tag in channel.consumer_tags:  # restored already, after the first answer was lost
                done(None)
                return
            self._receivers[tag] = receiver
            self._subscribe(channel, receiver, done)

        try:
            self._command(subscribe, timeout)
        except Timeout:
            self.close_receiver(receiver)
            raise
        return receiver

    def declare_queue(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Declares a queue now and after each fail-over; returns its name, which is generated here when empty."""
        queue = queue or f"{self.name}.{uuid.uuid4().hex}"
        options = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete, "arguments": arguments}
        self._declare("queue_declare", timeout, not passive, queue=queue, passive=passive, **options)
        return queue

    def declare_exchange(
        self,
        exchange: str,
        exchange_type: str = "direct",
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Declares an exchange now and after each fail-over."""
        options = {"durable": durable, "auto_delete": auto_delete, "arguments": arguments, "passive": passive}
        self._declare(
            "exchange_declare", timeout, not passive, exchange=exchange, exchange_type=exchange_type, **options
        )

    def bind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Binds now and after each fail-over."""
        self._declare(
            "queue_bind", timeout, True, queue=queue, exchange=exchange, routing_key=routing_key, arguments=arguments
        )

    def unbind_queue(
        self,
        queue: str,
        exchange: str,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        where = {"queue": queue, "exchange": exchange, "routing_key": routing_key, "arguments": arguments}
        self._forget(lambda declared: declared.method == "queue_bind" and declared.arguments == where)
        self._declare("queue_unbind", timeout, False, **where)

    def delete_queue(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, timeout: float | None = None
    ) -> None:
        self._declare("queue_delete", timeout, False, queue=queue, if_unused=if_unused, if_empty=if_empty)
        self._forget(lambda declared: declared.concerns("queue", queue))

    def delete_exchange(self, exchange: str, if_unused: bool = False, timeout: float | None = None) -> None:
        self._declare("exchange_delete", timeout, False, exchange=exchange, if_unused=if_unused)
        self._forget(lambda declared: declared.concerns("exchange", exchange))

    def purge_queue(self, queue: str, timeout: float | None = None) -> int:
        """Returns how many messages were removed."""
        return int(self._declare("queue_purge", timeout, False, queue=queue).method.message_count)

    def acknowledge(self, message: Message | None = None) -> None:
        """Settles one message, or all that were fetched in this session.  Sent soon, not waited for."""
        if message is not None:
            self._settle(message, Disposition.ACCEPT)
            return
        with self.condition:
            fetched = list(self.fetched.values())
        for message in fetched:
            self._settle(message, Disposition.ACCEPT)

    def reject(self, message: Message) -> None:
        """The broker drops the message, or dead-letters it."""
        self._settle(message, Disposition.REJECT)

    def release(self, message: Message) -> None:
        """The message goes back to its queue."""
        self._settle(message, Disposition.RELEASE)

    def unsettled(self) -> int:
        """Messages of all senders without a confirm, exact."""
        with self.condition:
            return self.outbox.unsettled

    def sync(self, timeout: float | None = None) -> None:
        """Waits until all messages are confirmed and all acknowledgements are written.  Raises Timeout."""
        with self.condition:
            if not self.wait_for(self.idle, timeout):
                raise Timeout(f"{self.outbox.unsettled} messages unsettled after {timeout} s")
            self.check()

    def close(self, timeout: float | None = 5.0) -> None:
        """Waits for what is unsettled, then closes the channel.  Never longer than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            with self.condition:
                if self._error is None:
                    self.wait_for(self.idle, timeout)
        finally:
            self._connection.close_session(self, deadline)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- for senders and receivers

    def next_message_id(self) -> str:
        return f"{self._producer}:{next(self._numbers)}"

    def refuse_io_thread(self, what: str) -> None:
        if self._connection.in_io_thread():
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
            self.condition.wait(left)
        return True

    def idle(self) -> bool:
        """Nothing unsettled on the sending side and no acknowledgement waiting to be written."""
        return self.outbox.unsettled == 0 and self._ledger.decided == 0

    def close_receiver(self, receiver: Receiver) -> None:
        with self.condition:
            if receiver.error is not None:
                return
            receiver.error = Closed(f"the receiver of {receiver.queue} is closed")
            self._receivers.pop(receiver.consumer_tag, None)
            for message in receiver.drain():
                if message._delivery is not None and not receiver.no_ack:
                    self.settle_tag(message._delivery.generation, message._delivery.delivery_tag, Disposition.RELEASE)
            self.condition.notify_all()
        if self._error is None:
            self._enqueue(Command(lambda channel, done: self._cancel(channel, receiver, done)))

    # -- application threads

    def _settle(self, message: Message, disposition: Disposition) -> None:
        delivery = message._delivery
        if delivery is None:
            raise ValueError("not a received message, or received without acknowledgement")
        receiver = delivery.receiver
        with self.condition:
            self.check()
            if self.fetched.pop(delivery, None) is None:
                return  # settled before, or forgotten with its connection
            tags = [(delivery.generation, delivery.delivery_tag), *delivery.copies]
            alive = [tag for generation, tag in tags if generation == self.generation]
            for index, tag in enumerate(alive):
                # of several copies given back one is enough
                extra = index > 0 and disposition is Disposition.RELEASE
                self.settle_tag(self.generation, tag, Disposition.ACCEPT if extra else disposition)
            if receiver.duplicates is not None:
                if disposition is Disposition.RELEASE:
                    receiver.duplicates.released(message.id)
                else:
                    receiver.duplicates.finished(message.id)
        if alive:
            kind = "ack" if disposition is Disposition.ACCEPT else "reject"
            self.events.message(kind, receiver.queue, message.id)

    def _declare(self, method: str, timeout: float | None, remember: bool, **arguments: Any) -> Any:
        if arguments.get("arguments", 0) is None:
            arguments["arguments"] = {}
        declaration = Declaration(method, arguments)

        def run(channel: Any, done: Callable[[Any], None]) -> None:
            getattr(channel, method)(**arguments, callback=done)

        answer = self._command(run, timeout)
        with self.condition:
            if remember and declaration not in self._topology:
                self._topology.append(declaration)
        return answer

    def _forget(self, gone: Callable[[Declaration], bool]) -> None:
        with self.condition:
            self._topology = [declared for declared in self._topology if not gone(declared)]

    def _command(self, run: Callable[[Any, Callable[[Any], None]], None], timeout: float | None) -> Any:
        self.refuse_io_thread("a command")
        command = Command(run)
        self._enqueue(command)
        try:
            return command.future.result(timeout)
        except TimeoutError:
            command.future.cancel()
            raise Timeout(f"no answer within {timeout} s") from None

    def _enqueue(self, command: Command) -> None:
        with self.condition:
            self.check()
            self._commands.append(command)
        self.wake()
