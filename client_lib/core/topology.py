"""Queues, exchanges and bindings of a session, for both APIs: declared now and after each fail-over.

An exclusive or auto-delete queue is deleted with its connection: after a fail-over it is declared again, empty.  The
name of a queue that was declared without one is generated here, so it stays the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from client_lib.core.commands import shown
from client_lib.core.declarations import Declaration
from client_lib.core.requests import Requests
from client_lib.steps import Steps

Arguments = dict[str, Any]


class Topology:
    """All methods may be called from any thread."""

    def __init__(self, name: str, requests: Requests) -> None:
        self._name, self._requests = name, requests

    def start_declaration(self, method: str, remember: bool, **arguments: Any) -> Future[Any]:
        """Calls a method of the channel, with pika's name, now and, with `remember`, after each fail-over."""
        if arguments.get("arguments", 0) is None:
            arguments["arguments"] = {}
        declaration = Declaration(method, arguments)

        def run(channel: Any, done: Callable[[Any], None]) -> None:
            def answered(frame: Any) -> None:
                if remember:
                    self._remember(declaration)
                done(frame)

            getattr(channel, method)(**arguments, callback=answered)

        said = ", ".join(f"{name}={shown(value)}" for name, value in arguments.items() if value)
        return self._requests.start_command(run, f"{method.replace('_', '.', 1)}({said})")

    def _remember(self, declaration: Declaration) -> None:
        with self._requests.monitor:
            self._requests.declarations.remember(declaration)

    def forget(self, gone: Callable[[Declaration], bool]) -> None:
        """Declarations that are not restored any more."""
        with self._requests.monitor:
            self._requests.declarations.forget(gone)

    # -- steps

    def declaring_queue(
        self, queue: str, passive: bool, durable: bool, exclusive: bool, auto_delete: bool, arguments: Arguments | None
    ) -> Steps[str]:
        queue = queue or f"{self._name}.{uuid.uuid4().hex}"
        yield self.start_declaration(
            "queue_declare",
            not passive,
            queue=queue,
            passive=passive,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        return queue

    def declaring_exchange(
        self,
        exchange: str,
        exchange_type: str,
        passive: bool,
        durable: bool,
        auto_delete: bool,
        arguments: Arguments | None,
    ) -> Steps[None]:
        yield self.start_declaration(
            "exchange_declare",
            not passive,
            exchange=exchange,
            exchange_type=exchange_type,
            passive=passive,
            durable=durable,
            auto_delete=auto_delete,
            arguments=arguments,
        )

    def binding_queue(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None, bind: bool = True
    ) -> Steps[None]:
        """Binds, or unbinds."""
        where = {"queue": queue, "exchange": exchange, "routing_key": routing_key, "arguments": arguments or {}}
        yield from self._binding("queue_bind", "queue_unbind", bind, where)

    def binding_exchange(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None, bind: bool = True
    ) -> Steps[None]:
        where = {
            "destination": destination,
            "source": source,
            "routing_key": routing_key,
            "arguments": arguments or {},
        }
        yield from self._binding("exchange_bind", "exchange_unbind", bind, where)

    def _binding(self, method: str, inverse: str, bind: bool, where: dict[str, Any]) -> Steps[None]:
        if not bind:
            # Before the method runs: a fail-over in between must not restore it
            self.forget(lambda declared: declared == Declaration(method, where))
        yield self.start_declaration(method if bind else inverse, bind, **where)

    def deleting_queue(self, queue: str, if_unused: bool, if_empty: bool) -> Steps[None]:
        yield self.start_declaration("queue_delete", False, queue=queue, if_unused=if_unused, if_empty=if_empty)
        self.forget(lambda declared: declared.concerns("queue", queue))

    def deleting_exchange(self, exchange: str, if_unused: bool) -> Steps[None]:
        yield self.start_declaration("exchange_delete", False, exchange=exchange, if_unused=if_unused)
        self.forget(lambda declared: declared.concerns("exchange", exchange))

    def purging_queue(self, queue: str) -> Steps[int]:
        """How many messages were removed."""
        frame = yield self.start_declaration("queue_purge", False, queue=queue)
        return int(frame.method.message_count)
