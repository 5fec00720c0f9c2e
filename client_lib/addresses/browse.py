"""Browsing a queue: its messages in order, each once, without taking them (pure).

AMQP 0-9-1 has no browsing.  A qpidd-py broker answers the management request `queue.peek` with the messages after a
position.  Positions only grow, also over fail-overs, so browsing continues after the last one seen.  A message that
another client has received and not settled is still in the queue and is shown.  A message that was consumed before the
request is not shown.

`polling` sends the requests.  While the queue has nothing new, the pause between two requests doubles from PAUSE_MIN to
PAUSE_MAX.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from client_lib.addresses.operations import NOT_FOUND
from client_lib.errors import InvalidOption, NotFound, ReceiverError
from client_lib.message import Message, received
from client_lib.properties import decode_properties

METHOD = "queue.peek"
PAUSE_MIN, PAUSE_MAX = 0.01, 1.0  # seconds
_CONTENT_HEAD = 12  # octets of a content header before its property list: class, weight, size of the body


class Browser:
    """The position and the pause of one browsing receiver."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.position = 0
        self.pause = PAUSE_MIN
        """Seconds to wait before the next request."""

    def request(self, limit: int) -> bytes:
        """The arguments of the next request, for at most `limit` messages."""
        return json.dumps({"queue": self.queue, "after": self.position, "limit": limit}).encode()

    def answered(self, body: bytes) -> list[Message]:
        """The messages of an answer.  Raises NotFound (the queue is gone), InvalidOption, ReceiverError."""
        answer = json.loads(body)
        if not answer["ok"]:
            kind = NotFound if answer.get("code") == NOT_FOUND else ReceiverError
            raise kind(f"browsing {self.queue}: {answer['error']}")
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
    """Octets that are not UTF-8 arrive as base64."""
    if isinstance(value, str):
        return value
    return base64.b64decode(value["base64"]).decode("utf-8", "backslashreplace")
