"""Publishing of `FailoverChannel`: one window for all exchanges and routing keys; returns are reported as by pika."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client_lib.addresses.once import Once, once_of
from client_lib.core.outbox import Entry
from client_lib.errors import MessagingError, Rejected, Returned
from client_lib.failover.content import Outgoing, publish_entry
from client_lib.failover.core import ChannelCore
from client_lib.failover.errors import Nacked, Unroutable
from client_lib.message import Message
from client_lib.session import Sender, Session

Tell = Callable[[Outgoing, Returned], bool]
SYNC_WINDOW = 1000  # threads that may wait for a confirm at a time


class ChannelPublishing:
    """One per channel."""

    def __init__(self, core: ChannelCore) -> None:
        self.on_return: list[Callable[[Any], Any]] = []
        """Called with each returned message."""
        self.confirming = False
        """The program has asked for confirms."""
        self._asked: set[tuple[str, str]] = set()
        """Queues that take a message once."""
        self._core, self._owner = core, core.owner
        self.use(core.session, core.owner.publish_window)

    def use(self, session: Session, window: int | None) -> None:
        """Publishes in this session from now on."""
        self._publisher = session._waiting.core.senders.add(Publisher(session, window, self._tell_return))

    def once(self, header: str | None) -> None:
        """Every message of this channel enters its queue, or passes its exchange, once."""
        self._publisher.once, self._asked = once_of(True if header is None else header), set()

    def publish(self, exchange: str, routing_key: str, body: bytes | str, properties: Any, mandatory: bool) -> None:
        self._core.check_open()
        if self._publisher.once is not None and (exchange, exchange or routing_key) not in self._asked:
            self._ask(exchange, exchange or routing_key, self._publisher.once)
        waits = self._owner.publish_window is None and not self._core.transactional
        message = Outgoing(exchange, routing_key, body, properties, mandatory)
        try:
            self._publisher.send(message, sync=waits, timeout=self._owner.publish_timeout)
        except MessagingError as error:
            raise self.failed(error) from error

    def _ask(self, exchange: str, name: str, once: Once) -> None:
        """`name`: of the exchange, or of a queue behind the exchange "".  Raises AssertionFailed, NotFound."""
        self._core.run(self._core.working.senders.demanding(name, once, not exchange))
        self._asked.add((exchange, name))

    def wait(self, timeout: float | None) -> None:
        self._core.check_open()
        try:
            self._publisher.sync(timeout)
        except MessagingError as error:
            raise self.failed(error) from error

    def unconfirmed(self) -> int:
        return self._publisher.unsettled()

    def failed(self, error: MessagingError) -> Exception:
        """The error to raise for a message that was not taken."""
        return not_taken(error) or self._core.failed(error)

    def _tell_return(self, message: Outgoing, reason: Returned) -> bool:
        """Runs in the I/O thread.  As in pika, a program with callbacks that did not ask for confirms gets no
        exception."""
        if not self.on_return:
            return False
        back = message.returned(reason)

        def tell() -> None:
            for callback in self.on_return:
                callback(back)

        self._owner.inbox.post(tell)
        return not self.confirming


def not_taken(error: MessagingError) -> Exception | None:
    """A refusal in pika's form; None for other errors."""
    if isinstance(error, Returned) and isinstance(error.message, Outgoing):
        return Unroutable(error, [error.message.returned(error)])
    return Nacked(error) if isinstance(error, Rejected) else None


class Publisher(Sender):
    """`tell(message, reason)` is called for a return, in the I/O thread with the session's lock held; True if the
    return is handled and must not be raised."""

    def __init__(self, session: Session, window: int | None, tell: Tell) -> None:
        window = SYNC_WINDOW if window is None else window
        super().__init__(session, session._waiting, "", "", window, False, None)
        self._tell = tell

    def entry(self, message: Message | bytes | str) -> Entry:
        assert isinstance(message, Outgoing)
        if self.once is not None:
            self.once.check(message.id, message.given.headers or {}, False)
        return publish_entry(self, message, message.id or self._worker.publishing.next_message_id())

    def settled(self, entry: Entry) -> bool:
        wanted = super().settled(entry)
        error, message = entry.error, entry.message
        if isinstance(error, Returned) and self._tell(message, error):
            message.told = True
            if error in self.failures:
                self.failures.remove(error)
        return wanted

    def raise_outcome(self, entry: Entry) -> None:
        if not entry.message.told:
            super().raise_outcome(entry)
