"""What a session declares again after a fail-over (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from client_lib.addresses.operations import Operation


@dataclass(frozen=True)
class Declaration:
    """A piece of topology: a method of the channel, with pika's name, and its arguments."""

    method: str
    arguments: dict[str, Any]

    def concerns(self, kind: str, name: str) -> bool:
        """True if this concerns the queue or exchange `name`."""
        keys = ("queue",) if kind == "queue" else ("exchange", "source", "destination")
        return any(self.arguments.get(key) == name for key in keys)


class Declarations:
    """In the order in which they were made; first those of the application, then those of addresses in use."""

    def __init__(self) -> None:
        self.restores: dict[object, tuple[Operation, ...]] = {}
        """Declarations of senders and receivers of addresses, by owner."""
        self._topology: list[Declaration] = []

    def remember(self, declaration: Declaration) -> None:
        if declaration not in self._topology:
            self._topology.append(declaration)

    def forget(self, gone: Callable[[Declaration], bool]) -> None:
        self._topology = [declared for declared in self._topology if not gone(declared)]

    def all(self) -> list[Declaration]:
        """All declarations, each once."""
        found = list(self._topology)
        for operations in list(self.restores.values()):
            for operation in operations:
                declaration = Declaration(operation.method, dict(operation.arguments))
                if declaration not in found:
                    found.append(declaration)
        return found
