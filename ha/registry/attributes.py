"""The registry as node attributes of Pacemaker: one exchange, step by step.  Runs in the helper process.          Pure.

Each broker writes the attribute of its own node only, permanently (it outlives a restart of the cluster stack).

    look       check in our node's copy of the configuration whether writing is allowed here
    write      crm_attribute: Corosync brings the change to all nodes of the partition, in the same order
    read back  from our node and from every other one, until enough of them have what we wrote (`registry/view.py`)
    seal       only if a node lacks it: cibadmin raises admin_epoch, which is read back in the same way

*Reading back.*  Corosync delivers a node's own change when its turn to send comes, before any other node has it.  A
node that is cut off at that moment gets "written" and has quorum until the token timeout, but no other node ever has
the change.  An answer of another node is proof, and shows what that node knew before.

*Looking first.*  When partitions merge, Pacemaker keeps the configuration with the most changes, with or without
quorum: a cut-off broker that keeps writing would undo what the others have recorded.

*Sealing.*  A change that was under way when a node was cut off is made there alone, once that node has its own ring.
Its copy may then have as many changes as ours, or more: it would replace ours when it returns, and what was recorded
here would be lost.  The copy with the higher admin_epoch wins whatever the number of changes, and a broker raises it
only after enough nodes have what it wrote.

Limit: an administrator who changes the configuration in a partition without quorum, or who restores an old one, can
make the registry forget.  The primary notices at its next look and writes again (`registry.Recorder`); what the living
brokers know themselves counts in every promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.registry.steps import OlderError, Steps, Tool, Tools, Wait, run
from ha.registry.view import NodeView, decode, encode, parse, query
from ha.registry.worker import RegistryError, newest

FRESH: Final = 0.5
"""Seconds for which a look allows writes."""
FIRST_PAUSE: Final = 0.05
LAST_PAUSE: Final = 0.1
"""Seconds between two looks, at first and later.  A promotion after fencing waits for the next one."""


class AttributeRegistry:
    """Exchanges through Pacemaker's tools."""

    def __init__(self, cluster: str, tools: Tools) -> None:
        self._tools = tools
        self.attribute = f"qpid-ha-state-{cluster}" if cluster else "qpid-ha-state"
        self._query = ("--query", "--no-children", "--xpath", query(self.attribute))
        self._node = ""
        self._view = NodeView()
        self._fresh_until = 0.0

    def exchange(self, state: HaState | None, timeout: float) -> Steps[Exchanged]:
        """Write our entry, read all entries; `timeout` in seconds.  Raises RegistryError."""
        deadline = self._tools.now() + timeout
        if not self._node:
            self._node = (yield from run(self._tools, deadline, "crm_node", "--name")).strip()
        if state is None or self._tools.now() >= self._fresh_until:
            yield from self._look(deadline)
        states = newest(self._states(self._view)) if state is None else (yield from self._write(state, deadline))
        return Exchanged(states, gone=self._gone())

    def _gone(self) -> frozenset[str]:
        """Ids of brokers whose node was fenced, or stopped in an orderly way with everything on it; without ids that
        another node has, too, since that broker may live (`twins.py`)."""
        left = {state.id for state in decode(self._view.left_behind, self.attribute)}
        return frozenset(left - {state.id for state in decode(self._view.remaining, self.attribute)})

    def _look(self, deadline: float) -> Steps[None]:
        """Return when writing is allowed.  Raises RegistryError at the deadline: a lost node must be fenced first."""
        objection, pause = "", FIRST_PAUSE
        while True:
            try:
                self._view = parse((yield from run(self._tools, deadline, "cibadmin", *self._query)))
            except RegistryError as error:
                raise RegistryError(objection or str(error)) from error
            objection = self._view.objection(self._node, self._view.online)
            if not objection:
                self._refresh()
                return
            if self._tools.now() + pause >= deadline:
                raise RegistryError(objection)
            yield Wait((), self._tools.now() + pause)
            pause = LAST_PAUSE

    def _write(self, state: HaState, deadline: float) -> Steps[tuple[HaState, ...]]:
        # An entry never goes back, even if the broker has lost its memory.
        (state,) = newest([state, *(other for other in self._states(self._view) if other.id == state.id)])
        value = encode(state)
        self._fresh_until = 0.0
        where = ("--node", self._node, "--name", self.attribute, "--lifetime", "forever")
        yield from run(self._tools, deadline, "crm_attribute", *where, "--update", value)
        views = yield from self._read_back(lambda view: value in view.values, deadline)
        states = self._states(*views.values())
        if any(node.name not in views for node in self._view.nodes):
            states += yield from self._seal(value, 1 + max(view.seal for view in views.values()), deadline)
        self._refresh()
        return newest(states)

    def _seal(self, value: str, number: int, deadline: float) -> Steps[list[HaState]]:
        """Prevent that the copy of a node that lacks the change undoes it.  Returns all entries."""
        with suppress(OlderError):  # another broker has just sealed as much or more
            yield from run(
                self._tools, deadline, "cibadmin", "--modify", "--xml-text", f'<cib admin_epoch="{number}"/>'
            )
        views = yield from self._read_back(lambda view: value in view.values and view.seal >= number, deadline)
        return self._states(*views.values())

    def _refresh(self) -> None:
        self._fresh_until = self._tools.now() + FRESH

    def _states(self, *views: NodeView) -> list[HaState]:
        return [state for view in views for state in decode(view.values, self.attribute)]

    # ---- from all nodes -------------------------------------------------------------------------------------------

    def _read_back(self, wanted: Callable[[NodeView], bool], deadline: float) -> Steps[dict[str, NodeView]]:
        """The copies of enough nodes for which `wanted` is true; of all nodes, if the online ones answer soon."""
        views: dict[str, NodeView] = {}
        asked: dict[Tool, str] = {}
        objection = f"node {self._node} does not answer"
        try:
            while self._tools.now() < deadline:
                self._ask(asked, views)
                until = min(deadline, self._tools.now() + LAST_PAUSE)
                while asked and (ended := (yield Wait(tuple(asked), until))):
                    for command in ended:
                        self._take(asked.pop(command), command, wanted, views)
                    objection = self._view.objection(self._node, views)
                    if not objection and self._view.online <= views.keys():
                        return views
                if not objection:
                    return views
                yield Wait((), until)
            raise RegistryError(objection)
        finally:
            for command in asked:
                command.kill()

    def _ask(self, asked: dict[Tool, str], views: dict[str, NodeView]) -> None:
        """Query our own node in every round, since it knows which nodes are fenced; others until they have what we
        wrote."""
        busy = set(asked.values())
        if self._node not in busy:
            asked[self._tools.start("cibadmin", *self._query)] = self._node
        for other in sorted(self._view.online - {self._node} - busy - views.keys()):
            asked[self._tools.start("cibadmin", *self._query, "--node", other)] = other

    def _take(self, name: str, command: Tool, wanted: Callable[[NodeView], bool], views: dict[str, NodeView]) -> None:
        try:
            view = parse(command.result())
        except RegistryError:
            if name == self._node:
                raise
            return  # it may have left: our own copy shows that in the next round
        if name == self._node:
            self._view = view
        if wanted(view):
            views[name] = view
