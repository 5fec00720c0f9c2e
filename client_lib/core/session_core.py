"""A session without the waiting, which the threaded and the asyncio API add.

Everything here may be called from any thread.  Commands are answered through futures, which the I/O thread completes;
operations of several commands are generators (`client_lib.steps`).
"""

from __future__ import annotations

from client_lib.addresses.nodes import ending
from client_lib.core.channel_worker import ChannelWorker
from client_lib.core.ledger import Disposition
from client_lib.core.receivers import Receivers
from client_lib.core.senders import Senders
from client_lib.core.states import State
from client_lib.core.topology import Topology
from client_lib.core.transactions import Transactions
from client_lib.errors import MessagingError
from client_lib.link.link import Link
from client_lib.message import Message
from client_lib.monitor import Monitor
from client_lib.steps import Steps

SETTLED = {Disposition.ACCEPT: "ack", Disposition.REJECT: "reject", Disposition.RELEASE: "release"}
"""Kinds of events."""


class SessionCore:
    def __init__(self, link: Link, name: str, monitor: Monitor, transactional: bool = False) -> None:
        self.worker = ChannelWorker(link, name, monitor, transactional)
        self.topology = Topology(name, self.worker.requests)
        self.senders = Senders(self.worker)
        self.receivers = Receivers(self.worker)
        self.transactions = Transactions(self.worker, self.senders)

    def forked(self, error: MessagingError | None) -> None:
        """In the child after fork(2): what has arrived is the parent's."""
        self.worker.ending.error, self.worker.state = error, State.FAILED
        for receiver in self.receivers.all():
            receiver.drain()
        self.worker.deliveries.fetched.clear()

    def idle(self) -> bool:
        """True if no message waits for a confirm (in a transaction: to be written) and no acknowledgement to be written
        (lock held)."""
        return self.worker.publishing.outbox.unsettled == 0 and self.worker.deliveries.undecided == 0

    def unsettled(self) -> int:
        """Messages of all senders without a confirm, or in a transaction that is not committed; exact."""
        publishing = self.worker.publishing
        with self.worker.monitor:
            return publishing.outbox.unsettled if self.worker.transaction is None else len(publishing.unsettled())

    def raise_failure(self) -> None:
        """Raises the oldest failure of a sender, once (lock held)."""
        failure = self.worker.publishing.next_failure()
        if failure is not None:
            raise failure

    def ending(self) -> Steps[None]:
        """What the addresses in use ask to delete with the session."""
        yield from ending(self.worker.requests, [link.node for link in (*self.senders.all(), *self.receivers.all())])

    # -- settling

    def settle(self, message: Message, disposition: Disposition) -> None:
        """Decides about one message; written soon.  Ignored are messages that were settled before or need no
        acknowledgement and, but in a transaction, those whose connection was lost.

        Raises ValueError if it was not received, or in another session; TransactionAborted."""
        delivery, worker = message._delivery, self.worker
        if delivery is None:
            raise ValueError(f"not a received message: {message!r}")
        if delivery.subscription.worker is not worker:
            name = delivery.subscription.worker.name
            raise ValueError(f"{message!r} was received in session {name}, it cannot be settled in {worker.name}")
        with worker.monitor.lock:
            worker.ending.check(worker.transaction)
            alive = worker.deliveries.settle(delivery, disposition)
        if alive and worker.events.enabled:
            worker.events.message(SETTLED[disposition], delivery.subscription.queue, message.id, 0, worker.where)

    def settle_all(self, disposition: Disposition) -> None:
        """Decides about everything that was fetched in this session."""
        with self.worker.monitor:
            self.worker.check()
            fetched = list(self.worker.deliveries.fetched.values())
        for message in fetched:
            self.settle(message, disposition)

    def fencing(self) -> Steps[None]:
        """A round trip, after which the broker has read everything written before."""
        yield self.worker.requests.start_fence()
