"""The channel of `FailoverConnection`: the methods of pika's BlockingChannel on a session that fails over.

docs/from-pika.md says what a fail-over means for each of them.  Callbacks run in the thread that calls start_consuming,
consume or process_data_events of the connection; publishing and acknowledging may be done from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pika
import pika.exceptions
from pika.exchange_type import ExchangeType
from pika.validators import require_callback, require_string

from client_lib.core.ledger import Disposition
from client_lib.errors import MessagingError
from client_lib.failover.consuming import Consuming, Delivered
from client_lib.failover.content import Incoming
from client_lib.failover.core import ChannelCore, ConnectionOwner
from client_lib.failover.publishing import ChannelPublishing
from client_lib.failover.topology import Arguments, ChannelTopology, table
from client_lib.steps import Steps
from client_lib.unheard import giving_way

OnMessage = Callable[[Any, Any, Any, bytes], Any]
ReturnCallback = Callable[["FailoverChannel", Any, Any, bytes], Any]
NOTHING = (None, None, None)


class FailoverChannel:
    """Made by FailoverConnection.channel."""

    def __init__(self, connection: ConnectionOwner, number: int) -> None:
        self.connection = connection
        self.channel_number = number
        self._core = ChannelCore(connection, number)
        self._topology = ChannelTopology(self._core)
        self._consuming = Consuming(self._core)
        self._publishing = ChannelPublishing(self._core)

    def __int__(self) -> int:
        return self.channel_number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel_number} {'open' if self.is_open else 'closed'}>"

    def __enter__(self) -> FailoverChannel:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with giving_way(error):
            if self.is_open:
                self.close()

    @property
    def is_open(self) -> bool:
        """True while it can be used, also during a fail-over."""
        return not self._core.closed and self._core.reason() is None

    @property
    def is_closed(self) -> bool:
        return not self.is_open

    def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None:
        """Waits a moment for confirms, cancels the consumers and closes; unacknowledged messages go back to their
        queues.

        Raises ChannelWrongStateError if it is closed; when it is closed, UnroutableError, NackError or PublishInDoubt
        for a message that no call has raised an error for."""
        self._core.check_open()
        try:
            self._core.end()
        except MessagingError as error:
            raise self._publishing.failed(error) from error

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
        self._publishing.publish(exchange, routing_key, body, properties, mandatory)

    def wait_for_confirms(self, timeout: float | None = None) -> None:
        """Ours: waits at most `timeout` seconds until everything published is confirmed.  Raises as basic_publish, for
        the first message that was not taken; call it again for the next."""
        self._publishing.wait(timeout)

    @property
    def unconfirmed(self) -> int:
        """Ours: how many published messages are not confirmed yet."""
        return self._publishing.unconfirmed()

    def confirm_delivery(self) -> None:
        """Confirms are always on; from now on a returned message raises UnroutableError even if there are callbacks."""
        self._core.check_open()
        if self._core.transactional:
            self._core.refuse("cannot switch from tx to confirm mode")
        self._publishing.confirming = True

    def confirm_exactly_once(self, header: str | None = None) -> None:
        """Ours: confirm_delivery, and what is sent again after a fail-over enters its queue, or passes its exchange,
        once.

        The first basic_publish to a queue or exchange asks the broker: it has to be declared with
        `x-message-deduplication` (else AssertionFailed).  `header`: its `x-deduplication-key`; None: message ids are
        the keys."""
        self.confirm_delivery()
        self._publishing.once(header)

    def add_on_return_callback(self, callback: ReturnCallback) -> None:
        """callback(channel, method, properties, body) for each returned message."""
        require_callback(callback)
        self._publishing.on_return.append(lambda back: callback(self, back.method, back.properties, back.body))

    # -- transactions

    def tx_select(self) -> Any:
        """Begins transactions; before anything is consumed on this channel.  Returns the frame of Tx.SelectOk."""
        self._core.check_open()
        if self._publishing.confirming:
            self._core.refuse("cannot switch from confirm to tx mode")
        if not self._core.transactional:
            if self._consuming.used:
                raise NotImplementedError("tx_select after messages were consumed: call it before basic_consume")
            self.wait_for_confirms()
            self._core.begin_transactions()
            self._publishing.use(self._core.session, None)
        return pika.frame.Method(self.channel_number, pika.spec.Tx.SelectOk())

    def tx_commit(self) -> Any:
        """Raises AMQPConnectionError if the connection was lost meanwhile: `client_lib.TransactionAborted` (nothing has
        happened) or `client_lib.TransactionUnknown`; then tx_rollback(), and do the transaction again."""
        self._end_transaction(self._core.working.transactions.committing())
        return pika.frame.Method(self.channel_number, pika.spec.Tx.CommitOk())

    def tx_rollback(self) -> Any:
        """Undoes what was published and settled since the last commit; delivered messages are delivered again."""
        self._end_transaction(self._core.working.transactions.rolling_back())
        self._consuming.rolled_back()
        return pika.frame.Method(self.channel_number, pika.spec.Tx.RollbackOk())

    def _end_transaction(self, steps: Steps[None]) -> None:
        self._core.check_open()
        if not self._core.transactional:
            self._core.refuse("channel is not transactional")
        try:
            self._core.session._waiting.run(steps, None)
        except MessagingError as error:
            raise self._publishing.failed(error) from error

    # -- consuming

    def basic_consume(
        self,
        queue: str,
        on_message_callback: OnMessage,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """on_message_callback(channel, method, properties, body); returns the consumer tag.

        Raises DuplicateConsumerTag, ChannelClosedByBroker."""
        require_string(queue, "queue")
        require_callback(on_message_callback, "on_message_callback")
        self._core.check_open()

        def on_message(message: Incoming) -> None:
            on_message_callback(self, *self._consuming.numbered(message))

        name = self._topology.named(queue)
        return self._consuming.subscribe(name, on_message, auto_ack, exclusive, consumer_tag, arguments).tag

    def basic_cancel(self, consumer_tag: str) -> list[Delivered]:
        """Ends a consumer.  With automatic acknowledgement, returns the messages that had arrived and were not handed
        out; otherwise those messages go back to the queue."""
        return self._consuming.cancel(consumer_tag)

    def start_consuming(self) -> None:
        """Runs callbacks until all consumers of this channel are cancelled.

        Raises ReentrancyError from inside a callback, ChannelClosedByBroker, AMQPConnectionError, and what a callback
        raises."""
        if self.connection.inbox.dispatching_here:
            raise pika.exceptions.ReentrancyError("start_consuming may not be called from inside a callback")
        self._core.check_open()
        while self._consuming.consumers:
            self._consuming.process(None)

    def stop_consuming(self, consumer_tag: str | None = None) -> None:
        """Cancels one consumer, or all; start_consuming returns when none is left."""
        if consumer_tag:
            self.basic_cancel(consumer_tag)
            return
        if self._consuming.generator is not None:
            self.cancel()
        for tag in self.consumer_tags:
            self.basic_cancel(tag)

    def consume(
        self,
        queue: str,
        auto_ack: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        inactivity_timeout: float | None = None,
        consumer_tag: str | None = None,
    ) -> Iterator[Delivered | tuple[None, None, None]]:
        """Yields (method, properties, body), and three times None after `inactivity_timeout` seconds without a message;
        ends when cancel() is called or the broker cancels.

        Raises ValueError while a generator with other parameters exists."""
        self._core.check_open()
        name = self._topology.named(queue)
        consumer = self._consuming.generate(name, auto_ack, exclusive, arguments, consumer_tag)
        while consumer.alive:
            message = self._consuming.next_message(consumer, inactivity_timeout)
            if message is not None:
                yield self._consuming.numbered(message)
            elif consumer.alive:
                yield NOTHING

    def get_waiting_message_count(self) -> int:
        """Messages that the generator of consume() can yield without waiting."""
        generator = self._consuming.generator
        return 0 if generator is None else generator.receiver.available()

    def cancel(self) -> int:
        """Ends the generator of consume(); what it has not yielded goes back to the queue.  Returns 0, as pika does."""
        self._consuming.cancel_generator()
        return 0

    def add_on_cancel_callback(self, callback: Callable[[Any], Any]) -> None:
        """callback(frame of Basic.Cancel) when the broker cancels a consumer."""
        require_callback(callback)
        self._consuming.on_cancel.append(callback)

    @property
    def consumer_tags(self) -> list[str]:
        return list(self._consuming.consumers)

    def basic_get(self, queue: str, auto_ack: bool = False) -> Delivered | tuple[None, None, None]:
        """One message, or three times None."""
        require_string(queue, "queue")
        self._core.check_open()
        getting = self._core.working.receivers.getting(self._topology.named(queue), auto_ack, Incoming)
        message = self._core.run(getting)
        return NOTHING if message is None else self._consuming.numbered(message)

    # -- settling

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Acknowledges.  Does nothing for a delivery of a lost connection, whose message is delivered again."""
        self._consuming.settle(delivery_tag, multiple, Disposition.ACCEPT)

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """As basic_ack; without `requeue` the broker drops the message, or dead-letters it."""
        self._consuming.settle(delivery_tag, multiple, Disposition.RELEASE if requeue else Disposition.REJECT)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """basic_nack of one message."""
        self.basic_nack(delivery_tag, requeue=requeue)

    def basic_recover(self, requeue: bool = False) -> None:
        """Everything handed out and not settled is delivered again.  Raises NotImplementedError without `requeue`: no
        current broker redelivers to the same consumer."""
        self._core.check_open()
        if not requeue:
            raise NotImplementedError("basic_recover(requeue=False) is not supported; use requeue=True")
        self._consuming.recover()

    # -- limits

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, global_qos: bool = False) -> None:
        """The limit of each consumer that is subscribed from now on; with `global_qos` that of the channel.  0: none.

        Raises NotImplementedError for a prefetch_size."""
        self._core.check_open()
        if prefetch_size:
            raise NotImplementedError(f"prefetch_size={prefetch_size}: brokers do not offer it; use prefetch_count")
        if global_qos:
            self._limit("basic_qos", True, prefetch_count=prefetch_count, global_qos=True)
        else:
            self._consuming.prefetch = prefetch_count

    def flow(self, active: bool) -> bool:
        """Asks the broker to pause deliveries on this channel, or to go on; returns its answer.

        A broker that cannot (RabbitMQ) closes the channel with 540."""
        self._core.check_open()
        return bool(self._limit("flow", not active, active=active))

    def _limit(self, method: str, remember: bool, **arguments: Any) -> Any:
        topology = self._core.working.topology
        topology.forget(lambda declared: declared.method == method)
        return self._core.answer(topology.start_declaration(method, remember, **arguments))

    # -- queues, exchanges and bindings: declared now and after each fail-over

    def queue_declare(
        self,
        queue: str,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments = None,
    ) -> Any:
        """Returns the frame of Queue.DeclareOk.  An empty name is replaced by a new one, the same over fail-overs."""
        require_string(queue, "queue")
        name = self._topology.new_name(queue)
        flags = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete, "passive": passive}
        return self._topology.declare("queue_declare", not passive, queue=name, **flags, arguments=table(arguments))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False) -> Any:
        """Returns the frame of Queue.DeleteOk."""
        require_string(queue, "queue")
        return self._topology.delete("queue", self._topology.named(queue), if_unused=if_unused, if_empty=if_empty)

    def queue_purge(self, queue: str) -> Any:
        """Returns the frame of Queue.PurgeOk."""
        require_string(queue, "queue")
        return self._topology.declare("queue_purge", False, queue=self._topology.named(queue))

    def queue_bind(self, queue: str, exchange: str, routing_key: str | None = None, arguments: Arguments = None) -> Any:
        """Returns the frame of Queue.BindOk.  The routing key is the queue's name if none is given."""
        require_string(queue, "queue")
        require_string(exchange, "exchange")
        binding = self._topology.binding(queue, exchange, routing_key, arguments)
        return self._topology.declare("queue_bind", True, **binding)

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: Arguments = None
    ) -> Any:
        """Returns the frame of Queue.UnbindOk."""
        require_string(queue, "queue")
        return self._topology.unbind("queue", self._topology.binding(queue, exchange, routing_key, arguments))

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: ExchangeType | str = ExchangeType.direct,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments = None,
    ) -> Any:
        """Returns the frame of Exchange.DeclareOk."""
        require_string(exchange, "exchange")
        flags = {"durable": durable, "auto_delete": auto_delete, "internal": internal, "passive": passive}
        kind = exchange_type.value if isinstance(exchange_type, ExchangeType) else exchange_type
        what = {"exchange": exchange, "exchange_type": kind, **flags, "arguments": table(arguments)}
        return self._topology.declare("exchange_declare", not passive, **what)

    def exchange_delete(self, exchange: str | None = None, if_unused: bool = False) -> Any:
        """Returns the frame of Exchange.DeleteOk."""
        require_string(exchange, "exchange")
        return self._topology.delete("exchange", str(exchange), if_unused=if_unused)

    def exchange_bind(self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None) -> Any:
        """Returns the frame of Exchange.BindOk."""
        require_string(destination, "destination")
        require_string(source, "source")
        ends = {"destination": destination, "source": source, "routing_key": routing_key}
        return self._topology.declare("exchange_bind", True, **ends, arguments=table(arguments))

    def exchange_unbind(
        self,
        destination: str | None = None,
        source: str | None = None,
        routing_key: str = "",
        arguments: Arguments = None,
    ) -> Any:
        """Returns the frame of Exchange.UnbindOk."""
        require_string(destination, "destination")
        require_string(source, "source")
        ends = {"destination": destination, "source": source, "routing_key": routing_key}
        return self._topology.unbind("exchange", {**ends, "arguments": table(arguments)})
