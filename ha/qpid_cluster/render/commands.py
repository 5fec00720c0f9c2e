"""Shared by pcs.py and crmsh.py: the words of an operation, and the reasons above a command."""

from collections.abc import Iterable, Iterator

from ha.qpid_cluster.render.pacemaker import Operation, Primitive, Value
from ha.qpid_cluster.render.text import comment


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
