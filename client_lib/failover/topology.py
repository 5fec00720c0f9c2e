"""Queues, exchanges and bindings of `FailoverChannel`: pika's methods; declarations are remembered for the next
fail-over.

Declarations are repeated after a fail-over, in the same order; deleted or unbound objects are forgotten.  A passive
declaration is a query and is not repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pika.exchange_type import ExchangeType
from pika.validators import require_string

from client_lib.failover.core import ChannelCore

Arguments = Mapping[str, Any] | None


class Topology(ChannelCore):
    _last_queue = ""

    def queue_declare(
        self,
        queue: str,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments = None,
    ) -> Any:
        """Returns the frame of Queue.DeclareOk.  An empty name is replaced by a new one, the same over fail-overs."""
        require_string(queue, "queue")
        self._last_queue = queue = queue or f"{self._declaring.name}.gen-{uuid.uuid4().hex}"
        flags = {"durable": durable, "exclusive": exclusive, "auto_delete": auto_delete, "passive": passive}
        return self._declare("queue_declare", not passive, queue=queue, **flags, arguments=_table(arguments))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False) -> Any:
        """Returns the frame of Queue.DeleteOk."""
        require_string(queue, "queue")
        name = self._named(queue)
        frame = self._declare("queue_delete", False, queue=name, if_unused=if_unused, if_empty=if_empty)
        self._declaring.forget(lambda declared: declared.concerns("queue", name))
        return frame

    def queue_purge(self, queue: str) -> Any:
        """Returns the frame of Queue.PurgeOk."""
        require_string(queue, "queue")
        return self._declare("queue_purge", False, queue=self._named(queue))

    def queue_bind(self, queue: str, exchange: str, routing_key: str | None = None, arguments: Arguments = None) -> Any:
        """Returns the frame of Queue.BindOk.  The routing key is the queue's name if none is given."""
        require_string(queue, "queue")
        require_string(exchange, "exchange")
        return self._declare("queue_bind", True, **self._binding(queue, exchange, routing_key, arguments))

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str | None = None, arguments: Arguments = None
    ) -> Any:
        """Returns the frame of Queue.UnbindOk."""
        require_string(queue, "queue")
        binding = self._binding(queue, exchange, routing_key, arguments)
        return self._undo("queue_bind", "queue_unbind", binding)

    def exchange_declare(
        self,
        exchange: str,
        exchange_type: ExchangeType | str = ExchangeType.direct,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments = None,
    ) -> Any:
        """Returns the frame of Exchange.DeclareOk."""
        require_string(exchange, "exchange")
        flags = {"durable": durable, "auto_delete": auto_delete, "internal": internal, "passive": passive}
        kind = exchange_type.value if isinstance(exchange_type, ExchangeType) else exchange_type
        table = _table(arguments)
        return self._declare(
            "exchange_declare", not passive, exchange=exchange, exchange_type=kind, **flags, arguments=table
        )

    def exchange_delete(self, exchange: str | None = None, if_unused: bool = False) -> Any:
        """Returns the frame of Exchange.DeleteOk."""
        require_string(exchange, "exchange")
        frame = self._declare("exchange_delete", False, exchange=exchange, if_unused=if_unused)
        self._declaring.forget(lambda declared: declared.concerns("exchange", str(exchange)))
        return frame

    def exchange_bind(self, destination: str, source: str, routing_key: str = "", arguments: Arguments = None) -> Any:
        """Returns the frame of Exchange.BindOk."""
        require_string(destination, "destination")
        require_string(source, "source")
        ends = {"destination": destination, "source": source, "routing_key": routing_key}
        return self._declare("exchange_bind", True, **ends, arguments=_table(arguments))

    def exchange_unbind(
        self,
        destination: str | None = None,
        source: str | None = None,
        routing_key: str = "",
        arguments: Arguments = None,
    ) -> Any:
        """Returns the frame of Exchange.UnbindOk."""
        require_string(destination, "destination")
        require_string(source, "source")
        ends = {"destination": destination, "source": source, "routing_key": routing_key}
        return self._undo("exchange_bind", "exchange_unbind", {**ends, "arguments": _table(arguments)})

    def _named(self, queue: str) -> str:
        """AMQP's rule: no name means the queue that was declared last on this channel."""
        return queue or self._last_queue

    def _binding(self, queue: str, exchange: str, routing_key: str | None, arguments: Arguments) -> dict[str, Any]:
        name = self._named(queue)
        key = name if routing_key is None else routing_key
        return {"queue": name, "exchange": exchange, "routing_key": key, "arguments": _table(arguments)}

    def _declare(self, method: str, remember: bool, **arguments: Any) -> Any:
        self._check_open()
        return self._answer(self._declaring.start_declaration(method, remember, **arguments))

    def _undo(self, done: str, undo: str, where: dict[str, Any]) -> Any:
        # Forgotten first: a fail-over in between must not bind again what this is about to unbind
        self._declaring.forget(lambda declared: declared.method == done and declared.arguments == where)
        return self._declare(undo, False, **where)


def _table(arguments: Arguments) -> dict[str, Any]:
    return dict(arguments or {})
