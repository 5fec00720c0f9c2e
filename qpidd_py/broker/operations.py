"""Operations of the log that change the configuration: field tables with the entry "op".                       Pure."""

from collections.abc import Mapping
from typing import Any

from qpidd_py.broker.exchange import BindingKey

Operation = dict[str, Any]


def octets(value: str | bytes) -> bytes:
    """A routing key as octets: long strings of a table are read as str if they are UTF-8."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def queue_operation(
    name: str,
    number: int,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
    user: str = "",
    secret: str = "",
) -> Operation:
    """The operation "queue.declare"; `arguments` hold the effective level, `user` has declared it; `secret`: of one
    that remembers keys (`deduplication.py`)."""
    return {
        "op": "queue.declare",
        "name": name,
        "number": number,
        "durable": durable,
        "exclusive": exclusive,
        "auto_delete": auto_delete,
        "arguments": arguments,
        "user": user,
        **({"secret": secret} if secret else {}),
    }


def exchange_operation(
    name: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, Any],
    secret: str = "",
) -> Operation:
    """The operation "exchange.declare"; as `queue_operation`."""
    return {
        "op": "exchange.declare",
        "name": name,
        "type": kind,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments,
        **({"secret": secret} if secret else {}),
    }


def binding_operation(operation: str, key: BindingKey, arguments: Mapping[str, Any]) -> Operation:
    """The operations "bind" and "unbind"."""
    source, is_exchange, destination, routing_key, _ = key
    return {
        "op": operation,
        "source": source,
        "exchange": is_exchange,
        "destination": destination,
        "key": routing_key,
        "arguments": dict(arguments),
    }


def setting_operation(operation: str, key: tuple[str, str, str], value: Mapping[str, Any] | None = None) -> Operation:
    """The operations "setting.put" and "setting.delete"; `key`: see `settings.Key`."""
    kind, host, name = key
    found: Operation = {"op": operation, "kind": kind, "host": host, "name": name}
    return found if value is None else {**found, "value": dict(value)}


def setting_key(operation: Operation) -> tuple[str, str, str]:
    return operation["kind"], operation["host"], operation["name"]
