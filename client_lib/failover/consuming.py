"""Consuming with `FailoverChannel`: callbacks, the generator, basic_get; settling by tags that outlive connections."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pika.exceptions
from pika.validators import require_callback, require_string

from client_lib.core.ledger import Disposition
from client_lib.errors import MessagingError, ServerError
from client_lib.failover.consumer import AnnouncingReceiver, Consumer
from client_lib.failover.content import Incoming
from client_lib.failover.tags import UnknownTag
from client_lib.failover.topology import Topology
from client_lib.session import Session

if TYPE_CHECKING:
    from client_lib.failover.connection import FailoverConnection

LOGGER = logging.getLogger("client_lib")
PRECONDITION_FAILED = 406
Delivered = tuple[Any, Any, bytes]
OnMessage = Callable[[Any, Any, Any, bytes], Any]
NOTHING = (None, None, None)


class Consuming(Topology):
    def __init__(self, connection: FailoverConnection, number: int, session: Session) -> None:
        super().__init__(connection, number, session)
        self._prefetch = 0
        self._generator: Consumer | None = None
        self._tag_numbers = itertools.count(1)

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
        self._check_open()

        def on_message(message: Incoming) -> None:
            on_message_callback(self, *self._numbered(message))

        return self._subscribe(queue, on_message, auto_ack, exclusive, consumer_tag, arguments).tag

    def _subscribe(
        self,
        queue: str,
        on_message: Callable[[Incoming], None] | None,
        auto_ack: bool,
        exclusive: bool,
        consumer_tag: str | None,
        arguments: Mapping[str, Any] | None,
    ) -> Consumer:
        tag = consumer_tag or f"ctag{self.channel_number}.{next(self._tag_numbers)}"
        if tag in self._consumers:
            raise pika.exceptions.DuplicateConsumerTag(tag)
        session = self._session
        window = self.connection.drop_duplicates if not auto_ack else False
        receiver = session.subscription(
            AnnouncingReceiver, self._named(queue), self._prefetch or None, auto_ack, exclusive, arguments, window
        )
        receiver.consumer_tag = tag
        consumer = Consumer(tag, receiver, on_message)
        # A generator takes its messages itself, it only has to be woken
        receiver.announce = self._inbox.poke if on_message is None else lambda: self._inbox.post(consumer.dispatch)
        self._consumers[tag] = consumer
        try:
            self._answer(session.start_subscription(receiver))
        except BaseException:
            self._consumers.pop(tag, None)
            consumer.alive = False
            session.close_subscription(receiver)
            raise
        return consumer

    def _numbered(self, message: Incoming) -> Delivered:
        with self._tags_lock:
            tag = self._tags.issue(message if message.wants_answer else None)
        return message.numbered(tag)

    def basic_cancel(self, consumer_tag: str) -> list[Delivered]:
        """Ends a consumer.  With automatic acknowledgement, returns the messages that had arrived and were not handed
        out; otherwise those messages go back to the queue."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is None:
            LOGGER.warning("basic_cancel: no consumer %r on channel %d", consumer_tag, self.channel_number)
            return []
        consumer.alive = False
        self._check_open()
        return self._cancel(consumer)

    def _cancel(self, consumer: Consumer) -> list[Delivered]:
        cancelled = self._session.close_subscription(consumer.receiver)
        if cancelled is not None:
            self._answer(cancelled)
        self._inbox.poke()
        return [self._numbered(message) for message in consumer.left()]

    def start_consuming(self) -> None:
        """Runs callbacks until all consumers of this channel are cancelled.

        Raises ReentrancyError from inside a callback, ChannelClosedByBroker, AMQPConnectionError, and what a callback
        raises."""
        if self._inbox.dispatching_here:
            raise pika.exceptions.ReentrancyError("start_consuming may not be called from inside a callback")
        self._check_open()
        while self._consumers:
            self._process(None)

    def stop_consuming(self, consumer_tag: str | None = None) -> None:
        """Cancels one consumer, or all; start_consuming returns when none is left."""
        if consumer_tag:
            self.basic_cancel(consumer_tag)
            return
        if self._generator is not None:
            self.cancel()
        for tag in list(self._consumers):
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
        self._check_open()
        consumer = self._generator_for(queue, auto_ack, exclusive, arguments, consumer_tag)
        while consumer.alive:
            message = self._next_message(consumer, inactivity_timeout)
            if message is not None:
                yield self._numbered(message)
            elif consumer.alive:
                yield NOTHING

    def _generator_for(
        self, queue: str, auto_ack: bool, exclusive: bool, arguments: Mapping[str, Any] | None, tag: str | None
    ) -> Consumer:
        if self._generator is not None and not self._generator.alive:
            self._generator = None
        if self._generator is None:
            self._generator = self._subscribe(queue, None, auto_ack, exclusive, tag, arguments)
        present = self._generator.receiver
        if (present.queue, present.no_ack, present.exclusive) != (self._named(queue), auto_ack, exclusive):
            raise ValueError(
                f"the generator consumes {present.queue!r}, auto_ack={present.no_ack}, exclusive={present.exclusive}:"
                f" cancel() it before {queue!r}, auto_ack={auto_ack}, exclusive={exclusive}"
            )
        return self._generator

    def _next_message(self, consumer: Consumer, patience: float | None) -> Incoming | None:
        """None after `patience` seconds, or when the consumer has ended."""
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            message = consumer.take()
            if message is not None or not consumer.alive:
                return message
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            if self._inbox.dispatching_here:
                return self._next_in_callback(consumer, left)
            self._process(left)

    def _next_in_callback(self, consumer: Consumer, patience: float | None) -> Incoming | None:
        """The same while other events must wait, including the end of the consumer."""
        message = consumer.take(patience)
        if message is None:
            self._raise_if_ended()
            consumer.alive = consumer.receiver.error is None
        return message

    def get_waiting_message_count(self) -> int:
        """Messages that the generator of consume() can yield without waiting."""
        return 0 if self._generator is None else self._generator.receiver.available()

    def cancel(self) -> int:
        """Ends the generator of consume(); what it has not yielded goes back to the queue.  Returns 0, as pika does."""
        generator, self._generator = self._generator, None
        if generator is None or not generator.alive:
            LOGGER.warning("cancel: no generator on channel %d", self.channel_number)
        else:
            self.basic_cancel(generator.tag)
        return 0

    def add_on_cancel_callback(self, callback: Callable[[Any], Any]) -> None:
        """callback(frame of Basic.Cancel) when the broker cancels a consumer."""
        require_callback(callback)
        self._cancel_callbacks.append(callback)

    @property
    def consumer_tags(self) -> list[str]:
        return list(self._consumers)

    def basic_get(self, queue: str, auto_ack: bool = False) -> Delivered | tuple[None, None, None]:
        """One message, or three times None."""
        require_string(queue, "queue")
        self._check_open()
        try:
            message = self._session.get(self._named(queue), auto_ack, build=Incoming)
        except MessagingError as error:
            raise self._failed(error) from error
        if message is None:
            return NOTHING
        assert isinstance(message, Incoming)
        return self._numbered(message)

    def _process(self, time_limit: float | None) -> None:
        self.connection.process_data_events(time_limit)
        self._raise_if_ended()

    # -- settling

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Acknowledges.  Does nothing for a delivery of a lost connection, whose message is delivered again."""
        self._settle(delivery_tag, multiple, Disposition.ACCEPT)

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """As basic_ack; without `requeue` the broker drops the message, or dead-letters it."""
        self._settle(delivery_tag, multiple, Disposition.RELEASE if requeue else Disposition.REJECT)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """basic_nack of one message."""
        self.basic_nack(delivery_tag, requeue=requeue)

    def _settle(self, delivery_tag: int, multiple: bool, disposition: Disposition) -> None:
        self._check_open()
        try:
            with self._tags_lock:
                messages = self._tags.take(delivery_tag, multiple)
            for message in messages:
                self._session.settle(message, disposition)
        except UnknownTag as error:
            text = f"PRECONDITION_FAILED - unknown delivery tag {delivery_tag}"
            raise self._failed(ServerError(PRECONDITION_FAILED, text)) from error
        except MessagingError as error:
            raise self._failed(error) from error

    def basic_recover(self, requeue: bool = False) -> None:
        """Everything handed out and not settled is delivered again.  Raises NotImplementedError without `requeue`: no
        current broker redelivers to the same consumer."""
        self._check_open()
        if not requeue:
            raise NotImplementedError("basic_recover(requeue=False) cannot be had; say requeue=True")
        with self._tags_lock:
            messages = self._tags.take_all()
        try:
            for message in messages:
                self._session.settle(message, Disposition.RELEASE)
            self._session.fence()
        except MessagingError as error:
            raise self._failed(error) from error

    # -- limits

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, global_qos: bool = False) -> None:
        """The limit of each consumer that is subscribed from now on; with `global_qos` that of the channel.  0: none.

        Raises NotImplementedError for a prefetch_size."""
        self._check_open()
        if prefetch_size:
            raise NotImplementedError(f"prefetch_size={prefetch_size}: brokers do not offer it; use prefetch_count")
        if not global_qos:
            self._prefetch = prefetch_count
            return
        self._forget("basic_qos")
        self._answer(self._session.start_declaration("basic_qos", True, prefetch_count=prefetch_count, global_qos=True))

    def flow(self, active: bool) -> bool:
        """Asks the broker to pause deliveries on this channel, or to go on; returns its answer.

        A broker that cannot (RabbitMQ) closes the channel with 540."""
        self._check_open()
        self._forget("flow")
        return bool(self._answer(self._session.start_declaration("flow", not active, active=active)))

    def _forget(self, method: str) -> None:
        self._session.forget(lambda declared: declared.method == method)
