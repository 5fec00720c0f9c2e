"""The open receivers of a session, and basic.get, for both APIs; nothing here waits."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from client_lib.addresses.address import Address
from client_lib.addresses.nodes import Node
from client_lib.addresses.scratch import start_count
from client_lib.core.channel_worker import ChannelWorker
from client_lib.core.commands import shown
from client_lib.core.ledger import Disposition
from client_lib.core.polling import Poller
from client_lib.core.senders import undo
from client_lib.core.subscription import Subscription
from client_lib.dedup import DuplicateFilter
from client_lib.delivery import Delivery
from client_lib.errors import LinkClosed
from client_lib.message import Message
from client_lib.steps import Steps

S = TypeVar("S", bound=Subscription)
PAUSES = (0.01, 0.03, 0.1, 0.3)
"""Seconds to wait for a message that is ready in the queue and has not come."""
GET_PAUSES = (0.005, 0.05)
"""Seconds between two requests of a receiver that fetches one by one, from an empty queue: the first, the longest."""
Build = Callable[[Any, Any, bytes], Message]


class Receivers:
    """All methods may be called from any thread."""

    def __init__(self, worker: ChannelWorker) -> None:
        self._worker = worker
        self._tags = itertools.count(1)
        self._open: dict[Subscription, None] = {}

    def all(self) -> list[Any]:
        with self._worker.monitor:
            return list(self._open)

    def new(
        self,
        make: Callable[..., S],
        queue: str,
        capacity: int | None,
        no_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any] | None,
        drop_duplicates: bool | int,
    ) -> S:
        """A receiver, not subscribed yet.  `drop_duplicates` is the window of the filter (True: its default)."""
        duplicates: DuplicateFilter[Delivery] | None = None
        if drop_duplicates:
            duplicates = DuplicateFilter() if drop_duplicates is True else DuplicateFilter(drop_duplicates)
        tag = f"{self._worker.name}-{next(self._tags)}"
        return make(queue, tag, capacity, no_ack, exclusive, arguments, duplicates)

    def ready(self) -> Subscription | None:
        """The open receiver whose first message came first (lock held)."""
        best: Subscription | None = None
        first = (0, 0)
        for receiver in self._open:
            arrival = receiver.arrival()
            if arrival is not None and (best is None or arrival < first):
                best, first = receiver, arrival
        return best

    # -- opening

    def start(self, subscription: Subscription) -> Future[Any]:
        """Subscribes, now and after each fail-over."""
        tag, worker = subscription.consumer_tag, self._worker

        def subscribe(channel: Any, done: Callable[[Any], None]) -> None:
            if tag in channel.consumer_tags:  # restored already, after the first answer was lost
                done(None)
                return
            with worker.monitor:
                if subscription.error is not None:  # closed meanwhile
                    done(None)
                    return
                worker.deliveries.subscriptions[tag] = subscription

            def established(frame: Any) -> None:
                subscription.established = True
                done(frame)

            worker.subscribing.start(channel, subscription, established)

        def failed(future: Future[Any]) -> None:
            # A cancelled command may still subscribe; the code that cancelled it closes the receiver
            if not future.cancelled() and future.exception() is not None:
                with worker.monitor:
                    worker.deliveries.subscriptions.pop(tag, None)
                    self._open.pop(subscription, None)

        self._open[subscription] = None
        future = worker.requests.start_command(
            subscribe, f"basic.consume({subscription.queue!r}, arguments={shown(subscription.arguments)})"
        )
        future.add_done_callback(failed)
        return future

    def subscribing(self, subscription: S) -> Steps[S]:
        if not subscription.capacity:
            with self._worker.monitor:
                self._worker.deliveries.subscriptions[subscription.consumer_tag] = subscription
                self._open[subscription] = None
            return subscription
        try:
            yield self.start(subscription)
        except BaseException:  # also a timeout of the caller
            self.close(subscription)
            raise
        return subscription

    def opening(self, address: str | Address, make: Callable[[str, bool, bool, Mapping[str, Any]], S]) -> Steps[S]:
        """`make(queue, no_ack, exclusive, arguments)`; raises AddressError and its subclasses."""
        node = Node(self._worker.requests, address)
        plan = yield from node.receiving()
        try:
            subscription = make(plan.queue, plan.no_ack, plan.exclusive, plan.arguments)
        except BaseException:
            undo(self._worker, node)
            raise
        subscription.source, subscription.node = plan.source, node
        try:
            if plan.browse:
                subscription.browses = True
                self._open[subscription] = None
                yield Poller(self._worker, subscription).start()
            else:
                yield from self.subscribing(subscription)
        except BaseException:
            self.close(subscription)
            undo(self._worker, node)
            raise
        return subscription

    # -- closing

    def closing(self, subscription: Subscription) -> Steps[None]:
        cancelled = self.close(subscription)
        try:
            if cancelled is not None:
                yield cancelled
        except BaseException:
            if subscription.node is not None:
                undo(self._worker, subscription.node)
            raise
        if subscription.node is not None and self._worker.ending.error is None:
            yield from subscription.node.closing()

    def close(self, subscription: Subscription) -> Future[Any] | None:
        """Cancels it; what was not fetched goes back to the queue.  Returns the answer to the cancel, None if there is
        nothing to cancel.  What arrives until then is kept if there are no acknowledgements: see `drain`."""
        worker = self._worker
        with worker.monitor:
            self._open.pop(subscription, None)
            if subscription.error is not None:
                return None
            subscription.error = LinkClosed(f"the receiver of {subscription.source} is closed")
            known = worker.deliveries.subscriptions.pop(subscription.consumer_tag, None)
            if not subscription.no_ack:
                worker.deliveries.release_buffer(subscription)
            worker.monitor.notify_all()
            if known is None or worker.ending.error is not None:
                return None
            return worker.requests.add_command(
                lambda channel, done: worker.subscribing.cancel(channel, subscription, done),
                f"basic.cancel({subscription.consumer_tag!r})",
            )

    # -- one by one

    def fetching_one(self, subscription: Subscription, timeout: float | None) -> Steps[Message | None]:
        """The next message of a receiver with a capacity of 0; None after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, asked = GET_PAUSES[0], False
        while True:
            with self._worker.monitor:
                subscription.check()
                message = subscription.take()
            if message is not None:
                subscription.note_fetched(message)
                return message
            left = None if deadline is None else deadline - time.monotonic()
            if asked and left is not None and left <= 0:
                return None
            if not (yield self._start_get(subscription)):
                asked = True
                yield self._worker.requests.start_pause(pause if left is None else min(pause, max(0.0, left)))
                pause = min(2 * pause, GET_PAUSES[1])

    def _start_get(self, subscription: Subscription) -> Future[Any]:
        """basic.get; True if there was a message, which is in the buffer then, unless it was a duplicate."""
        worker = self._worker

        def run(channel: Any, done: Callable[[Any], None]) -> None:
            def got(method: Any, properties: Any, body: bytes) -> None:
                if method is not None:
                    with worker.monitor:
                        message = subscription.build(method, properties, body)
                        worker.deliveries.arrived(subscription, message, method.delivery_tag)
                done(method is not None)

            channel.basic_get(subscription.queue, got, subscription.no_ack)

        return worker.requests.start_command(run, f"basic.get({subscription.queue!r})")

    # -- is there more?

    def asking(self, subscriptions: Iterable[Subscription]) -> Steps[None]:
        """Until one has a message, or the queues of all are empty; waits while there is no connection.

        The broker counts first, then answers on our channel: what it had sent us before has arrived.  What others have
        not taken either is waited for a moment."""
        worker = self._worker
        for pause in PAUSES:
            ready = 0
            for subscription in subscriptions:
                if worker.subscribing.knows(subscription) and not subscription.stuffed():
                    ready += yield start_count(worker.requests, subscription.queue)
            yield worker.requests.start_fence()
            if not ready or any(subscription.available() for subscription in subscriptions):
                return
            yield worker.requests.start_pause(pause)

    # -- basic.get

    def getting(self, queue: str, no_ack: bool, build: Build | None) -> Steps[Message | None]:
        """One message; None if the queue is empty."""
        worker = self._worker
        source = Subscription(worker, queue, "", None, no_ack, False, None, None)
        make = build or source.build

        def run(channel: Any, done: Callable[[Any], None]) -> None:
            def got(method: Any, properties: Any, body: bytes) -> None:
                message = None if method is None else self._got(source, method, make(method, properties, body))
                done(message)
                if message is not None and message._delivery is not None and future.cancelled():
                    with worker.monitor:  # the caller no longer waits for it
                        worker.deliveries.settle(message._delivery, Disposition.RELEASE)

            channel.basic_get(queue, got, no_ack)

        future = worker.requests.start_command(run, f"basic.get({queue!r})")
        message: Message | None = yield future
        if message is not None:
            source.note_fetched(message)
        return message

    def _got(self, source: Subscription, method: Any, message: Message) -> Message:
        with self._worker.monitor:
            self._worker.deliveries.got(Delivery(source, self._worker.generation, method.delivery_tag), message)
        return message
