"""A Pacemaker cluster below the brokers: each node has a copy of the configuration, and no two need be equal.

    rings (`corosync.py`) ──formed──▶ the controller of the ring says who is lost, and whether there is a quorum
                                      ──▶ joins all: of their copies the one with the most changes replaces the others
                                      ──▶ fences the lost ones, where there is a device

True to Pacemaker 2.1 in what the registry rests on:

* Reading needs no quorum, nor does writing: a part without quorum changes its own copy.
* When parts meet the copy with the highest (epoch, num_updates) wins, whichever part had quorum; of equals any.
* A node is *gone* (expected="down") after it was fenced or its stack was stopped in an orderly way, and until it is
  back; one that is merely lost is expected to be a member.  Without a device no node is ever fenced.
* The quorum in a copy is what the controller has written there last: for a moment after a cut it is an old one.
* A pair is `two_node` with `wait_for_all`: either half has quorum, but not after a start before it has met the other.

A copy outlives its node's power; that of a new machine is empty.  Not covered: a
configuration that an administrator puts back, a stop in maintenance mode (ha/README.md, section 8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.registry.view import decode
from tests.simulator.cib import GONE, LOST, MEMBER, PENDING, Cib
from tests.simulator.corosync import Corosync, Node, Ring
from tests.simulator.tools import ATTRIBUTE, Worker

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

LOOK: Final = 0.01
"""Seconds between two looks at which hosts have power."""
REBOOT: Final = 0.3
"""Seconds that a host without a broker needs to come back after a fencing."""


class Pacemaker:
    """One cluster; its nodes are all hosts."""

    def __init__(self, simulation: Simulation, option: Mapping[str, Any]) -> None:
        """`token`, `lag`, `device`: seconds at most until a new ring, until its controller has spoken, until a lost
        node is fenced; `apart`: Corosync has a network of its own; `times`: as from Pacemaker 2.1.7 on."""
        self.simulation = simulation
        self._scheduler = simulation.scheduler
        self._rng = simulation.scenario.rng("pacemaker")
        self._option = option
        self._counts = simulation.history.counts
        names = tuple(process.name for process in simulation.brokers)
        self._new = Cib(names)
        self.nodes: dict[str, Node] = {process.name: Node(process, self._new) for process in simulation.brokers}
        self._disks = {process.name: process.disk for process in simulation.brokers}
        self.corosync: Corosync = Corosync(simulation, [*self.nodes.values()], option["token"], option["apart"])
        self.corosync.formed, self.corosync.changed = self._formed, self._recorded
        self._known: set[str] = set()
        self._workers: dict[tuple[str, int], Worker] = {}
        self._begin()

    def _begin(self) -> None:
        """All nodes have met."""
        nodes = [*self.nodes.values()]
        ring = Ring(nodes)
        for node in nodes:
            node.ring, node.up, node.met = ring, True, set(self.nodes)
            node.cib = node.cib.seen(dict.fromkeys(self.nodes, MEMBER), True)
        self._scheduler.at(LOOK, self._look)

    def exchange(
        self, process: BrokerProcess, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]
    ) -> None:
        key = process.name, process.life
        if key not in self._workers:
            self._workers[key] = Worker(self, process)
        self._workers[key].exchange(state, timeout, done)

    def repair(self) -> None:
        self.corosync.cuts.clear()
        for node in self.nodes.values():
            node.deaf = False

    def document(self, node: Node) -> str:
        return node.cib.document(ATTRIBUTE, self._option["times"])

    # ---- hosts ----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._scheduler.at(LOOK, self._look)
        for node in self.nodes.values():
            process = node.process
            stopped = node.stopped == process.life and not process.alive and process.life > 0
            up = process.powered and not stopped and self._scheduler.now >= node.off_until
            if up and not node.up:
                self._start(node)
            elif not up:
                node.up = False

    def _start(self, node: Node) -> None:
        node.stopped = 0
        if node.process.disk is not self._disks[node.name]:
            self._disks[node.name] = node.process.disk
            node.cib = self._new
        # What it has read from its disk says nothing of who is there.
        node.cib = replace(node.cib, quorum=False, states={})
        self.corosync.start(node)

    def stop(self, process: BrokerProcess) -> None:
        """The stack of this host is stopped in an orderly way, its broker first."""
        node = self.nodes[process.name]
        others = [other for other in node.ring.members if other is not node]
        process.kill()
        node.stopped = process.life
        if others and node.up and self.corosync.intact(node.ring):
            self._counts["nodes stopped"] += 1
            self.corosync.send(others[0], lambda cib: cib.seen({node.name: GONE}, cib.quorum))

    # ---- the controller of a ring ---------------------------------------------------------------------------------

    def _formed(self, ring: Ring) -> None:
        self._later(ring, self._elected)

    def _later(self, ring: Ring, call: Callable[[Ring], None], most: float = 0.0) -> None:
        """If that is still the ring; while it is broken its controller cannot say anything."""

        def arrive() -> None:
            if any(node.ring is not ring for node in ring.members):
                return
            if self.corosync.intact(ring):
                call(ring)
            else:
                self._later(ring, call)

        self._scheduler.at(self._rng.uniform(0.002, most or self._option["lag"]), arrive)

    def _elected(self, ring: Ring) -> None:
        quorum, here = self._quorum(ring), ring.names

        def say(cib: Cib) -> Cib:
            states = {name: PENDING for name in here if cib.states.get(name) != MEMBER}
            states |= {name: LOST for name, state in cib.states.items() if name not in here and state != GONE}
            return cib.seen(states, quorum)

        self.corosync.send(self._controller(ring), say)
        self._later(ring, self._joined)

    def _controller(self, ring: Ring) -> Node:
        """Any of them may be elected; it goes by its own memory of who has left how."""
        if ring.controller is None:
            ring.controller = self._rng.choice(ring.members)
        return ring.controller

    def _quorum(self, ring: Ring) -> bool:
        if len(self.nodes) == 2:
            return all(len(node.met) == 2 for node in ring.members)
        return 2 * len(ring.members) > len(self.nodes)

    def _joined(self, ring: Ring) -> None:
        copies = [self.corosync.ahead(node, len(ring.log)) for node in ring.members]
        best = max(copies, key=lambda cib: (cib.generation, self._rng.random()))
        if any(copy.values.items() - best.values.items() for copy in copies):
            self._counts["configurations undone"] += 1
            found = ", ".join(f"{node.name} {copy.generation}" for node, copy in zip(ring.members, copies, strict=True))
            self._scheduler.log("rm", f"copies differ ({found}), one of {best.generation} is for all")
        known = self._controller(ring).cib.states
        states = {name: MEMBER if name in ring.names else LOST for name in best.nodes}
        states |= {name: GONE for name, state in known.items() if state == GONE and name not in ring.names}
        joined = best.seen(states, self._quorum(ring))
        self.corosync.send(self._controller(ring), lambda cib: joined)
        if joined.quorum and self.simulation.scenario.option("fencing", False):
            for name in [name for name, state in states.items() if state == LOST]:
                self._later(ring, partial(self._fence, self.nodes[name]), self._option["device"])

    # ---- fencing --------------------------------------------------------------------------------------------------

    def _fence(self, node: Node, ring: Ring) -> None:
        """Again until it has succeeded, or the node is back."""
        controller = self._controller(ring)
        if controller.cib.states.get(node.name) != LOST:
            return
        if not self._off(node):
            self._later(ring, partial(self._fence, node), self._option["device"])
            return
        self._counts["nodes fenced"] += 1
        self._scheduler.log("rm", f"{node.name} is fenced by {controller.name}")
        self.corosync.send(controller, lambda cib: cib.seen({node.name: GONE}, cib.quorum))

    def _off(self, node: Node) -> bool:
        """Does the device switch it off?  It fails where that would be a total failure that is not planned."""
        process, simulation = node.process, self.simulation
        if process.alive:
            if simulation.faults.stopped or not simulation.rules.may_kill(process):
                return False
            simulation.rules.stop(process, power=True)
        elif node.up:
            node.off_until = self._scheduler.now + REBOOT
        node.up = False
        return True

    # ---- for the judge --------------------------------------------------------------------------------------------

    def _recorded(self) -> None:
        """What an exchange that counts has to find is on record, in force or not."""
        copies = [node.cib for node in self.nodes.values()]
        for cib in copies:
            for value in cib.values.values():
                if value not in self._known and self._is_on_record(value, copies):
                    self._known.add(value)
                    (state,) = decode([value], ATTRIBUTE)
                    self.simulation.history.persisted(state)

    @staticmethod
    def _is_on_record(value: str, copies: list[Cib]) -> bool:
        holders = [cib for cib in copies if value in cib.values.values()]
        alone = any(len(copies) - [*cib.states.values()].count(GONE) <= len(holders) for cib in holders)
        return alone or 2 * len(holders) > len(copies)
