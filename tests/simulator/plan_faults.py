"""The faults of a plan that are drawn together: each scenario has some of the kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.simulator.coincidences import planned
from tests.simulator.disk import FAULTS as DISK_FAULTS
from tests.simulator.drawing import SECONDS, a_time
from tests.simulator.faults import STEPS
from tests.simulator.registry import FILE_FAULTS
from tests.simulator.scenario import Action, Fields

MOMENTS = (
    "before a vote",
    "after a vote",
    "before a set",
    "after a set",
    "promote_request",
    "claim",
    "promoted",
    "catchup_begin",
    "catchup_end",
    "backup_connected",
    "backup_lost",
    "membership",
    "demote",
)
"""When a trap springs."""
APART = (
    "clone",
    "narrow",
    "pacemaker",
    "blackout",
    "disks",
    "listener",
    "late",
    "letters",
    "torn",
    "returns",
    "locks",
    "once",
    "delays",
    "groups",
    "values",
    "kept letters",
    "homes",
    "reads",
    "pages",
)
"""Kinds that are drawn by themselves, so that the others of a seed stay what they are."""
REJECTING = ("quorum", "registry")
"""Modes whose promise does not rest on it that a broker whose host refuses a connection is gone."""


def faults_of(
    rng: Random, mode: str, names: str, spares: int, clients: Sequence[str], only: Sequence[str]
) -> list[Action]:
    maker = FaultMaker(rng, mode, names, spares, clients)
    only = [name for name in only if name not in APART]
    known = maker.kinds | planned(rng, names)
    chosen = [known[name] for name in only or rng.sample(list(maker.kinds), rng.randint(2, len(maker.kinds)))]
    count = rng.randint(1, 9) if rng.random() < 0.8 else rng.randint(10, 30)
    return [rng.choice(chosen)(a_time(rng)) for _ in range(count)]


class FaultMaker:
    """One action of each kind."""

    def __init__(self, rng: Random, mode: str, names: str, spares: int, clients: Sequence[str]) -> None:
        self._rng = rng
        self._mode = mode
        self._names = names
        self._all = "abcdefgh"[: len(names) + spares]
        self._clients = clients
        self.kinds: dict[str, Callable[[float], Action]] = {
            "crash": self._crash,
            "another crash": self._crash,
            "cut": self._cut,
            "another cut": self._cut,
            "isolate": self._isolate,
            "split": self._split,
            "pause": self._pause,
            "promote": self._promote,
            "slow": self._slow,
            "linger": self._linger,
            "reset": self._reset,
            "repeat": self._repeat,
            "delay": self._delay,
            "clock step": self._clock_step,
            "ambush": self._ambush,
            "duel": self._duel,
            "trap": self._trap,
            "slow disk": self._slow_disk,
            "disk error": self._disk_error,
            "relocate": self._relocate,
            "demote": lambda at: Action(at, "demote"),
            "member": self._member,
        }
        if mode in REJECTING:
            self.kinds["reject"] = self._reject
        if mode == "registry":
            self.kinds |= {"registry": self._registry, "another registry": self._registry}

    def _who(self) -> str:
        names: list[str] = [*self._names, *["primary"] * (2 + len(self._names) // 2)]
        return self._rng.choice(names)

    def _pair(self) -> Fields:
        one, other = self._rng.sample(self._names, 2)
        return {"from": one, "to": other}

    def _crash(self, at: float) -> Action:
        rng = self._rng
        fields: Fields = {"who": self._who(), "power": rng.random() < 0.5, "for": rng.choice((0.05, 0.3, 1.0))}
        if self._mode != "gamble" and rng.random() < 0.15:
            fields["disk"] = "lost"
        return Action(at, "crash", fields)

    def _cut(self, at: float) -> Action:
        fields = {**self._pair(), "both": self._rng.random() < 0.6, "for": self._rng.choice(SECONDS)}
        return Action(at, "cut", fields)

    def _isolate(self, at: float) -> Action:
        fields = {"who": self._who(), "clients": self._rng.random() < 0.3, "for": self._rng.choice(SECONDS)}
        return Action(at, "isolate", fields)

    def _split(self, at: float) -> Action:
        rng = self._rng
        side = rng.sample(self._all, rng.randint(1, max(1, len(self._all) - 1)))
        return Action(at, "split", {"side": "".join(sorted(side)), "for": rng.choice(SECONDS)})

    def _pause(self, at: float) -> Action:
        return Action(at, "pause", {"who": self._who(), "for": self._rng.choice(SECONDS)})

    def _promote(self, at: float) -> Action:
        return Action(at, "promote", {"who": self._rng.choice(self._names)})

    def _slow(self, at: float) -> Action:
        delays = {"delay": self._rng.choice((0.02, 0.1, 0.3)), "for": self._rng.choice((0.3, 1.0))}
        return Action(at, "slow", {**self._pair(), **delays})

    def _linger(self, at: float) -> Action:
        """Connections hang, between brokers or between a client and a broker."""
        fields = self._pair()
        if self._rng.random() < 0.3:
            fields["from"] = self._rng.choice(self._clients)
            if self._rng.random() < 0.5:
                fields = {"from": fields["to"], "to": fields["from"]}
        return Action(at, "linger", {**fields, "for": self._rng.choice((0.3, 0.8, 1.5))})

    def _reset(self, at: float) -> Action:
        return Action(at, "reset", {**self._pair(), "both": self._rng.random() < 0.5})

    def _reject(self, at: float) -> Action:
        rng = self._rng
        fields: Fields = {"who": rng.choice(self._names), "for": rng.choice(SECONDS)}
        if rng.random() < 0.4:
            fields["from"] = rng.choice([name for name in self._names if name != fields["who"]])
        return Action(at, "reject", fields)

    def _repeat(self, at: float) -> Action:
        delays = {"delay": self._rng.choice((0.01, 0.15, 1.0)), "for": self._rng.choice(SECONDS)}
        return Action(at, "repeat", {**self._pair(), **delays})

    def _delay(self, at: float) -> Action:
        delays = {"delay": self._rng.choice((0.1, 0.5, 2.0)), "for": self._rng.choice(SECONDS[:4])}
        return Action(at, "delay", {**self._pair(), **delays})

    def _clock_step(self, at: float) -> Action:
        by = self._rng.choice((-1, 1)) * self._rng.choice((0.5, 60.0, 3600.0, 1e7))
        return Action(at, "clock-step", {"who": self._who(), "by": by})

    def _ambush(self, at: float) -> Action:
        rng = self._rng
        times = {"for": a_time(rng, 0.2, 1.5), "promote": a_time(rng, 0.0, 0.5), "cut": a_time(rng, 0.0005, 0.25)}
        return Action(at, "ambush", {"who": rng.choice((*self._names, "backup")), **times})

    def _duel(self, at: float) -> Action:
        rng = self._rng
        times = {"for": rng.choice((0.6, 1.5, 2.5)), "promote": a_time(rng, 0.2, 1.0), "delay": rng.choice((0.0, 0.03))}
        return Action(at, "duel", {"who": rng.choice(self._names), **times})

    def _slow_disk(self, at: float) -> Action:
        fields = {"who": self._who(), "delay": self._rng.choice((0.005, 0.03, 0.15)), "for": self._rng.choice(SECONDS)}
        return Action(at, "slow-disk", fields)

    def _disk_error(self, at: float) -> Action:
        fields = {"who": self._who(), "kind": self._rng.choice(DISK_FAULTS), "for": self._rng.choice(SECONDS)}
        return Action(at, "disk-error", fields)

    def _relocate(self, at: float) -> Action:
        """A planned switch-over."""
        return Action(at, "relocate", {"to": self._rng.choice(("", *self._names))})

    def _member(self, at: float) -> Action:
        return Action(at, "member", {"action": self._rng.choice(("add", "remove")), "who": self._rng.choice(self._all)})

    def _registry(self, at: float) -> Action:
        rng = self._rng
        kind = rng.choice(("registry-down", "registry-slow", "registry-silent", "registry-disk"))
        fields: Fields = {"for": rng.choice(SECONDS)}
        if kind == "registry-slow":
            fields["delay"] = rng.choice((0.02, 0.1, 0.3))
        if kind == "registry-disk":
            fields["kind"] = rng.choice(FILE_FAULTS)
        return Action(at, kind, fields)

    def _trap(self, at: float) -> Action:
        rng = self._rng
        moment = rng.choice(MOMENTS)
        fields: dict[str, Any] = {"on": moment, "then": self._worst(moment)}
        if rng.random() < 0.4:
            fields["who"] = rng.choice(self._names)
        if fields["then"]["do"] != "die" and rng.random() < 0.5:
            fields["delay"] = round(rng.expovariate(1 / 0.02), 4)
        return Action(at, "trap", fields)

    def _worst(self, moment: str) -> Fields:
        rng = self._rng
        kind = rng.choice(("die", "die", "crash", "pause", "promote", "isolate", "cut", "slow disk", "disk error"))
        if kind == "die":
            return {"do": "die", "step": rng.randint(1, STEPS)} if moment.startswith("before") else {"do": "die"}
        action = self.kinds[kind](0.0)
        fields: Fields = {"do": action.do, **action.fields}
        if kind in ("crash", "pause", "isolate", "slow disk", "disk error") and rng.random() < 0.5:
            fields["who"] = "it"
        return fields
