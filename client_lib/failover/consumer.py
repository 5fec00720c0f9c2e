"""A consumer of `FailoverChannel`: a subscription whose messages are announced in the connection's inbox.

The message itself waits in the subscription's buffer until the application's thread takes it.  When a connection is
lost, messages that were not handed out are dropped there, and their announcements find nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client_lib.errors import MessagingError, TransactionError
from client_lib.failover.content import Incoming
from client_lib.failover.errors import translate
from client_lib.message import Message
from client_lib.session import Receiver

Announce = Callable[[], None]


class AnnouncingReceiver(Receiver):
    """The subscription; `announce` is called for each message, in the I/O thread with the session's lock held."""

    announce: Announce

    def build(self, method: Any, properties: Any, body: bytes) -> Message:
        return Incoming(method, properties, body)

    def unread(self, redelivered: bool, exchange: str, routing_key: str, payload: bytes, body: bytes) -> Message:
        return Incoming.unread(self.consumer_tag, redelivered, exchange, routing_key, payload, body)

    def arrived(self, message: Message) -> None:
        super().arrived(message)
        self.announce()

    def next_arrived(self) -> Message | None:
        """The next message that is here, from any thread: waits for nothing and asks for nothing.  Raises
        TransactionAborted, TransactionUnknown."""
        with self._waiting.lock:
            message = self.take()
        if message is not None and self._worker.events.enabled:
            self.note_fetched(message)
        return message


class Consumer:
    """`on_message` is called with each message; None for the generator of `consume()`, which takes them itself."""

    def __init__(self, tag: str, receiver: AnnouncingReceiver, on_message: Callable[[Incoming], None] | None) -> None:
        self.tag, self.receiver = tag, receiver
        self.on_message = on_message
        self.alive = True
        """False once it is cancelled, by either side."""

    @property
    def auto_ack(self) -> bool:
        return self.receiver.no_ack

    def take(self, timeout: float | None = 0) -> Incoming | None:
        """The next message.  Raises pika's AMQPConnectionError if a transaction was lost."""
        receiver = self.receiver
        try:
            message = receiver.next_arrived() if timeout == 0 else receiver.poll(timeout)
        except TransactionError as error:
            raise translate(error) from error
        except MessagingError:  # no more will come; the channel raises the reason
            return None
        assert message is None or isinstance(message, Incoming)
        return message

    def announce_again(self) -> None:
        """Announces again messages whose announcement came before a lost transaction was rolled back."""
        for _ in range(self.receiver.available()):
            self.receiver.announce()

    def left(self) -> list[Incoming]:
        """Messages that came before the broker answered a cancel, if they will not be delivered again."""
        with self.receiver.session._waiting.monitor:
            return [message for message in self.receiver.drain() if isinstance(message, Incoming)]

    def dispatch(self) -> None:
        """Hands out one message, if it is still in the buffer."""
        if self.alive and self.on_message is not None:
            message = self.take()
            if message is not None:
                self.on_message(message)
