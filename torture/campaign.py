"""The course of a campaign: rounds of one to three faults under load, then healing and draining.  Shell.

A round begins its faults within a few seconds of each other, waits until all have ended by themselves, and then until
clients are served again; sometimes also until every broker is ready, so that rounds meet the cluster in all states.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from torture.brokers import Broker
from torture.faults import KINDS, Fault
from torture.lab import Lab, Plan
from torture.load import slots
from torture.loaders import Loaders
from torture.watch import RequestFailed, request

TICK: Final = 0.05
SERVED: Final = 60.0
"""Seconds that clients may wait for service when all faults have ended."""
SETTLED: Final = 60.0
"""Seconds until every broker is ready when all faults have ended."""
DRAIN: Final = 120.0
MOST_FAULTS: Final = 3
SPREAD: Final = 2.0
"""Seconds within which the faults of a round begin."""


class Stuck(Exception):
    """The cluster does not recover although all faults have ended; the text names the awaited state."""


@dataclass
class Round:
    """One round; moments in µs of CLOCK_MONOTONIC."""

    faults: list[Fault]
    began: int = 0
    served: int = 0


@dataclass
class Outcome:
    """The campaign's own observations; the rest is in the histories."""

    rounds: list[Round] = field(default_factory=list)
    stuck: str = ""
    drained: bool = False
    left: dict[str, int] = field(default_factory=dict)
    """Messages that a broker still holds after the drain; queue and broker → messages."""
    seconds: float = 0.0

    @property
    def faults(self) -> list[Fault]:
        return [fault for one in self.rounds for fault in one.faults]


