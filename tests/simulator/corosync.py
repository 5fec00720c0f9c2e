"""Corosync as Pacemaker needs it: rings of nodes, and in each ring one order of messages for all.

A ring is noticed to be broken after the token's timeout; until then its members know nothing of it, and nothing is sent
in it.  A message that is in order reaches its sender first.  When a ring has broken, those of its members that form a
new one have among them what any of them had (extended virtual synchrony, as totem has it): what none of them had they
will never have.  What a member had not sent yet it sends in its new ring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.simulator.cib import Cib
from tests.simulator.scheduler import Call

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

LOOK: Final = 0.01
"""Seconds between two looks at who hears whom."""
Change = Callable[[Cib], Cib]


class Node:
    """A host of the cluster."""

    def __init__(self, process: BrokerProcess, cib: Cib) -> None:
        self.process = process
        self.name = process.name
        self.cib = cib
        self.ring = Ring([self])
        self.applied = 0
        """Messages of its ring."""
        self.up = False
        self.stopped = 0
        """The life of its broker in which its cluster stack was stopped in an orderly way; 0: it was not."""
        self.off_until = 0.0
        """A fence device keeps it off until then."""
        self.deaf = False
        """Pacemaker's daemon that has the configuration is being restarted: commands of this host do not reach it."""
        self.met: set[str] = {self.name}
        """Nodes that it has been in a ring with since its start."""


class Ring:
    """Its members never change; `log` is the order of its messages."""

    def __init__(self, members: Iterable[Node]) -> None:
        self.members = tuple(members)
        self.log: list[Change] = []
        self.unsent: list[tuple[Node, Change, Call]] = []
        """With what the sender does when it has its own message back."""
        self.hops: list[Call] = []
        """Answers and questions between two members; they wait while the ring is broken."""

        self.controller: Node | None = None
        """Who speaks for it, once elected."""
        self.names = frozenset(node.name for node in self.members)

    @property
    def waits(self) -> bool:
        """Is there something to be done as soon as it is intact?"""
        behind = any(node.applied < len(self.log) for node in self.members)
        return bool(self.unsent or self.hops or behind)


