"""Settings, operations and resources of Pacemaker; and how pcs.py and crmsh.py word them, with the reasons above."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ha.qpid_cluster.render.text import comment


@dataclass(frozen=True)
class Value:
    """One setting; `why` is for people."""

    name: str
    value: str
    why: str = ""


@dataclass(frozen=True)
class Operation:
    """How Pacemaker calls an agent."""

    name: str
    timeout: str
    interval: str = "0s"
    role: str = ""
    on_fail: str = ""
    why: str = ""


@dataclass(frozen=True)
class Primitive:
    """One resource; `agent` is CLASS:PROVIDER:TYPE, or stonith:TYPE."""

    id: str
    agent: str
    why: str
    parameters: tuple[Value, ...] = ()
    meta: tuple[Value, ...] = ()
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True)
class Model:
    """The whole configuration except the nodes."""

    properties: tuple[Value, ...]
    defaults: tuple[Value, ...]
    broker: Primitive
    clone: tuple[Value, ...]
    address: Primitive | None
    network: Primitive | None
    """Looks whether a node reaches the clients' network."""
    devices: tuple[Primitive, ...]
    avoided: tuple[tuple[str, str], ...]
    """(device, node): the device does not run there."""


def lines(parts: Iterable[str]) -> str:
    """One command on several lines."""
    return " \\\n    ".join(parts)


def said(why: str, command: str) -> Iterator[str]:
    """The command under its reason."""
    yield from comment(why)
    yield command


def reasons(values: Iterable[Value]) -> str:
    """The reasons of the settings that have one, by name."""
    return "\n".join(f"{value.name}: {value.why}" for value in values if value.why)


def why(primitive: Primitive) -> str:
    """All reasons for a resource and its settings."""
    operations = (Value(f"{each.name} {each.role}".strip(), "", each.why) for each in primitive.operations)
    texts = (primitive.why, reasons(primitive.parameters), reasons(primitive.meta), reasons(operations))
    return "\n".join(text for text in texts if text)


def operation(each: Operation) -> str:
    """`monitor interval=5s timeout=20s`, as both tools take it."""
    pairs = {"interval": each.interval, "timeout": each.timeout, "role": each.role, "on-fail": each.on_fail}
    return " ".join([each.name, *(f"{name}={value}" for name, value in pairs.items() if value)])
