"""basic.get, one at a time: pika cannot wait for two answers (I/O thread)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from client_lib.connecting.transport import GET, GET_EMPTY, check_method

Got = Callable[[Any, Any, bytes], None]
"""method, properties, body; the method is None if the queue was empty."""


class Getting:
    def __init__(self) -> None:
        self._waiting: deque[tuple[str, bool, Got]] = deque()
        self._asked: Got | None = None
        self._channel: Any = None

    def new_channel(self, channel: Any) -> None:
        self.connection_lost()
        self._channel = channel
        channel.add_callback(lambda _frame: self._answered(None, None, b""), [GET_EMPTY], one_shot=False)

    def connection_lost(self) -> None:
        """The commands that asked run again."""
        self._waiting.clear()
        self._asked = self._channel = None

    def ask(self, queue: str, no_ack: bool, got: Got) -> None:
        """Raises what cannot be encoded."""
        check_method(self._channel, GET(queue=queue))
        self._waiting.append((queue, no_ack, got))
        if self._asked is None:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            queue, no_ack, self._asked = self._waiting.popleft()
            self._channel.basic_get(
                queue, lambda _channel, method, properties, body: self._answered(method, properties, body), no_ack
            )

    def _answered(self, method: Any, properties: Any, body: bytes) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked(method, properties, body)
        if self._asked is None:
            self._next()
