"""The campaign's resource manager: it sees which brokers answer and hear each other, and promotes one when none leads.

It has rules by mode; `rules_for` says which:

    careless   no fencing at all: it promotes as soon as the majority's side has no primary, whatever others do
               (`quorum`, `registry`: the brokers themselves have to make that harmless)
    fencing    what is not on the majority's side, or does not answer, is killed before anybody is promoted; without a
               majority anywhere the primary is demoted, as by Pacemaker's no-quorum-policy (`manager`, `availability`)

The majority is one of hosts, as a resource manager's is: a host whose broker is dead still has its vote.  Fencing must
be quicker than the primary gives up the others (`ha/README.md`: 2 × heartbeat + ha-isolation-wait), so the manager
has a thread of its own.  The decision is pure (`decide`); the shell around it is `Manager`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torture.brokers import Broker
from torture.watch import RequestFailed, View, Watch, request

DETECTION: Final = 1.0
"""Seconds without a primary before the manager acts: the token time-out of a real one."""
PROMOTE_TIME: Final = 5.0
LOOK: Final = 0.05
AGAIN: Final = 0.5
"""Seconds after a refusal."""


@dataclass(frozen=True)
class Seen:
    """One broker as the manager sees it."""

    name: str
    alive: bool
    """The broker answers its agent."""
    view: View
    known: bool
    """It has answered since it was started, so that it may have been promoted."""
    hears: frozenset[str]
    """Names of the brokers to whose hosts the network lets it talk in both directions."""


@dataclass(frozen=True)
class Plan:
    """What to do: kill these, demote these, then promote one of these, the best first.  `leader`: nothing to do."""

    leader: str = ""
    kill: tuple[str, ...] = ()
    demote: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


def majority_side(seen: Sequence[Seen]) -> list[Seen]:
    """The largest group of hosts that all hear each other (greedy), or nothing below a majority."""
    best: list[Seen] = []
    for first in seen:
        group = [first]
        for other in seen:
            if other.name != first.name and all(other.name in one.hears for one in group):
                group.append(other)
        primary = any(one.view.is_primary for one in group)
        if (len(group), primary) > (len(best), any(one.view.is_primary for one in best)):
            best = group
    return best if 2 * len(best) > len(seen) else []


def decide(seen: Sequence[Seen], fences: bool) -> Plan:
    """What to do now, if it has been so for long enough."""
    side = majority_side(seen)
    leaders = [one for one in side if one.view.is_primary]
    if leaders:
        return Plan(leader=max(leaders, key=lambda one: one.view.epoch).name)
    if not side:
        return Plan(demote=tuple(one.name for one in seen if one.view.is_primary) if fences else ())
    names = {one.name for one in side if one.alive}
    kill = tuple(one.name for one in seen if one.known and one.name not in names) if fences else ()
    able = [one for one in side if one.alive and not one.view.reads_journal]
    ranked = sorted(able, key=lambda one: (one.view.whole, one.view.state == "ready", one.view.position), reverse=True)
    return Plan(kill=kill, candidates=tuple(one.name for one in ranked))


@dataclass(frozen=True)
class Rules:
    fences: bool
    """Kill what cannot be seen before promoting."""
    shuffles: bool
    """Promote anybody, not the best one."""


def rules_for(mode: str) -> Rules:
    return Rules(fences=mode in ("manager", "availability"), shuffles=mode in ("quorum", "registry"))


class Manager:
    """Works between `start` and `stop`; promotions run in threads of their own."""

    def __init__(
        self,
        brokers: Sequence[Broker],
        watches: Mapping[str, Watch],
        connected: Callable[[str, str], bool],
        rules: Rules,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self._brokers = {broker.name: broker for broker in brokers}
        self._watches = watches
        self._connected = connected
        self._rules = rules
        self._rng = rng
        self._say = say
        self._without_since = time.monotonic()
        self._not_before = 0.0
        self._promoting: threading.Thread | None = None
        self._turn = 0
        self._asked: dict[str, float] = {}
        """When a broker was last asked to become primary."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="manager", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(LOOK):
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if self._promoting is not None and self._promoting.is_alive():
            return
        plan = decide(self.seen(), self._rules.fences)
        if plan.leader:
            self._without_since, self._turn = now, 0
            return
        if now - self._without_since < DETECTION or now < self._not_before:
            return
        self._not_before = now + AGAIN
        self._put_out(plan)
        if plan.candidates:
            name = self._choose(plan.candidates)
            self._asked[name] = now
            self._promoting = start_promotion(self._brokers[name], self._promoted)

    def _put_out(self, plan: Plan) -> None:
        for name in plan.kill:
            if self._brokers[name].running:
                self._say(f"manager fences {name}")
                self._brokers[name].kill()
        for name in plan.demote:
            self._say(f"no majority: manager demotes {name}")
            try:
                request(self._brokers[name], "ha.demote", PROMOTE_TIME)
            except RequestFailed as error:
                self._say(f"{error}; it is killed")
                self._brokers[name].kill()

    def _choose(self, candidates: Sequence[str]) -> str:
        """The best one first, then the others in turn: what refuses may have a reason that lasts."""
        order = list(candidates)
        if self._rules.shuffles and self._turn == 0 and self._rng.random() < 0.5:
            self._rng.shuffle(order)
        name = order[self._turn % len(order)]
        self._turn += 1
        return name

    def _promoted(self, name: str, refusal: str) -> None:
        self._say(f"promotion of {name} refused: {refusal}"[:300] if refusal else f"{name} is promoted")
        if not refusal:
            self._without_since = time.monotonic()  # it will be seen; until then no other broker is promoted

    def seen(self) -> list[Seen]:
        members = [broker for broker in self._brokers.values() if broker.member]
        return [self._see(broker, members) for broker in members]

    def _see(self, broker: Broker, members: Iterable[Broker]) -> Seen:
        hears = frozenset(
            other.name for other in members if self._connected(broker.host.address, other.host.address)
        )  # fmt: skip
        watch = self._watches[broker.name]
        asked = self._asked.get(broker.name, -1e9) > broker.started
        view, known = watch.fresh(), watch.view.at > broker.started and (asked or not watch.view.reads_journal)
        return Seen(broker.name, view.facts is not None, view, known, hears)


def start_promotion(broker: Broker, done: Callable[[str, str], None]) -> threading.Thread:
    """Asks a broker to become primary; `done(name, refusal)` is called in the thread, with "" when it did."""

    def run() -> None:
        try:
            request(broker, "ha.promote", PROMOTE_TIME)
            done(broker.name, "")
        except RequestFailed as error:
            done(broker.name, str(error))

    thread = threading.Thread(target=run, name=f"promote {broker.name}", daemon=True)
    thread.start()
    return thread
