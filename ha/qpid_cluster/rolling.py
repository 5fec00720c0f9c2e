"""`qpid-cluster rolling-restart`: every broker gets a new process, one at a time, and the cluster keeps its messages.

    whole ──▶ a backup is restarted ──▶ whole ──▶ ... the next ... ──▶ the role moves ──▶ whole ──▶ the last one

A cluster is whole while exactly one broker is active and all others are ready.  Invariants: a broker is stopped only
in a whole cluster; the primary is not stopped, since its role was moved before.  The first thing that goes wrong ends
it: what was not restarted by then runs on.

Pure but for what `Manager` does; the managers are in `managers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

ACTIVE: Final = "active"
READY: Final = "ready"
Wait = Callable[[Callable[[], bool], str], None]
"""Wait for a condition; raises `RollingError` with the text when the time is over."""


class RollingError(Exception):
    """The restart has ended early; the text says why, and what was done."""


class Manager(Protocol):
    """A cluster manager; its methods return when it has taken the request."""

    def states(self) -> Mapping[str, str]:
        """Node → state of its broker; empty if it does not answer.  All members are there."""
        ...

    def stop(self, node: str) -> None: ...

    def start(self, node: str) -> None:
        """Also undoes an interrupted `stop`."""
        ...

    def move(self, node: str) -> None:
        """Make the backup of `node` the primary."""
        ...

    def moved(self) -> None:
        """The new primary is active: forget the request to move."""
        ...


def restart_all(manager: Manager, wait: Wait, say: Callable[[str], None]) -> None:
    """Raises RollingError."""
    primary, backups = order(manager.states())
    if not backups:
        raise RollingError(f"{primary} is the only broker, wanted a backup that takes its place")
    for node in backups:
        _restart(manager, node, wait, say)
    _move(manager, backups[0], wait)
    say(f"{backups[0]} is primary")
    _restart(manager, primary, wait, say)


def order(states: Mapping[str, str]) -> tuple[str, Sequence[str]]:
    """The primary, and the backups by name.  Raises RollingError for a cluster that is not whole."""
    if not whole(states):
        found = ", ".join(f"{name} {state or 'does not answer'}" for name, state in states.items())
        raise RollingError(f"found {found}; wanted one active, all others ready")
    primary = next(name for name, state in states.items() if state == ACTIVE)
    return primary, sorted(name for name in states if name != primary)


def whole(states: Mapping[str, str]) -> bool:
    return sorted(states.values()) == [ACTIVE, *[READY] * (len(states) - 1)]


def _restart(manager: Manager, node: str, wait: Wait, say: Callable[[str], None]) -> None:
    if order(manager.states())[0] == node:
        raise RollingError(f"{node} has become primary meanwhile, and is not stopped")
    try:
        manager.stop(node)
        wait(lambda: not manager.states()[node], f"{node} has not stopped")
    finally:
        manager.start(node)
    wait(lambda: whole(manager.states()), f"{node} is started, and is not in sync again")
    say(f"{node} is restarted and ready")


def _move(manager: Manager, node: str, wait: Wait) -> None:
    try:
        manager.move(node)
        wait(lambda: manager.states()[node] == ACTIVE and whole(manager.states()), f"{node} has not become primary")
    finally:
        manager.moved()
