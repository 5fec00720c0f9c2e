"""The declarations of a `FailoverChannel`, which are remembered for the next fail-over.

Declarations are repeated after a fail-over, in the same order; deleted or unbound objects are forgotten.  A passive
declaration is a query and is not repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from client_lib.failover.core import ChannelCore

Arguments = Mapping[str, Any] | None


class ChannelTopology:
    def __init__(self, core: ChannelCore) -> None:
        self._core = core
        self._declared = core.declaring._waiting.core.topology
        self._last_queue = ""

    def named(self, queue: str) -> str:
        """AMQP's rule: no name means the queue that was declared last on this channel."""
        return queue or self._last_queue

    def new_name(self, queue: str) -> str:
        """The name of a queue that is being declared; generated if it is empty."""
        self._last_queue = queue or f"{self._core.declaring.name}.gen-{uuid.uuid4().hex}"
        return self._last_queue

    def binding(self, queue: str, exchange: str, routing_key: str | None, arguments: Arguments) -> dict[str, Any]:
        name = self.named(queue)
        key = name if routing_key is None else routing_key
        return {"queue": name, "exchange": exchange, "routing_key": key, "arguments": table(arguments)}

    def declare(self, method: str, remember: bool, **arguments: Any) -> Any:
        """Returns the frame of the answer."""
        self._core.check_open()
        return self._core.answer(self._declared.start_declaration(method, remember, **arguments))

    def delete(self, kind: str, name: str, **arguments: Any) -> Any:
        """`kind` is queue or exchange."""
        frame = self.declare(f"{kind}_delete", False, **{kind: name}, **arguments)
        self._declared.forget(lambda declared: declared.concerns(kind, name))
        return frame

    def unbind(self, kind: str, where: dict[str, Any]) -> Any:
        # Forgotten first: a fail-over in between must not bind again what this is about to unbind
        self._declared.forget(lambda declared: declared.method == f"{kind}_bind" and declared.arguments == where)
        return self.declare(f"{kind}_unbind", False, **where)


def table(arguments: Arguments) -> dict[str, Any]:
    return dict(arguments or {})
