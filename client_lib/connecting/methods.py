"""The methods of AMQP on a channel (pure).

They are named, and take arguments, as those of pika's Channel.  A `callback` gets the frame of the answer; without one
most of them ask for no answer (no-wait).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any
from uuid import uuid4

import pika
from pika.exceptions import DuplicateConsumerTag, MethodNotImplemented
from pika.spec import Basic, Confirm, Exchange, Queue, Tx
from pika.spec import Channel as Flow
from pika.validators import require_string

from client_lib.connecting.channel import Callback, ChannelCore, OnMessage
from client_lib.connecting.incoming import Confirmed
from client_lib.connecting.wire import content_frames, publish_method

Arguments = Mapping[str, Any] | None
Got = Callable[[Any, Any, bytes], Any]
"""method, properties, body; the method is None if the queue was empty."""


class Channel(ChannelCore):
    """Made by `Conversation.channel`.  All calls raise ChannelWrongStateError if it is not open."""

    # -- exchanges and queues

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: Any = "direct",
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> None:
        require_string(exchange, "exchange")
        kind = exchange_type.value if isinstance(exchange_type, Enum) else exchange_type
        flags = passive, durable, auto_delete, internal, callback is None
        self._ask(Exchange.Declare(0, exchange, kind, *flags, _table(arguments)), callback, Exchange.DeclareOk)

    def exchange_delete(
        self, exchange: str | None = None, if_unused: bool = False, callback: Callback | None = None
    ) -> None:
        self._ask(Exchange.Delete(0, exchange, if_unused, callback is None), callback, Exchange.DeleteOk)

    def exchange_bind(
        self,
        destination: str,
        source: str,
        routing_key: str = "",
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> None:
        where = destination, source, routing_key, callback is None
        self._ask(Exchange.Bind(0, *where, _table(arguments)), callback, Exchange.BindOk)

    def exchange_unbind(
        self,
        destination: str | None = None,
        source: str | None = None,
        routing_key: str = "",
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> None:
        where = destination, source, routing_key, callback is None
        self._ask(Exchange.Unbind(0, *where, _table(arguments)), callback, Exchange.UnbindOk)

    def queue_declare(
        self,
        queue: str,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> None:
        require_string(queue, "queue")
        flags = passive, durable, exclusive, auto_delete, callback is None
        self._ask(Queue.Declare(0, queue, *flags, _table(arguments)), callback, Queue.DeclareOk)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, callback: Callback | None = None
    ) -> None:
        require_string(queue, "queue")
        self._ask(Queue.Delete(0, queue, if_unused, if_empty, callback is None), callback, Queue.DeleteOk)

    def queue_purge(self, queue: str, callback: Callback | None = None) -> None:
        require_string(queue, "queue")
        self._ask(Queue.Purge(0, queue, callback is None), callback, Queue.PurgeOk)

    def queue_bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str | None = None,
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> None:
        require_string(queue, "queue")
        require_string(exchange, "exchange")
        where = queue, exchange, queue if routing_key is None else routing_key, callback is None
        self._ask(Queue.Bind(0, *where, _table(arguments)), callback, Queue.BindOk)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str | None = None,
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> None:
        """Waits for an answer always: AMQP has no no-wait here."""
        require_string(queue, "queue")
        where = queue, exchange, queue if routing_key is None else routing_key
        self.ask(Queue.Unbind(0, *where, _table(arguments)), callback, Queue.UnbindOk)

    def _ask(self, method: Any, callback: Callback | None, answer: type) -> None:
        self.ask(method, callback, *(() if callback is None else (answer,)))

    # -- receiving

    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        global_qos: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.ask(Basic.Qos(prefetch_size, prefetch_count, global_qos), callback, Basic.QosOk)

    def basic_consume(
        self,
        queue: str,
        on_message_callback: OnMessage,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        arguments: Arguments = None,
        callback: Callback | None = None,
    ) -> str:
        """Returns the consumer tag."""
        require_string(queue, "queue")
        tag = consumer_tag or f"ctag{self.channel_number}.{uuid4().hex}"
        if tag in self._consumers:
            raise DuplicateConsumerTag(tag)
        flags = {"no_ack": auto_ack, "exclusive": exclusive, "arguments": _table(arguments)}
        self.ask(Basic.Consume(queue=queue, consumer_tag=tag, **flags), callback, Basic.ConsumeOk)
        self._consumers[tag] = on_message_callback
        return tag

    def basic_cancel(self, consumer_tag: str, callback: Callback | None = None) -> None:
        """Messages that arrive before the answer are delivered as before."""

        def answered(frame: Any) -> None:
            self.forget_consumer(consumer_tag)
            if callback is not None:
                callback(frame)

        self.ask(Basic.Cancel(consumer_tag), answered, Basic.CancelOk)

    def basic_get(self, queue: str, callback: Got, auto_ack: bool = False) -> None:
        require_string(queue, "queue")

        def answered(answer: Any) -> None:
            callback(*(answer if isinstance(answer, tuple) else (None, None, b"")))

        self.ask(Basic.Get(queue=queue, no_ack=auto_ack), answered, Basic.GetOk, Basic.GetEmpty)

    def basic_reject(self, delivery_tag: int, requeue: bool = True) -> None:
        self.require_open()
        self.send(Basic.Reject(delivery_tag, requeue))

    def basic_recover(self, requeue: bool = False, callback: Callback | None = None) -> None:
        self.ask(Basic.Recover(requeue), callback, Basic.RecoverOk)

    # -- sending

    def basic_publish(self, exchange: str, routing_key: str, body: bytes, properties: Any = None) -> None:
        self.require_open()
        payload = b"".join((properties or pika.BasicProperties()).encode())
        method = publish_method(self.channel_number, exchange, routing_key, False)
        frames = content_frames(self.channel_number, payload, body, self.connection.body_max)
        self.connection.write(b"".join([method, *frames]))

    def select_confirms(self, confirmed: Confirmed, done: Callback) -> None:
        """Raises MethodNotImplemented if the broker knows no publisher confirms."""
        if not self.connection.supports_confirms:
            raise MethodNotImplemented("Confirm.Select not Supported by Server")
        self.ask(Confirm.Select(False), done, Confirm.SelectOk)
        self.confirmed = confirmed

    def flow(self, active: bool, callback: Callable[[bool], Any] | None = None) -> None:
        """Asks the broker to stop sending, or to go on.  `callback` gets what it says."""

        def answered(frame: Any) -> None:
            if callback is not None:
                callback(bool(frame.method.active))

        self.ask(Flow.Flow(active), answered, Flow.FlowOk)

    def tx_select(self, callback: Callback | None = None) -> None:
        self.ask(Tx.Select(), callback, Tx.SelectOk)

    def tx_commit(self, callback: Callback | None = None) -> None:
        self.ask(Tx.Commit(), callback, Tx.CommitOk)

    def tx_rollback(self, callback: Callback | None = None) -> None:
        self.ask(Tx.Rollback(), callback, Tx.RollbackOk)


def _table(arguments: Arguments) -> dict[str, Any]:
    return dict(arguments or {})
