"""The sender of `FailoverChannel`: one window for all exchanges and routing keys; returns are reported as by pika."""

from __future__ import annotations

from collections.abc import Callable

from client_lib.core.outbox import Entry
from client_lib.errors import Returned
from client_lib.failover.content import Outgoing, publish_entry
from client_lib.message import Message
from client_lib.sender import Sender
from client_lib.session import Session

Tell = Callable[[Outgoing, Returned], bool]
SYNC_WINDOW = 1000  # threads that may wait for a confirm at a time


class Publisher(Sender):
    """`tell(message, reason)` is called for a return, in the I/O thread with the session's lock held; True if the
    return is handled and must not be raised."""

    def __init__(self, session: Session, window: int | None, tell: Tell) -> None:
        super().__init__(session, "", "", SYNC_WINDOW if window is None else window, False, None)
        self._tell = tell

    def entry(self, message: Message | bytes | str) -> Entry:
        assert isinstance(message, Outgoing)
        return publish_entry(self, message, message.id or self._session.next_message_id())

    def encode(self, entry: Entry, resent: bool) -> bytes:
        payload: bytes = entry.message.encode(entry.message_id, resent)
        return payload

    def settled(self, entry: Entry) -> bool:
        wanted = super().settled(entry)
        error, message = entry.error, entry.message
        if isinstance(error, Returned) and self._tell(message, error):
            message.told = True
            if error in self._failures:
                self._failures.remove(error)
        return wanted

    def raise_outcome(self, entry: Entry) -> None:
        if not entry.message.told:
            super().raise_outcome(entry)
