"""The bindings that an address asks for, as operations (pure); see `resolve`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from client_lib.addresses.address import Address, Binding, NodeType
from client_lib.addresses.operations import Operation, Resolution, demand
from client_lib.errors import InvalidOption


@dataclass(frozen=True)
class Found:
    """The kind of node that was found; `exchange_type` None: unknown, since 0-9-1 cannot query it."""

    type: NodeType
    exchange_type: str | None = None
    restore: tuple[Operation, ...] = ()


def bind_link(address: Address, node: Found, queue: str | None) -> Resolution[tuple[Operation, ...]]:
    """link.x-bindings; a subscription without any is bound to its node."""
    bindings = bindings_of(address, address.link.x_bindings, node, queue)
    subscription = node.type is NodeType.TOPIC and queue is not None
    if subscription and (address.subject is not None or not bindings):
        keys = _DEFAULT_KEYS.get(node.exchange_type, ("#", "")) if address.subject is None else (address.subject,)
        bindings = [*(_bind(queue, address.name, key, {}) for key in keys), *bindings]
    return (yield from bind_all(bindings))


_DEFAULT_KEYS: dict[str | None, tuple[str, ...]] = {"topic": ("#",), "fanout": ("",), "headers": ("",), "direct": ("",)}
"""An exchange of unknown type gets both bindings: for each type one of them has the intended effect."""


def bindings_of(address: Address, wanted: Iterable[Binding], node: Found, queue: str | None = None) -> list[Operation]:
    exchange = address.name if node.type is NodeType.TOPIC else None
    queue = address.name if node.type is NodeType.QUEUE else queue
    found = []
    for binding in wanted:
        to, source = binding.queue or queue, binding.exchange or exchange
        if to is None or source is None:
            raise InvalidOption(f"x-bindings of {address.name}: {'queue' if to is None else 'exchange'} is missing")
        found.append(_bind(to, source, binding.key or "", binding.arguments))
    return found


def _bind(queue: str | None, exchange: str, key: str, arguments: Mapping[str, Any]) -> Operation:
    where = {"queue": queue, "exchange": exchange, "routing_key": key, "arguments": dict(arguments)}
    return Operation("queue_bind", where)


def unbind(bound: Operation) -> Operation:
    return Operation("queue_unbind", bound.arguments)


def bind_all(operations: list[Operation]) -> Resolution[tuple[Operation, ...]]:
    for operation in operations:
        yield from demand(operation)
    return tuple(operations)
