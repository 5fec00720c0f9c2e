"""Subscriptions on the present channel, and what arrives for them (I/O thread)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from client_lib.connecting.incoming import Arrival
from client_lib.core.deliveries import Deliveries
from client_lib.core.subscription import Subscription
from client_lib.errors import ReceiverCancelled
from client_lib.monitor import Monitor

Done = Callable[[Any], None]


class Subscribing:
    """One per session."""

    def __init__(self, monitor: Monitor, deliveries: Deliveries) -> None:
        self.waiting_for_any = 0
        """The number of calls that wait for a message of any receiver."""
        self._monitor, self._deliveries = monitor, deliveries

    @property
    def overfull(self) -> bool:
        return any(subscription.overfull for subscription in list(self._deliveries.subscriptions.values()))

    @property
    def hungry(self) -> bool:
        """A call waits for a message."""
        waiting = any(subscription.hungry for subscription in list(self._deliveries.subscriptions.values()))
        return waiting or self.waiting_for_any > 0

    def knows(self, subscription: Subscription) -> bool:
        return self._deliveries.subscriptions.get(subscription.consumer_tag) is subscription

    def start(self, channel: Any, subscription: Subscription, done: Done | None) -> None:
        generation = self._deliveries.generation
        if not subscription.no_ack:
            channel.basic_qos(prefetch_count=subscription.prefetch)
        channel.basic_consume(
            queue=subscription.queue,
            on_message_callback=lambda _c, method, properties, body: self._delivered(
                generation, subscription, method, properties, body
            ),
            auto_ack=subscription.no_ack,
            exclusive=subscription.exclusive,
            arguments=subscription.arguments,
            consumer_tag=subscription.consumer_tag,
            callback=done,
        )
        channel.takers[subscription.consumer_tag.encode()] = partial(self._arrived, generation, subscription)

    def cancel(self, channel: Any, subscription: Subscription, done: Done) -> None:
        if subscription.consumer_tag in channel.consumer_tags:
            channel.basic_cancel(subscription.consumer_tag, done)
        else:
            done(None)

    def renew(self, channel: Any, subscription: Subscription, done: Done) -> None:
        """Cancels and subscribes again, unless the receiver was closed meanwhile, or fetches one by one."""

        def subscribe(_frame: Any) -> None:
            subscription.established = subscription.capacity > 0
            if self.knows(subscription) and subscription.established:
                self.start(channel, subscription, done)
            else:
                done(None)

        self.cancel(channel, subscription, subscribe)

    def cancelled(self, consumer_tag: str) -> Subscription | None:
        """The broker ended a subscription, because its queue is gone.  Returns it if it was known."""
        with self._monitor:
            subscription = self._deliveries.subscriptions.pop(consumer_tag, None)
            if subscription is not None:
                text = f"the broker cancelled the subscription to {subscription.queue}"
                subscription.error = ReceiverCancelled(text)
                self._monitor.notify_all()
        return subscription

    def _delivered(
        self, generation: int, subscription: Subscription, method: Any, properties: Any, body: bytes
    ) -> None:
        with self._monitor:
            if generation == self._deliveries.generation:
                message = subscription.build(method, properties, body)
                self._deliveries.arrived(subscription, message, method.delivery_tag)
                self._notify(subscription)

    def _arrived(self, generation: int, subscription: Subscription, arrivals: list[Arrival]) -> None:
        unread, arrived = subscription.unread, self._deliveries.arrived
        with self._monitor:
            if generation == self._deliveries.generation:
                for tag, redelivered, exchange, routing_key, payload, body in arrivals:
                    arrived(subscription, unread(redelivered, exchange, routing_key, payload, body), tag)
                self._notify(subscription)

    def _notify(self, subscription: Subscription) -> None:
        if subscription.waiting or self.waiting_for_any:
            self._monitor.notify_all()
