"""A broker whose roles, parts and requests are doubles that note what they are told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ha.model.membership import InSync, Member
from ha.model.position import make
from ha.model.status import State
from ha.node import Node
from ha.promotion.claims import ClaimRequest
from tests.unit.ha.world import Host, World

Call = tuple[Any, ...]


def noting(calls: list[Call], name: str) -> Callable[..., None]:
    return lambda *given, **named: calls.append((name, *given, *named.values()))


def role(calls: list[Call], names: str, **values: Any) -> Any:
    """A role that notes what it is told; neither primary nor backup."""
    return SimpleNamespace(**{name: noting(calls, name) for name in names.split()}, **values)


class Noting:
    """An object, some of whose methods only note that they were called."""

    def __init__(self, inner: Any, calls: list[Call], names: str) -> None:
        self._inner = inner
        for name in names.split():
            setattr(self, name, noting(calls, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def alone(**settings: Any) -> Host:
    """Broker a; the others do not run.  Nothing has happened."""
    world = World(**settings)
    for name in "bc":
        world[name].kill()
    return world["a"]


def fresh(**settings: Any) -> tuple[Node, Host, list[tuple[float, Callable[[], None]]]]:
    """A node that was not started, its host and the calls that were put off."""
    host = alone(**settings)
    later: list[tuple[float, Callable[[], None]]] = []
    host.after = lambda *it: later.append(it)  # type: ignore[method-assign]
    host.events.clear()
    host.world.lines.clear()
    node = Node(host.node.local)
    node.local.state = State.STANDALONE
    return node, host, later


def request(host: Host, epoch: int = 5, claimant: str = "b", **values: Any) -> ClaimRequest:
    member = Member(f"id-{claimant}", claimant, f"{claimant}:1", "first")
    return ClaimRequest(epoch, values.pop("member", member), make(9, 0), InSync(4, "id-a", 9), **values)
