"""The part of a session that never waits; the threaded and the asyncio session add the waiting.

Everything here may be called from any thread.  Commands are answered through futures, which the I/O thread completes;
operations of several commands are generators (`client_lib.core.steps`).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from client_lib.addresses.address import Address
from client_lib.addresses.nodes import Node, ending
from client_lib.addresses.polling import Poller
from client_lib.connecting.link import Link
from client_lib.core.dedup import DuplicateFilter
from client_lib.core.ledger import Disposition
from client_lib.core.monitor import Monitor
from client_lib.core.steps import Steps
from client_lib.core.subscription import Delivery, Subscription
from client_lib.core.topology import Topology
from client_lib.core.transacting import Transacting
from client_lib.core.transaction import Transaction, aborted
from client_lib.core.window import Window
from client_lib.errors import (
    LinkClosed,
    NontransactionalSession,
    Timeout,
    TransactionError,
    TransactionUnknown,
)
from client_lib.event_runs import REDELIVERED, RESENT
from client_lib.message import Message

S = TypeVar("S", bound=Subscription)
W = TypeVar("W", bound=Window)
SETTLED = {Disposition.ACCEPT: "ack", Disposition.REJECT: "reject", Disposition.RELEASE: "release"}
"""Kinds of events."""
Build = Callable[[Any, Any, bytes], Message]


class SessionCore(Topology):
    def __init__(self, link: Link, name: str, monitor: Monitor, transactional: bool = False) -> None:
        super().__init__(link, name, monitor, transactional)
        self._producer = f"{name}-{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count(1)
        self._tags = itertools.count(1)
        self._windows: dict[Window, None] = {}
        self._receivers: dict[Subscription, None] = {}

    @property
    def transactional(self) -> bool:
        return self.transaction is not None

    @property
    def senders(self) -> list[Any]:
        """Those that are open."""
        with self.monitor:
            return list(self._windows)

    @property
    def receivers(self) -> list[Any]:
        """Those that are open."""
        with self.monitor:
            return list(self._receivers)

    def next_message_id(self) -> str:
        return f"{self._producer}:{next(self._numbers)}"

    def idle(self) -> bool:
        """True if no message waits for a confirm (in a transaction: to be written) and no acknowledgement to be written
        (lock held)."""
        return self.publishing.outbox.unsettled == 0 and self.deliveries.undecided == 0

    def unsettled(self) -> int:
        """Messages of all senders without a confirm, or in a transaction that is not committed; exact."""
        with self.monitor:
            return len(self.publishing.unsettled()) if self.transactional else self.publishing.outbox.unsettled

    # -- senders

    def add_window(self, window: W) -> W:
        """Registers an open sender."""
        with self.monitor:
            self.check()
            self._windows[window] = None
        return window

    def opening_sender(self, address: str | Address, make: Callable[[str, str, bool], W]) -> Steps[W]:
        """`make(routing_key, exchange, mandatory)`; raises AddressError and its subclasses."""
        node = Node(self, address)
        plan = yield from node.sending()
        try:
            window = make(plan.routing_key or "", plan.exchange, plan.mandatory)
            window.subject, window.target, window.node = plan.subject, plan.target, node
            return self.add_window(window)
        except BaseException:
            self._undo(node)
            raise

    def closing_sender(self, window: Window) -> Steps[None]:
        """Called when its messages are settled, or are no longer waited for."""
        with self.monitor:
            if not window.end():
                return
            self._windows.pop(window, None)
        if window.node is not None and self._error is None:
            yield from window.node.closing()

    # -- receivers

    def subscription(
        self,
        kind: type[S],
        queue: str,
        capacity: int | None,
        no_ack: bool,
        exclusive: bool,
        arguments: Mapping[str, Any] | None,
        drop_duplicates: bool | int,
    ) -> S:
        """A receiver, not subscribed yet.  `drop_duplicates` is the window of the filter (True: its default)."""
        window: DuplicateFilter[Delivery] | None = None
        if drop_duplicates:
            window = DuplicateFilter() if drop_duplicates is True else DuplicateFilter(drop_duplicates)
        tag = f"{self.name}-{next(self._tags)}"
        return kind(self, queue, tag, capacity, no_ack, exclusive, arguments, window)

    def start_subscription(self, subscription: Subscription) -> Future[Any]:
        tag = subscription.consumer_tag

        def subscribe(channel: Any, done: Callable[[Any], None]) -> None:
            if tag in channel.consumer_tags:  # restored already, after the first answer was lost
                done(None)
                return
            with self.monitor:
                if subscription.error is not None:  # closed meanwhile
                    done(None)
                    return
                self.deliveries.subscriptions[tag] = subscription
            self._subscribe(channel, subscription, done)

        def failed(future: Future[Any]) -> None:
            # A cancelled command may still subscribe; the code that cancelled it closes the receiver
            if not future.cancelled() and future.exception() is not None:
                with self.monitor:
                    self.deliveries.subscriptions.pop(tag, None)
                    self._receivers.pop(subscription, None)

        self._receivers[subscription] = None
        future = self.start_command(subscribe)
        future.add_done_callback(failed)
        return future

    def subscribing(self, subscription: S) -> Steps[S]:
        try:
            yield self.start_subscription(subscription)
        except BaseException:  # also a timeout of the caller
            self.close_subscription(subscription)
            raise
        return subscription

    def opening_receiver(
        self, address: str | Address, make: Callable[[str, bool, bool, Mapping[str, Any]], S]
    ) -> Steps[S]:
        """`make(queue, no_ack, exclusive, arguments)`; raises AddressError and its subclasses."""
        node = Node(self, address)
        plan = yield from node.receiving()
        try:
            subscription = make(plan.queue, plan.no_ack, plan.exclusive, plan.arguments)
        except BaseException:
            self._undo(node)
            raise
        subscription.source, subscription.node = plan.source, node
        try:
            if plan.browse:
                self._receivers[subscription] = None
                yield Poller(self, subscription, self._later).start()
            else:
                yield from self.subscribing(subscription)
        except BaseException:
            self.close_subscription(subscription)
            self._undo(node)
            raise
        return subscription

    def _undo(self, node: Node) -> None:
        """Not waited for."""
        if self._error is None:
            for _ in node.closing():
                pass

    def closing_receiver(self, subscription: Subscription) -> Steps[None]:
        cancelled = self.close_subscription(subscription)
        try:
            if cancelled is not None:
                yield cancelled
        except BaseException:
            if subscription.node is not None:
                self._undo(subscription.node)
            raise
        if subscription.node is not None and self._error is None:
            yield from subscription.node.closing()

    def close_subscription(self, subscription: Subscription) -> Future[Any] | None:
        """Cancels it; what was not fetched goes back to the queue.  Returns the answer to the cancel, None if there is
        nothing to cancel.  What arrives until then is kept if there are no acknowledgements: see `drain`."""
        with self.monitor:
            self._receivers.pop(subscription, None)
            if subscription.error is not None:
                return None
            subscription.error = LinkClosed(f"the receiver of {subscription.source} is closed")
            known = self.deliveries.subscriptions.pop(subscription.consumer_tag, None)
            if not subscription.no_ack:
                self.deliveries.release_buffer(subscription)
            self.monitor.notify_all()
            if known is None or self._error is not None:
                return None
            return self._start_command(lambda channel, done: self._cancel(channel, subscription, done))

    def renew_subscription(self, subscription: Subscription) -> None:
        """Subscribes again, with another capacity.  Not waited for."""

        def renew(channel: Any, done: Callable[[Any], None]) -> None:
            def subscribe(_frame: Any) -> None:
                if self.deliveries.subscriptions.get(subscription.consumer_tag) is subscription:
                    self._subscribe(channel, subscription, done)
                else:
                    done(None)

            self._cancel(channel, subscription, subscribe)

        with self.monitor:
            if self.deliveries.subscriptions.get(subscription.consumer_tag) is subscription and self._error is None:
                self._start_command(renew)

    def ready_receiver(self) -> Subscription | None:
        """The open receiver whose first message came first (lock held)."""
        best: Subscription | None = None
        first = (0, 0)
        for receiver in self._receivers:
            arrival = receiver.arrival()
            if arrival is not None and (best is None or arrival < first):
                best, first = receiver, arrival
        return best

    def getting(self, queue: str, no_ack: bool, build: Build | None) -> Steps[Message | None]:
        """basic.get; None if the queue is empty."""
        source = Subscription(self, queue, "", None, no_ack, False, None, None)
        make = build or source.build

        def run(channel: Any, done: Callable[[Any], None]) -> None:
            def got(method: Any, properties: Any, body: bytes) -> None:
                message = None if method is None else self._got(source, method, make(method, properties, body))
                done(message)
                if message is not None and message._delivery is not None and future.cancelled():
                    with self.monitor:  # the caller no longer waits for it
                        self.deliveries.settle(message._delivery, Disposition.RELEASE)

            self._getting.ask(queue, no_ack, got)

        future = self.start_command(run)
        message: Message | None = yield future
        if message is not None:
            self.note_fetched(source, message)
        return message

    def note_fetched(self, subscription: Subscription, message: Message) -> None:
        """Records events for a message that the application gets now (without the lock)."""
        if self.events.enabled:
            flags = (REDELIVERED if message.redelivered else 0) | (RESENT if message.resent else 0)
            self.events.message("deliver", subscription.queue, message.id, flags, self.where)
            if subscription.no_ack:
                self.events.message("ack", subscription.queue, message.id, 0, self.where)

    def _got(self, source: Subscription, method: Any, message: Message) -> Message:
        with self.monitor:
            self.deliveries.got(Delivery(source, self.generation, method.delivery_tag), message)
        return message

    def ending(self) -> Steps[None]:
        """What the addresses in use ask to delete with the session."""
        with self.monitor:
            nodes = [window.node for window in self._windows] + [receiver.node for receiver in self._receivers]
        yield from ending(self, nodes)

    # -- settling

    def settle(self, message: Message, disposition: Disposition) -> None:
        """Decides about one message; written soon.  Ignored are messages that were settled before or need no
        acknowledgement and, but in a transaction, those whose connection was lost.

        Raises ValueError if it was not received, TransactionAborted."""
        delivery = message._delivery
        if delivery is None:
            raise ValueError(f"not a received message: {message!r}")
        with self.monitor:
            self.check()
            alive = self.deliveries.settle(delivery, disposition)
        if alive and self.events.enabled:
            self.events.message(SETTLED[disposition], delivery.subscription.queue, message.id, 0, self.where)

    def settle_all(self, disposition: Disposition) -> None:
        """Decides about everything that was fetched in this session."""
        with self.monitor:
            self.check()
            fetched = list(self.deliveries.fetched.values())
        for message in fetched:
            self.settle(message, disposition)

    # -- transactions

    def committing(self) -> Steps[None]:
        """Raises TransactionAborted, TransactionUnknown, Timeout and, committed nevertheless, Returned."""
        transacting, transaction = self._require_transactions()
        future = transacting.start_commit()
        self.wake()
        try:
            yield future
        except TransactionUnknown:
            with self.monitor:
                transaction.told()
            raise
        except Timeout as late:
            if transacting.withdraw_commit(late):
                raise Timeout("not committed in time; nothing has happened, the transaction is still open") from None
            raise Timeout("the commit is sent and not answered; commit() again waits for its outcome") from None
        with self.monitor:
            for window in self._windows:
                window.raise_failure()

    def rolling_back(self) -> Steps[None]:
        """A commit that cannot be taken back is waited for.  Raises TransactionError (committed), TransactionUnknown,
        Timeout."""
        transacting, transaction = self._require_transactions()
        commit = transacting.commit
        if commit is not None and not transacting.withdraw_commit(aborted("rolled back")):
            try:
                yield commit
            except TransactionUnknown:
                with self.monitor:
                    transaction.told()
                raise
            raise TransactionError("too late: the transaction is committed")
        future = transacting.start_rollback()
        self.wake()
        yield future

    def _require_transactions(self) -> tuple[Transacting, Transaction]:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._transacting is None or self.transaction is None:
            raise NontransactionalSession(f"session {self.name} has no transactions: session(transactional=True)")
        return self._transacting, self.transaction

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        def wait() -> None:
            self._link.call_later(seconds, callback)

        self._link.post(wait)