class Corosync:
    """All rings."""

    def __init__(self, simulation: Simulation, nodes: list[Node], token: float, apart: bool) -> None:
        """`token`: seconds until a new ring is formed; `apart`: it has a network of its own."""
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._rng = simulation.scenario.rng("corosync")
        self._token, self._apart = token, apart
        self.nodes = nodes
        self.cuts: set[frozenset[str]] = set()
        """Of the network of its own, or of the ports of Corosync alone."""
        self.formed: Callable[[Ring], None] = lambda ring: None
        self.changed: Call = lambda: None
        self._wanted: list[frozenset[str]] = []
        self._since = 0.0
        self._scheduler.at(LOOK, self._look)

    # ---- who hears whom -------------------------------------------------------------------------------------------

    def _hears(self, one: Node, other: Node) -> bool:
        if not (one.up and other.up) or frozenset((one.name, other.name)) in self.cuts:
            return one is other and one.up
        liveness = self._simulation.liveness
        if liveness.under_way:  # a core is a partition of its own: the manager takes the others for failed
            return (one.process in liveness.core) == (other.process in liveness.core)
        return self._apart or self._simulation.network.connected(one.name, other.name)

    def intact(self, ring: Ring) -> bool:
        members = ring.members
        return all(one.ring is ring and self._hears(one, other) for one in members for other in members)

    def _parts(self) -> list[frozenset[str]]:
        """Groups in which everybody hears everybody; each node joins the first group that takes it."""
        parts: list[list[Node]] = []
        for node in self.nodes:
            if not node.up:
                continue
            part = next((part for part in parts if all(self._hears(node, each) for each in part)), None)
            if part is None:
                parts.append(part := [])
            part.append(node)
        return [frozenset(node.name for node in part) for part in parts]

    # ---- rings ----------------------------------------------------------------------------------------------------

    def rings(self) -> list[Ring]:
        return list(dict.fromkeys(node.ring for node in self.nodes if node.up))

    def _look(self) -> None:
        self._scheduler.at(LOOK, self._look)
        for ring in self.rings():
            if ring.waits and self.intact(ring):
                self._resume(ring)
        wanted, rings = self._parts(), self.rings()
        if wanted == [ring.names for ring in rings]:
            self._wanted = wanted
        elif wanted != self._wanted:
            self._wanted, self._since = wanted, self._scheduler.now
        elif self._scheduler.now - self._since >= self._token:
            self._form(wanted)

    def _resume(self, ring: Ring) -> None:
        for node in ring.members:
            self.apply(node, len(ring.log))
        unsent, ring.unsent = ring.unsent, []
        hops, ring.hops = ring.hops, []
        for node, change, done in unsent:
            self._send(ring, node, change, done)
        for hop in hops:
            hop()

    def _form(self, parts: list[frozenset[str]]) -> None:
        by_name = {node.name: node for node in self.nodes}
        for part in parts:
            members = [by_name[name] for name in sorted(part)]
            if all(node.ring.names == part for node in members):
                continue
            ring, old = Ring(members), dict.fromkeys(node.ring for node in members)
            for former in old:
                self._recover([node for node in members if node.ring is former], former, ring)
            for node in members:
                node.ring, node.applied = ring, 0
                node.met |= part
            self._simulation.history.counts["rings formed"] += 1
            self._scheduler.log("rm", f"a ring is formed: {' '.join(sorted(part))}")
            self.formed(ring)

    def _recover(self, members: list[Node], former: Ring, ring: Ring) -> None:
        """They have together what any of them has had."""
        most = max(node.applied for node in members)
        for node in members:
            self.apply(node, most)
        ring.unsent += [each for each in former.unsent if each[0] in members]

    def start(self, node: Node) -> None:
        """Its stack starts: alone at first."""
        node.up, node.met = True, {node.name}
        node.ring, node.applied = Ring([node]), 0
        self.formed(node.ring)

    # ---- messages -------------------------------------------------------------------------------------------------

    def send(self, node: Node, change: Change, done: Call = lambda: None) -> None:
        """In order to all nodes of the ring; `done` when the sender has applied it."""
        if self.intact(node.ring):
            self._send(node.ring, node, change, done)
        else:
            node.ring.unsent.append((node, change, done))

    def _send(self, ring: Ring, sender: Node, change: Change, done: Call) -> None:
        ring.log.append(change)
        number = len(ring.log)
        for node in ring.members:
            delay = self._rng.uniform(0.0, 0.0005) if node is sender else self.delay()
            self._scheduler.at(delay, partial(self._arrive, ring, sender, node, number, done))

    def _arrive(self, ring: Ring, sender: Node, node: Node, number: int, done: Call) -> None:
        if node.ring is not ring or not node.up:
            return
        if not self._hears(sender, node):
            return  # it comes when the way is open again, or with a new ring, or never
        self.apply(node, number)
        if node is sender:
            done()

    def apply(self, node: Node, until: int) -> None:
        if node.applied >= until:
            return
        node.cib, node.applied = self.ahead(node, until), until
        self.changed()

    @staticmethod
    def ahead(node: Node, until: int) -> Cib:
        """Its copy when it has applied so much."""
        cib = node.cib
        for change in node.ring.log[node.applied : until]:
            cib = change(cib)
        return cib

    def hop(self, ring: Ring, call: Call) -> None:
        """Something between two members of this ring: later, or never."""

        def arrive() -> None:
            if self.intact(ring):
                call()
            else:
                ring.hops.append(call)

        self._scheduler.at(self.delay(), arrive)

    def delay(self) -> float:
        slowness: float = self._simulation.registry.slowness
        return self._rng.uniform(0.0003, 0.004) + slowness * self._rng.random()
