"""Mistakes of the registry that is kept by Pacemaker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from xml.etree import ElementTree

from ha.model.membership import HaState
from ha.registry import view as registry_view
from ha.registry.attributes import AttributeRegistry
from ha.registry.steps import Steps
from ha.registry.view import ClusterNode, NodeView
from ha.registry.worker import newest
from tests.simulator.mistakes_safety import patched


def lost_is_gone() -> AbstractContextManager[None]:
    """A node that is offline is taken for dead, although it was neither fenced nor stopped."""

    def node(name: str, states: dict[str, ElementTree.Element]) -> ClusterNode:
        found = old(name, states)
        return replace(found, gone=name in states and not found.online)

    old = registry_view._node
    return patched(registry_view, _node=node)


def quorum_unasked() -> AbstractContextManager[None]:
    """What a part of the cluster says is believed, whether it has a quorum or another part has it."""
    return patched(NodeView, objection=lambda self, own, reached: "")


def quorum_is_enough() -> AbstractContextManager[None]:
    """Quorum is asked for, and nothing else: two halves of a pair have it, and who was just cut off."""

    def objection(self: NodeView, own: str, reached: Collection[str]) -> str:
        return "" if self.quorum else "this partition of the cluster has no quorum"

    return patched(NodeView, objection=objection)


def own_copy_only() -> AbstractContextManager[None]:
    """What was written is not read back from other nodes: our own copy is taken for everybody's."""

    def read_back(
        self: AttributeRegistry, wanted: Callable[[NodeView], bool], deadline: float
    ) -> Steps[dict[str, NodeView]]:
        yield from self._look(deadline)
        return dict.fromkeys(self._view.online, self._view)

    return patched(AttributeRegistry, _read_back=read_back)


def unsealed() -> AbstractContextManager[None]:
    """What enough nodes hold is taken to be there for good: the copy of a node that was cut off may undo it."""

    def seal(self: AttributeRegistry, value: str, number: int, deadline: float) -> Steps[list[HaState]]:
        return []
        yield

    return patched(AttributeRegistry, _seal=seal)


def read_before_write() -> AbstractContextManager[None]:
    """The entries are those of the look before the write: what another one has written meanwhile is not compared."""

    def write(self: AttributeRegistry, state: HaState, deadline: float) -> Steps[tuple[HaState, ...]]:
        self._fresh_until = 0.0
        yield from self._look(deadline)
        before = newest(self._states(self._view))
        yield from old(self, state, deadline)
        return before

    old = AttributeRegistry._write
    return patched(AttributeRegistry, _write=write)