class Campaign:
    """Runs once."""

    def __init__(self, plan: Plan, lab: Lab, loaders: Loaders, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._loaders = loaders
        self._say = say
        self._outcome = Outcome()
        wanted = plan.kinds or tuple(KINDS)
        self._kinds = [name for name in wanted if plan.mode in KINDS[name].modes]
        self._begin = time.monotonic()
        self._shown = (self._begin, 0, 0)

    def run(self, seconds: float, most: int) -> Outcome:
        """Runs faults for so many seconds, at most so many; then heals and drains.  Always returns the findings so
        far."""
        lab, outcome = self._lab, self._outcome
        try:
            lab.start()
            self._await("the first primary and all ready", lab.settled, SETTLED)
            if lab.routes is not None:
                self._await("a shovel and a dynamic route at work", self._routes_at_work, SETTLED)
            self._kinds = [name for name in self._kinds if not KINDS[name].needs or lab.knows(KINDS[name].needs)]
            self._loaders.start()
            self._await("progress of all clients", lambda: self._progress_since(0), SERVED)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and len(outcome.faults) < most:
                self._round(min(MOST_FAULTS, most - len(outcome.faults)), deadline)
            self._finish()
        except Stuck as stuck:
            outcome.stuck = str(stuck)
            self._say(f"STUCK: {stuck}")
        outcome.seconds = time.monotonic() - self._begin
        return outcome

    # ---- rounds ---------------------------------------------------------------------------------------------------

    def _round(self, most: int, deadline: float) -> None:
        rng = self._lab.rng
        count = rng.choices(range(1, most + 1), (5, 3, 2)[:most])[0]
        now = time.monotonic()
        due = sorted(now + rng.uniform(0, SPREAD) for _ in range(count))
        current = Round([], _micro())
        self._outcome.rounds.append(current)
        running: list[tuple[float, Fault]] = []
        try:
            while due or running:
                if due and time.monotonic() >= due[0]:
                    due.pop(0)
                    running += self._start_fault(current)
                for end, fault in [entry for entry in running if time.monotonic() >= entry[0]]:
                    running.remove((end, fault))
                    self._end_fault(fault)
                self._tick(deadline)
        finally:
            for _, fault in running:
                self._end_fault(fault)
        self._recover(deadline)
        current.served = _micro()

    def _start_fault(self, current: Round) -> list[tuple[float, Fault]]:
        """The fault and its end time; None when no kind is possible now."""
        rng = self._lab.rng
        weights = [KINDS[name].weight for name in self._kinds]
        for _ in range(8):
            name = rng.choices(self._kinds, weights)[0]
            kind, fault = KINDS[name], Fault(name)
            length = rng.uniform(kind.shortest, kind.longest)
            if fault.begin(self._lab):
                fault.began = time.monotonic()
                current.faults.append(fault)
                self._say(f"#{len(self._outcome.faults)} {fault.text}, {length:.1f} s")
                return [(fault.began + length, fault)]
        return []

    def _end_fault(self, fault: Fault) -> None:
        fault.end()
        fault.ended = time.monotonic()
        self._say(f"   over: {fault.text}")

    def _recover(self, deadline: float) -> None:
        since = _micro()
        self._await("clients are served again", lambda: self._progress_since(since), SERVED, deadline)
        if self._lab.rng.random() < 0.5:
            self._await("one broker active, all others ready", self._lab.settled, SETTLED, deadline)

    def _routes_at_work(self) -> bool:
        routes = self._lab.routes
        return routes is not None and routes.at_work(self._lab.primary(), self._lab.clients)

    # ---- the end --------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._say("all faults are over; waiting for all brokers, then the producers stop")
        self._await("one broker active, all others ready", self._lab.settled, SETTLED)
        self._loaders.stop("producers", self._tick)
        self._loaders.drain()
        self._await("empty queues", self._drained, DRAIN)
        self._outcome.drained = True
        self._loaders.stop("consumers", self._tick)
        self._await("everything acknowledged everywhere", lambda: not self._left(), 10.0, may_fail=True)
        self._outcome.left = self._left()

    def _drained(self) -> bool:
        """A message that moves on meanwhile is in both places, or in the one that is asked later: hence twice."""
        primary, far = self._lab.primary(), self._lab.far
        asked = [*far, primary, *far] if primary is not None else []
        return bool(asked) and not any(depth for broker in asked for depth in _depths(broker).values())

    def _left(self) -> dict[str, int]:
        found = {}
        for broker in (*self._lab.brokers, *self._lab.far):
            depths = _depths(broker)
            found.update({f"{queue} on {broker.name}": depth for queue, depth in depths.items() if depth})
        return found

    # ---- waiting and reporting --------------------------------------------------------------------------------------

    def _await(
        self, what: str, condition: Callable[[], bool], limit: float, deadline: float = 0.0, may_fail: bool = False
    ) -> None:
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                if may_fail:
                    return
                raise Stuck(f"not within {limit:g} s: {what} ({self._lab.states()})")
            self._tick(deadline)

    def _total(self, role: str) -> int:
        board, groups = self._loaders.board, self._loaders.groups
        return sum(board.read(slot).done for group in groups for slot in slots(role, group))

    def _progress_since(self, moment: int) -> bool:
        """True when every client that does not wait for the end has made progress."""
        board = self._loaders.board
        return all(board.read(slot).last > moment for slot in self._loaders.busy)

    def _tick(self, deadline: float = 0.0) -> None:
        self._lab.tick()
        self._loaders.check()
        self._show(deadline)
        time.sleep(TICK)

    def _show(self, deadline: float) -> None:
        """A line every few seconds."""
        then, confirmed, delivered = self._shown
        now = time.monotonic()
        if now - then < 5.0:
            return
        new = self._total("producers"), self._total("consumers")
        self._shown = (now, *new)
        left = f"{max(0.0, deadline - now):4.0f} s to go, " if deadline else ""
        speeds = (new[0] - confirmed) / (now - then), (new[1] - delivered) / (now - then)
        rates = f"{speeds[0]:.0f} confirmed/s, {speeds[1]:.0f} acked/s"
        faults = len(self._outcome.faults)
        self._say(f"{left}{faults} faults, {rates}, {new[0]} confirmed, lost unknown | {self._lab.states()}")


def _depths(broker: Broker) -> dict[str, int]:
    """Messages in each queue, with those that are delivered; {"?": 1} when the broker does not answer."""
    try:
        found: Any = request(broker, "queue.list", 3.0)
    except RequestFailed:
        return {"?": 1}
    queues = found["queues"] if isinstance(found, dict) else found
    return {str(queue["name"]): int(queue["ready"]) + int(queue["unacked"]) for queue in queues}


def _micro() -> int:
    return time.monotonic_ns() // 1000
