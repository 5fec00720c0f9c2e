"""A core that is healthy, and around it faults that never end: the core has to become active, and to serve.

    faults as planned ──duration──▶ the core is repaired, the others get faults for ever ──▶ the core serves within
    WITHIN seconds ──▶ everything is repaired, and all else is checked as usual

Faults that heal hide a livelock: what disturbs the core over and over ends before it is noticed.

The core is what the promise of a mode needs:

    quorum              a majority of the members, one of them a whole member of the newest in-sync set; any manager.
                        The manager sees an outside broker as healthy as it says it is, and may promote it.  A removal
                        that only its primary stored before it died may have been in force, for all that the rest
                        know: if the newest set that the core knows does not list the whole one, its members, too
    registry            the same core; it reaches the registry, and no other broker does. With Pacemaker that takes a
                        majority of the nodes: the host of a removed broker is still one
    manager             the same core, and in it the leader of the newest set and each broker that has claimed an epoch:
                        a broker that was out of touch is not promoted while these are silent; if the whole one stood
                        still or was restarted, every member of the newest set.  Of three or more, one that has lost
                        its disk is not in it: its answers count as none until a primary has listed it
    availability        a majority, a whole member, and if that was restarted a broker that knows the newest set, which
                        need not list it: the manager promotes it only then (`rules.py`)

With `quorum` and a registry, too, a restarted member that has the log up to an older set only may have an old disk:
then every other member of the newest set is in the core, which shows what it lacks (`ha/README.md`, section 8).

In all modes but `quorum` the manager takes the other brokers for failed: it stops one that is primary, is being
promoted, or cannot store a vote, and promotes none of them, as is its duty (`rules.py`); without a registry one that
answers no claims, too.
Without a registry and without quorum nothing is promised if the broker that knows whether another one has gone on has
lost its disk: an administrator decides. A broker that was started from the copy of another
one's data directory is never in the core: it is refused until an administrator gives it an identity. Without a
registry and without quorum a fresh cluster needs all of its members. Without a whole member of the newest set (a
total failure) nothing is promised, and nothing is checked.

The probes (clients of kind `producer` whose names begin with `l`) publish for a while from the core's repair on, to a
queue that no client reads, and must be told that all of it is confirmed.  They reach each broker: an outside one that
is primary may serve them, as well as it can.

A change of the members is in force for those who know of it.  As long as no broker of the core does, a majority of
the list before it has to be in the core, too.

A path that stays narrow is slow, and no livelock: promised is that a confirm waits for a backup as long as the octets
before it take to get there, until the backup is dropped for it (I19; with `ha-slow-backup-timeout=0` never).  So the
core has as much time more as the most octets need that waited for such a path, and those that its primary has logged
since; at most PASSED.  So has each answer that a client waits for before it asks for the next: they are counted down,
so that one that connects again gets no more time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ha.model.status import State
from tests.simulator.clients import Client
from tests.simulator.network import Pairs
from tests.simulator.scenario import Fields
from tests.simulator.scheduler import Violation

if TYPE_CHECKING:
    from ha.model.membership import InSync
    from tests.simulator.process import BrokerProcess
    from tests.simulator.simulation import Simulation

WITHIN: Final = 12.0
"""Virtual seconds that the core has until it is active and its clients have their confirms: 60 heartbeat intervals."""
PASSED: Final = 180.0
"""Virtual seconds more, at most, where a path stays narrow."""
PAYLOAD: Final = 0.7
"""Of a narrow path, for the log: heartbeats, answers and questions take the rest."""
PUBLISHES: Final = 7
EVERY: Final = 0.5
"""Messages of each probe, and seconds between two: what was under way when the faults came says little."""
UNREAD: Final = "out1"
"""A queue without consumers: what a consumer acknowledges is confirmed by any primary."""
SHARE: Final = 0.12
"""Of the seeds have a core."""
FOR_EVER: Final = 1e9
"""Seconds."""
NAMES: Final = "abcdefgh"
KINDS: Final = (
    *("cut", "cut", "slow", "hang", "hang", "clog", "mute", "pause", "pulse", "slow-disk", "bad-disk", "dead", "loop"),
)
PROBE: Final[Fields] = {"name": "l1", "kind": "producer", "window": 2}


def planned(rng: Random, names: str) -> Fields:
    """The option `liveness` of a scenario: which brokers belong to the core first, and the faults of the others."""
    order = list(names)
    rng.shuffle(order)
    faults = [[_fault(rng) for _ in range(rng.choice((1, 1, 2)))] for _ in names]
    without = "primary" if rng.random() < 0.6 else ""
    return {"order": "".join(order), "without": without, "more": rng.random() < 0.2, "faults": faults}


def _fault(rng: Random) -> Fields:
    kind = rng.choice(KINDS)
    fields: Fields = {"kind": kind}
    if kind in ("cut", "hang", "clog", "slow"):
        fields["way"] = rng.choice(("in", "out", "both"))
    if kind in ("cut", "hang"):
        fields["one"] = rng.random() < 0.3
    values: Mapping[str, Callable[[], Fields]] = {
        "slow": lambda: {"delay": rng.choice((0.1, 0.3, 1.0))},
        "clog": lambda: {"octets": int(10 ** rng.uniform(1.5, 4))},
        "mute": lambda: {"methods": rng.choice((["ha.ask"], ["ha.claim"], ["ha.ask", "ha.claim"]))},
        "pulse": lambda: {"runs": rng.choice((0.03, 0.2, 0.6)), "stops": rng.choice((0.1, 0.45, 1.0))},
        "slow-disk": lambda: {"delay": rng.choice((0.15, 0.5, 2.0))},
        "dead": lambda: {"power": rng.random() < 0.5},
        "loop": lambda: {"runs": rng.choice((0.1, 0.5, 1.5)), "stops": rng.choice((0.05, 0.5))},
    }
    return fields | values.get(kind, dict)()


class Liveness:
    """The second part of one run."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.core: list[BrokerProcess] = []
        self._over = False
        self._logged: Counter[str] = Counter()
        """Octets of the log of each primary, until the core was repaired."""
        self._option: Mapping[str, Any] = simulation.scenario.option("liveness", {})
        self._kinds: dict[str, Callable[[BrokerProcess, Mapping[str, Any]], None]] = {
            "cut": self._cut,
            "slow": self._slow,
            "hang": self._hang,
            "clog": self._clog,
            "mute": self._mute,
            "pause": lambda process, fields: process.pause() if process.running else None,
            "pulse": self._pulse,
            "slow-disk": lambda process, fields: setattr(process, "write_seconds", fields["delay"]),
            "bad-disk": self._bad_disk,
            "dead": self._dead,
            "loop": self._loop,
        }

    def run(self) -> None:
        """Raises Violation when the core does not serve in time."""
        if not self._option or not self._choose():
            return
        simulation = self.simulation
        simulation.faults.end()
        self._repair_core()
        for number, process in enumerate(self._outside()):
            if process.disk.fault:
                self._bad_disk(process, {})  # since the faults that were planned before: nothing repairs this disk
            for fields in self._option["faults"][number % len(self._option["faults"])]:
                self._kinds[fields["kind"]](process, fields)
        self._probe(PUBLISHES)
        self._wait()
        self._over = True
        simulation.history.counts["cores"] += 1

    # ---- the core -------------------------------------------------------------------------------------------------

    def _choose(self) -> bool:
        """False when no broker is left that holds everything."""
        simulation = self.simulation
        order: str = self._option["order"]
        primary = simulation.faults.target("primary") if self._option["without"] == "primary" else None
        members = sorted(
            simulation.members, key=lambda each: (each is primary, order.find(each.name) % len(NAMES), each.name)
        )
        members = [each for each in members if each.original is None]
        survivors = [each for each in members if each in simulation.history.survivors()]
        trusting = simulation.scenario.mode == "manager"
        needs = len(simulation.members) // 2 + 1
        if trusting and len(simulation.members) > 2:
            members = [each for each in members if not self._forgot(each)]
        witnesses = self._witnesses(members, survivors[0]) if survivors else None
        if witnesses is None or (trusting and not simulation.history.newest.version):
            simulation.history.counts["no core"] += 1
            return False
        needed = [survivors[0], *witnesses]
        size = max(needs + bool(self._option["more"]), len(set(needed)), self._nodes)
        core = list(dict.fromkeys([*needed, *members]))[:size]
        core += self._who_know_no_change(core)
        core += self._who_know_no_removal(core, survivors[0])
        if len(core) < max(needs, self._nodes) or self._lacks(core) > 0:
            simulation.history.counts["no core"] += 1
            return False
        self.core = core
        return True

    def _who_know_no_change(self, core: Sequence[BrokerProcess]) -> list[BrokerProcess]:
        """Of the list of members that the core knows: as many as are missing for a majority."""
        listed = [each for each in self.simulation.brokers if each.life and each.original is None]
        listed = [each for each in listed if each not in core and each.address in _list(core)]
        return listed[: max(0, self._lacks(core))]

    def _who_know_no_removal(self, core: Sequence[BrokerProcess], whole: BrokerProcess) -> list[BrokerProcess]:
        """Members of the newest set that the core knows: if one is out of reach, it may be the only one that has what
        was confirmed since."""
        newest = _newest(core)
        if self.simulation.scenario.mode != "quorum" or whole.state.id in newest:
            return []
        self.simulation.history.counts["removed by a set of the core"] += 1
        listed = [each for each in self.simulation.brokers if each.life and each.original is None]
        return [each for each in listed if each not in core and each.state.id in newest]

    def _lacks(self, core: Sequence[BrokerProcess]) -> int:
        """So many are missing for a majority of the members that the core knows."""
        addresses = _list(core)
        return len(addresses) // 2 + 1 - sum(process.address in addresses for process in core)

    def _forgot(self, process: BrokerProcess) -> bool:
        """Has it lost its disk, and no primary has listed it since?"""
        there = [each for each in self.simulation.history.newest.members if each.address == process.address]
        return bool(process.node.local.lost) or any(each.id != process.state.id for each in there)

    @property
    def _nodes(self) -> int:
        """Nodes that Pacemaker's quorum takes."""
        pacemaker = self.simulation.registry.pacemaker
        return len(pacemaker.nodes) // 2 + 1 if pacemaker is not None else 0

    def _witnesses(self, members: list[BrokerProcess], whole: BrokerProcess) -> list[BrokerProcess] | None:
        """Without a registry and without quorum they alone know that no broker has gone on without us.  None: one of
        them has lost its disk, so it is not known."""
        newest, mode = self.simulation.history.newest, self.simulation.scenario.mode
        restarted = bool(whole.node.local.before)
        if mode == "availability" and restarted:
            return [each for each in members if each.state.in_sync.key >= newest.key][:1] or None
        ids: set[str] = set()
        if mode == "manager":
            ids = {newest.leader, *(each.state.leader for each in members)}  # `promotion.py`, R4's doubt
        older = restarted and whole.state.vouched < newest.key
        if older or (mode == "manager" and (whole.node.role.stood or restarted)):
            ids |= newest.ids
        found = [each for each in members if each.state.id in ids]
        return found if ids - {""} <= {each.state.id for each in found} else None

    def _outside(self) -> list[BrokerProcess]:
        return [process for process in self.simulation.brokers if process not in self.core and process.life]

    def shuns(self, process: BrokerProcess) -> bool:
        """Does the manager take this broker for failed?"""
        fenced = self.simulation.scenario.mode != "quorum"
        return fenced and self.under_way and process not in self.core

    def trusts(self, process: BrokerProcess) -> bool:
        """Does it reach the registry whatever the others do?"""
        return self.under_way and process in self.core

    @property
    def under_way(self) -> bool:
        return bool(self.core) and not self._over

    def _repair_core(self) -> None:
        simulation = self.simulation
        names = ", ".join(process.name for process in self.core)
        self.scheduler.log("", f"--- the core {names} is repaired, the faults of the others never end ---")
        healthy = {process.name for process in self.core} | {client.name for client in simulation.clients}
        simulation.network.repair(healthy)
        simulation.registry.repair()
        for process in self.core:
            process.write_seconds, process.disk.fault = 0.0, ""
            if process.pages is not None:
                process.pages.rots = 0  # what would have been found later
            if not process.alive:
                process.boot()
            process.resume()

    def _probes(self) -> list[Client]:
        clients = [client for client in self.simulation.clients if isinstance(client, Client)]
        return [client for client in clients if client.name.startswith("l")]

    def _probe(self, left: int) -> None:
        for probe in self._probes():
            probe.told("publish", {"to": UNREAD, "size": 10})
        if left > 1:
            self.scheduler.at(EVERY, partial(self._probe, left - 1))

    def _wait(self) -> None:
        began, passed, passing, left = self.scheduler.now, 0.0, 0.0, sys.maxsize
        while self.scheduler.now < began + PUBLISHES * EVERY or (why := self._missing()):
            if (unanswered := sum(each.unanswered for each in self._probes())) < left:
                left, passed, passing = unanswered, passed + passing, 0.0
                self._logged = Counter({each.name: each.logged for each in self.simulation.brokers})
            passing = min(PASSED, max(passing, self._passing()))
            if self.scheduler.now > began + WITHIN + passed + passing:
                within = WITHIN + passed + passing
                raise Violation(f"liveness: {within:g} s after its repair the core does not serve: {why}")
            self.stop_shunned()
            self.scheduler.run_until(self.scheduler.now + 0.05)
        self.simulation.core_time = self.scheduler.now - began

    def _passing(self) -> float:
        """Seconds in which what waits for the slowest backup of a primary, and what the primary has logged since the
        last answer, passes a path that stays narrow.  Twice: a publish that is held back until that is less is then
        behind what was read with it."""
        width = self.simulation.network.width
        links = [(each, link) for each in self.simulation.brokers if each.is_primary for link in each.links]
        narrow = [(each, link, PAYLOAD * width(link.end)) for each, link in links if width(link.end)]
        return max(
            (link.end.takes + 2 * (link.backlog + self._since(each)) / wide for each, link, wide in narrow), default=0
        )

    def _since(self, process: BrokerProcess) -> int:
        return process.logged - self._logged[process.name]

    def _missing(self) -> str:
        living = [each for each in self.simulation.brokers if each.alive]
        states = ", ".join(f"{each.name} {each.node.local.state.value}" for each in living)
        if not any(each.node.local.state is State.ACTIVE for each in living):
            return f"no broker is active: {states}"
        for client in self._probes():
            if not client.finished:
                return f"{client.name} waits for its confirms; the states are {states}"
        return ""

    def stop_shunned(self) -> None:
        """The manager's duty: a primary that it takes for failed is stopped, for good, and so is one that is about to
        become primary because the manager wanted that before."""
        for process in self._outside():
            rises = process.is_primary or (process.alive and process.node.promoter is not None)
            if rises and self.shuns(process):
                self._dead(process, {})

    # ---- faults for ever ------------------------------------------------------------------------------------------

    def _pairs(self, process: BrokerProcess, fields: Mapping[str, Any]) -> Pairs:
        core = [each.name for each in self.core]
        core = core[:1] if fields.get("one") else core
        ways = {"in": pairs(core, [process.name]), "out": pairs([process.name], core)}
        return ways["in"] | ways["out"] if fields["way"] == "both" else ways[fields["way"]]

    def _cut(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        self.simulation.network.cut(self._pairs(process, fields))

    def _slow(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        for pair in self._pairs(process, fields):
            self.simulation.network.slow[pair] = fields["delay"]

    def _hang(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        """Connections are accepted, and what is written does not arrive; questions are answered all the same."""
        self.simulation.network.clogged.update(dict.fromkeys(self._pairs(process, fields), 0))

    def _clog(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        """The first octets of each connection arrive, the others do not (a path that loses large packets)."""
        self.simulation.network.clogged.update(dict.fromkeys(self._pairs(process, fields), fields["octets"]))

    def _mute(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        """These requests are not answered; others are."""
        if "ha.claim" in fields["methods"] and self.simulation.scenario.mode in ("manager", "availability"):
            self._dead(process, fields)  # each claim that it does not answer refuses a promotion (`fell_silent`)
        else:
            process.mute = frozenset(fields["methods"])

    def _dead(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        process.buried = True
        process.kill(power=bool(fields.get("power")))

    def _bad_disk(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        """It can store neither a vote nor a set.  Where no majority votes, such a broker denies every claim, and the
        manager has to stop it."""
        if self.simulation.scenario.mode == "quorum":
            process.disk.fault = process.disk.fault or "full"
        else:
            self._dead(process, fields)

    def _pulse(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        if self._over:
            return
        if process.running:
            process.pause()
            self.scheduler.at(fields["stops"], partial(self._pulse, process, fields))
        else:
            process.resume()
            self.scheduler.at(fields["runs"], partial(self._pulse, process, fields))

    def _loop(self, process: BrokerProcess, fields: Mapping[str, Any]) -> None:
        """It dies, is started again, dies."""
        if self._over or process.buried:
            return
        if process.alive:
            process.kill()
            self.scheduler.at(fields["stops"], partial(self._loop, process, fields))
        else:
            process.boot()
            self.scheduler.at(fields["runs"], partial(self._loop, process, fields))


def pairs(sources: Iterable[str], targets: Sequence[str]) -> Pairs:
    return {(source, target) for source in sources for target in targets}


def _list(core: Sequence[BrokerProcess]) -> tuple[str, ...]:
    """Addresses of the members, by the newest list that one of these has stored; at first that of the configuration."""
    return _newest(core).brokers or core[0].settings.brokers


def _newest(core: Sequence[BrokerProcess]) -> InSync:
    """In-sync set that one of these has stored."""
    return max((process.state.in_sync for process in core), key=lambda in_sync: in_sync.key)
