"""The steps of an exchange through commands.  Pure.

The exchange is a generator (`Steps`): it yields a `Wait`, and receives the commands that have ended.  The shell drives
it with processes (`registry/commands.py`), the simulator with virtual time.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from ha.registry.worker import RegistryError

T = TypeVar("T")


class Tool(Protocol):
    """One command that has been started."""

    name: str

    @property
    def ended(self) -> bool: ...

    def result(self) -> str:
        """The output of an ended command.  Raises RegistryError if it failed."""
        ...

    def kill(self) -> None:
        """No effect if it has ended already."""
        ...


class Tools(Protocol):
    """Starts commands."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def start(self, name: str, *words: str) -> Tool:
        """Raises RegistryError when there is no such command."""
        ...


@dataclass(frozen=True)
class Wait:
    """Continue when one of these has ended, with all that have; at `until` (by `Tools.now`) with none."""

    commands: tuple[Tool, ...]
    until: float


Steps = Generator[Wait, list[Tool], T]
OLDER: Final = 103
"""Exit code of `cibadmin` (CRM_EX_OLD): the configuration is newer than the update, and nothing was changed."""


class OlderError(RegistryError):
    """An update has met a newer configuration."""


def failed(name: str, code: int, output: str) -> RegistryError:
    """`output`: the standard error of the command."""
    lines = output.strip().splitlines()
    kind = OlderError if code == OLDER else RegistryError
    return kind(f"{name} ended with code {code}: {lines[-1] if lines else ''}")


def run(tools: Tools, deadline: float, name: str, *words: str) -> Steps[str]:
    """The output of the command.  Raises RegistryError if it fails or has not ended at the deadline."""
    command = tools.start(name, *words)
    try:
        if not (yield Wait((command,), deadline)):
            raise RegistryError(f"{name} has not ended in time")
        return command.result()
    finally:
        if not command.ended:
            command.kill()
