"""The consumers of a `FailoverChannel`, and what they have handed out: tags that outlive connections."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pika
import pika.exceptions

from client_lib.core.ledger import Disposition
from client_lib.core.subscription import Subscription
from client_lib.errors import MessagingError
from client_lib.failover.consumer import AnnouncingReceiver, Consumer
from client_lib.failover.content import Incoming
from client_lib.failover.core import ChannelCore
from client_lib.failover.tags import DeliveryTags, UnknownTag

LOGGER = logging.getLogger("client_lib")
Delivered = tuple[Any, Any, bytes]


class Consuming:
    """One per channel; the watcher of its sessions."""

    def __init__(self, core: ChannelCore) -> None:
        self.consumers: dict[str, Consumer] = {}
        self.generator: Consumer | None = None
        self.prefetch = 0
        self.on_cancel: list[Callable[[Any], Any]] = []
        """Called with the frame when the broker cancels a consumer."""
        self._core, self._owner, self._inbox = core, core.owner, core.owner.inbox
        self._tag_numbers = itertools.count(1)
        self._tags: DeliveryTags[Incoming] = DeliveryTags()
        self._tags_lock = threading.Lock()
        core.ended = self._ended
        core.watch(self)

    @property
    def used(self) -> bool:
        """True if there are consumers or deliveries to be settled."""
        return bool(self.consumers) or len(self._tags) > 0

    def forked(self) -> None:
        """In the child after fork(2), where another thread may have held the lock."""
        self._tags_lock = threading.Lock()

    # -- the watcher of the sessions, in the I/O thread

    def lost(self) -> None:
        with self._tags_lock:
            self._tags.lost(keep=bool(self._owner.drop_duplicates))

    def ready(self) -> None: ...

    def ended(self, error: MessagingError) -> None:
        self._inbox.poke()

    def cancelled(self, subscription: Subscription) -> None:
        tag = subscription.consumer_tag
        self._inbox.post(lambda: self._cancelled_by_broker(tag))

    # -- consumers, in the application's thread

    def subscribe(
        self,
        queue: str,
        on_message: Callable[[Incoming], None] | None,
        auto_ack: bool,
        exclusive: bool,
        consumer_tag: str | None,
        arguments: Mapping[str, Any] | None,
    ) -> Consumer:
        """`on_message` None: for the generator.  Raises DuplicateConsumerTag and what a refusal raises."""
        tag = consumer_tag or f"ctag{self._core.number}.{next(self._tag_numbers)}"
        if tag in self.consumers:
            raise pika.exceptions.DuplicateConsumerTag(tag)
        session, receivers = self._core.session, self._core.working.receivers
        make = partial(AnnouncingReceiver, session, session._waiting)
        window = self._owner.drop_duplicates if not auto_ack else False
        receiver = receivers.new(make, queue, self.prefetch or None, auto_ack, exclusive, arguments, window)
        receiver.consumer_tag = tag
        consumer = Consumer(tag, receiver, on_message)
        # A generator takes its messages itself, it only has to be woken
        inbox = self._inbox
        receiver.announce = inbox.poke if on_message is None else partial(inbox.post, consumer.dispatch)
        self.consumers[tag] = consumer
        try:
            self._core.answer(receivers.start(receiver))
        except BaseException:
            self.consumers.pop(tag, None)
            consumer.alive = False
            receivers.close(receiver)
            raise
        return consumer

    def cancel(self, consumer_tag: str) -> list[Delivered]:
        """Returns what had arrived and goes back to no queue."""
        consumer = self.consumers.pop(consumer_tag, None)
        if consumer is None:
            LOGGER.warning("basic_cancel: no consumer %r on channel %d", consumer_tag, self._core.number)
            return []
        consumer.alive = False
        self._core.check_open()
        cancelled = self._core.working.receivers.close(consumer.receiver)
        if cancelled is not None:
            self._core.answer(cancelled)
        self._inbox.poke()
        return [self.numbered(message) for message in consumer.left()]

    def _cancelled_by_broker(self, consumer_tag: str) -> None:
        """The broker ended a subscription, because its queue is gone."""
        consumer = self.consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        consumer.alive = False
        if consumer.on_message is not None:
            frame = pika.frame.Method(self._core.number, pika.spec.Basic.Cancel(consumer_tag))
            for callback in self.on_cancel:
                callback(frame)

    def _ended(self) -> None:
        for consumer in self.consumers.values():
            consumer.alive = False
        self.consumers.clear()
        with self._tags_lock:
            self._tags.lost()

    def process(self, time_limit: float | None) -> None:
        self._owner.process_data_events(time_limit)
        self._core.raise_if_ended()

    # -- the generator

    def generate(
        self, queue: str, auto_ack: bool, exclusive: bool, arguments: Mapping[str, Any] | None, tag: str | None
    ) -> Consumer:
        """The generator's consumer.  Raises ValueError while there is one with other parameters."""
        if self.generator is None or not self.generator.alive:
            self.generator = None
            self.generator = self.subscribe(queue, None, auto_ack, exclusive, tag, arguments)
        present = self.generator.receiver
        if (present.queue, present.no_ack, present.exclusive) != (queue, auto_ack, exclusive):
            raise ValueError(
                f"the generator consumes {present.queue!r}, auto_ack={present.no_ack}, exclusive={present.exclusive}:"
                f" cancel() it before {queue!r}, auto_ack={auto_ack}, exclusive={exclusive}"
            )
        return self.generator

    def next_message(self, consumer: Consumer, patience: float | None) -> Incoming | None:
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
            self.process(left)

    def _next_in_callback(self, consumer: Consumer, patience: float | None) -> Incoming | None:
        """The same while other events must wait, including the end of the consumer."""
        message = consumer.take(patience)
        if message is None:
            self._core.raise_if_ended()
            consumer.alive = consumer.receiver.error is None
        return message

    def cancel_generator(self) -> None:
        generator, self.generator = self.generator, None
        if generator is None or not generator.alive:
            LOGGER.warning("cancel: no generator on channel %d", self._core.number)
        else:
            self.cancel(generator.tag)

    # -- settling

    def numbered(self, message: Incoming) -> Delivered:
        """Hands out a message: the arguments of a callback."""
        wants_answer = message.wants_answer
        with self._tags_lock:
            tag = self._tags.issue(message if wants_answer else None)
        return message.numbered(tag)

    def settle(self, delivery_tag: int, multiple: bool, disposition: Disposition) -> None:
        self._core.check_open()
        try:
            if not multiple:
                with self._tags_lock:
                    message = self._tags.take_one(delivery_tag)
                if message is not None:
                    self._core.working.settle(message, disposition)
                return
            with self._tags_lock:
                messages = self._tags.take(delivery_tag, multiple)
            for message in messages:
                self._core.working.settle(message, disposition)
        except UnknownTag as error:
            self._core.refuse(f"PRECONDITION_FAILED - unknown delivery tag {delivery_tag}", error)
        except MessagingError as error:
            raise self._core.failed(error) from error

    def recover(self) -> None:
        """Everything handed out and not settled is delivered again."""
        with self._tags_lock:
            messages = self._tags.take_all()
        try:
            for message in messages:
                self._core.working.settle(message, Disposition.RELEASE)
        except MessagingError as error:
            raise self._core.failed(error) from error
        self._core.run(self._core.working.fencing())

    def rolled_back(self) -> None:
        """Everything is delivered again."""
        with self._tags_lock:
            self._tags.lost()
        for consumer in self.consumers.values():
            consumer.announce_again()
