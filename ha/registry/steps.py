"""An exchange through commands, step by step: what it waits for, and who starts the commands.  Pure.

The exchange is a generator (`Steps`): it yields a `Wait`, and is sent the commands that have ended.  The shell drives
it with processes (`registry/commands.py`), the simulator with virtual time.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ha.registry.worker import RegistryError

T = TypeVar("T")


class Tool(Protocol):
    """One command that has been started."""

    name: str

    @property
    def ended(self) -> bool: ...

    def result(self) -> str:
        """What it has printed, once it has ended.  Raises RegistryError when it has failed."""
        ...

    def kill(self) -> None:
        """Nothing happens when it has ended already."""
        ...


class Tools(Protocol):
    """Where commands run."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def start(self, name: str, *words: str) -> Tool:
        """Raises RegistryError when there is no such command."""
        ...


@dataclass(frozen=True)
class Wait:
    """Go on as soon as one of these has ended, with all that have; with none at `until`, as `Tools.now` counts."""

    commands: tuple[Tool, ...]
    until: float


Steps = Generator[Wait, list[Tool], T]


def failed(name: str, code: int, output: str) -> RegistryError:
    """`output`: what the command has written to its standard error."""
    lines = output.strip().splitlines()
    return RegistryError(f"{name} ended with code {code}: {lines[-1] if lines else ''}")


def run(tools: Tools, deadline: float, name: str, *words: str) -> Steps[str]:
    """What the command prints.  Raises RegistryError when it fails or has not ended in time."""
    command = tools.start(name, *words)
    try:
        if not (yield Wait((command,), deadline)):
            raise RegistryError(f"{name} has not ended in time")
        return command.result()
    finally:
        if not command.ended:
            command.kill()
