"""The deliveries of a session and the decisions about them.

Theory.  A delivery is *buffered* in its subscription, then *fetched* by the application, then *decided* (in the
ledger), then *written*.  A delivery tag means something only together with the generation of its channel: when that is
gone, all its deliveries are void: the broker requeues the messages, and later decisions about them are ignored.  In a
transaction such a decision is an error, since ignoring it would break atomicity.

With a duplicate filter a fetched delivery stays known when its channel is gone: the next copy is attached to it.

`monitor` guards everything here; the caller holds it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from client_lib.core.ledger import Disposition, Ledger, Settle
from client_lib.core.subscription import Subscription
from client_lib.core.transaction import Transaction
from client_lib.dedup import DuplicateFilter, Verdict
from client_lib.delivery import Delivery
from client_lib.errors import TransactionAborted
from client_lib.message import Message


class Deliveries:
    """One per session.  `wake` lets the I/O thread write the decisions."""

    def __init__(self, wake: Callable[[], None], transaction: Transaction | None) -> None:
        self.generation = 0
        self.fetched: OrderedDict[Delivery, Message] = OrderedDict()
        self.subscriptions: dict[str, Subscription] = {}
        self._ledger = Ledger()
        self._wake = wake
        self._transaction = transaction

    @property
    def undecided(self) -> int:
        """Decisions that are not written yet."""
        return self._ledger.decided

    # -- arriving

    def arrived(self, subscription: Subscription, message: Message, delivery_tag: int) -> None:
        """A delivery of the present channel."""
        delivery = message._delivery = Delivery(subscription, self.generation, delivery_tag)
        if subscription.no_ack:
            subscription.arrived(message)
            return
        if self._transaction is not None and self._transaction.rolling_back:
            return  # basic.recover is under way: the message will be delivered again
        self._ledger.delivered(delivery_tag)
        if subscription.error is not None:
            self._decide(delivery_tag, Disposition.RELEASE)
        elif subscription.duplicates is None or self._is_new(subscription.duplicates, delivery, message):
            subscription.arrived(message)

    def got(self, delivery: Delivery, message: Message) -> None:
        """The answer to basic.get."""
        message._delivery = delivery
        if not delivery.subscription.no_ack:
            self._ledger.delivered(delivery.delivery_tag)
            self.fetched[delivery] = message

    def _is_new(self, duplicates: DuplicateFilter[Delivery], delivery: Delivery, message: Message) -> bool:
        delivery.message_id = message.id
        verdict, first = duplicates.offer(message.id, delivery, message.redelivered or message.resent)
        if verdict is Verdict.DONE:
            self._decide(delivery.delivery_tag, Disposition.ACCEPT)
        elif first is not None:
            first.copies += ((delivery.generation, delivery.delivery_tag),)
        return verdict is Verdict.NEW

    # -- settling

    def settle(self, delivery: Delivery, disposition: Disposition) -> bool:
        """False if there is nothing to write to the broker.  Raises TransactionAborted (void in a transaction)."""
        if self.fetched.pop(delivery, None) is None:
            if self._transaction is not None and not delivery.settled and not delivery.subscription.no_ack:
                raise TransactionAborted("this message was fetched before a loss or rollback; it comes again")
            return False
        delivery.settled = True
        if delivery.copies:
            alive = self._settle_copies(delivery, disposition)
        else:
            alive = delivery.generation == self.generation and self._decide(delivery.delivery_tag, disposition)
        duplicates = delivery.subscription.duplicates
        if duplicates is not None:
            self._remember(duplicates, delivery.message_id, disposition)
        if self._transaction is not None:
            self._transaction.disposed()
        return alive

    def _settle_copies(self, delivery: Delivery, disposition: Disposition) -> bool:
        tags = [(delivery.generation, delivery.delivery_tag), *delivery.copies]
        alive = [tag for generation, tag in tags if generation == self.generation]
        for index, tag in enumerate(alive):
            # one of several copies is enough to give back
            extra = index > 0 and disposition is Disposition.RELEASE
            self._decide(tag, Disposition.ACCEPT if extra else disposition)
        return bool(alive)

    def _remember(
        self, duplicates: DuplicateFilter[Delivery], message_id: str | None, disposition: Disposition
    ) -> None:
        if disposition is not Disposition.ACCEPT:
            duplicates.released(message_id)
            return
        duplicates.finished(message_id)
        if self._transaction is not None:
            self._transaction.finished(duplicates, message_id)

    def _decide(self, delivery_tag: int, disposition: Disposition) -> bool:
        decided = self._ledger.settle(delivery_tag, disposition)
        if decided:
            self._wake()
        return decided

    def release_buffer(self, subscription: Subscription) -> None:
        """Gives back messages that the application will not fetch."""
        for message in subscription.drain():
            delivery = message._delivery
            assert delivery is not None
            if subscription.duplicates is not None:
                subscription.duplicates.released(delivery.message_id)
            self._settle_copies(delivery, Disposition.RELEASE)

    def take(self) -> list[Settle]:
        """The decisions to write now."""
        return self._ledger.take()

    # -- the end of a channel or of a transaction

    def connection_lost(self, generation: int, keep: bool) -> None:
        """All deliveries so far are void.  `keep`: duplicates will be attached to what is fetched."""
        self.generation = generation
        self.void(keep)

    def void(self, keep: bool = False) -> None:
        """The broker has requeued everything delivered and not settled, or will do so."""
        self._ledger.connection_lost()
        for subscription in self.subscriptions.values():
            if not subscription.no_ack:
                self._released(subscription.duplicates, (message._delivery for message in subscription.drain()))
        for delivery in list(self.fetched):
            if not keep or delivery.subscription.duplicates is None:
                del self.fetched[delivery]
                self._released(delivery.subscription.duplicates, (delivery,))

    def _released(self, duplicates: DuplicateFilter[Delivery] | None, deliveries: Iterable[Delivery | None]) -> None:
        if duplicates is not None:
            for delivery in deliveries:
                if delivery is not None:
                    duplicates.released(delivery.message_id)
