"""Browsing a queue: its messages in order, each once, without taking them (pure).

AMQP 0-9-1 has no browsing.  Brokers of ours answer the management request `queue.peek` with the messages behind a
position; positions grow, through fail-overs, too, so the last one seen says where to go on.  A message that another
client has been given and has not settled is still in the queue and is shown.  One that was taken before we asked is
never seen.

`polling` asks; when the queue has nothing new the pauses between two questions double, from PAUSE_MIN to
PAUSE_MAX.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from client_lib.errors import InvalidOption, NotFound, ReceiverError
from client_lib.message import Message, decode_properties, received

METHOD = "queue.peek"
PAUSE_MIN, PAUSE_MAX = 0.01, 1.0  # seconds
_CONTENT_HEAD = 12  # octets of a content header before its property list: class, weight, size of the body


class Browser:
    """Where one browsing receiver is."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.position = 0
        self.pause = PAUSE_MIN
        """Seconds to wait before the next question."""

    def request(self, limit: int) -> bytes:
        """The arguments of the next question, for at most `limit` messages."""
        return json.dumps({"queue": self.queue, "after": self.position, "limit": limit}).encode()

    def answered(self, body: bytes) -> list[Message]:
        """The messages of an answer.  Raises NotFound (the queue is gone), InvalidOption, ReceiverError."""
        answer = json.loads(body)
        if not answer["ok"]:
            error = str(answer["error"])
            raise (NotFound if error.startswith("no queue") else ReceiverError)(f"browsing {self.queue}: {error}")
        found = answer["result"]
        if found and "header" not in found[0]:
            raise InvalidOption(f"browsing {self.queue}: this broker's {METHOD} knows no position to go on from")
        self.pause = PAUSE_MIN if found else min(2 * self.pause, PAUSE_MAX)
        if found:
            self.position = found[-1]["position"]
        return [_message(shown) for shown in found]


def _message(shown: dict[str, Any]) -> Message:
    header, body = base64.b64decode(shown["header"]), base64.b64decode(shown["body"])
    exchange, routing_key = _text(shown["exchange"]), _text(shown["routing_key"])
    return received(exchange, routing_key, shown["redelivered"], decode_properties(header[_CONTENT_HEAD:]), body)


def _text(value: str | dict[str, str]) -> str:
    """Octets that are no UTF-8 come as base64."""
    if isinstance(value, str):
        return value
    return base64.b64decode(value["base64"]).decode("utf-8", "backslashreplace")
