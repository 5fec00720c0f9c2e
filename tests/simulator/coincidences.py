"""Rare coincidences, brought about on purpose: several faults in the order in which one rule is needed.

They are planned only where they are asked for by name (`--faults forgotten-grant`): at random they hardly ever happen,
and a rule that only they need would go untested.

    forgotten-grant     a broker that has granted a claim is restarted at once, and then sees the old primary only
    forgotten-set       a broker that knows that another was removed is restarted while the primary is cut off, and that
                        other one is promoted with its help
    half-a-difference   the primary goes on without its backups for a moment, one of them comes back, is taking over
                        the difference when the primary dies, and is promoted
    race                two are promoted, and the vote of the first goes to the second before its own claim has been
                        answered by everybody
    last-witness        a backup that was away is promoted while it can ask the members that went on without it, and
                        their processes end before they have answered
    unwritten           no commit ends on the disk of the primary, or on those of its backups, while clients publish;
                        then all lose power, and those on whose disks it is come back late
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulator.scenario import Action

if TYPE_CHECKING:
    from tests.simulator.faults import Faults
    from tests.simulator.process import BrokerProcess

Fields = Mapping[str, Any]


def planned(rng: Random, names: str) -> dict[str, Callable[[float], Action]]:
    """One action of each kind, at a time."""

    def action(kind: str, **fields: Any) -> Callable[[float], Action]:
        def at(at: float) -> Action:
            return Action(at, kind, {"who": rng.choice(names), **{name: make() for name, make in fields.items()}})

        return at

    def seconds(low: float, high: float) -> Callable[[], float]:
        return lambda: round(rng.uniform(low, high), 4)

    return {
        "forgotten-grant": action("forgotten-grant", **{"for": seconds(1.0, 2.5), "cut": seconds(0.002, 0.02)}),
        "forgotten-set": action("forgotten-set", **{"for": seconds(1.0, 2.5), "away": seconds(0.6, 1.2)}),
        "half-a-difference": action(
            "half-a-difference",
            **{"for": seconds(1.0, 2.0), "cut": seconds(0.0, 0.015)},
        ),
        "race": action("race", **{"for": seconds(1.0, 2.5), "second": seconds(0.0, 0.04)}),
        "last-witness": action(
            "last-witness", **{"away": seconds(0.5, 1.2), "for": seconds(0.6, 1.5), "then": seconds(0.0, 0.001)}
        ),
        "unwritten": action(
            "unwritten",
            **{"for": seconds(1.0, 2.5), "then": seconds(0.02, 0.3)},
            whose=lambda: rng.choice(("primary", "backups")),
        ),
    }


class Coincidences:
    """Carries them out."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._simulation = faults.simulation
        self.kinds = {
            "forgotten-grant": self._forgotten_grant,
            "forgotten-set": self._forgotten_set,
            "half-a-difference": self._half_a_difference,
            "race": self._race,
            "last-witness": self._last_witness,
            "unwritten": self._unwritten,
        }

    def _cast(self, fields: Fields) -> tuple[BrokerProcess, BrokerProcess, list[BrokerProcess]] | None:
        """The primary, a backup, and the other backups, of which there is one at least."""
        primary, backup = self._faults.target("primary"), self._simulation.by_name.get(fields["who"])
        others = [each for each in self._simulation.brokers if each.running and each not in (primary, backup)]
        if primary is None or backup is None or backup is primary or not backup.running or not others:
            return None
        return primary, backup, others

    def _do(self, do: str, after: float = 0.0, **fields: Any) -> None:
        action = Action(0.0, do, fields)
        if after:
            self._simulation.scheduler.at(after, lambda: self._faults.do(action))
        else:
            self._faults.do(action)

    def _trap(self, on: str, who: BrokerProcess, then: Fields, delay: float = 0.0) -> None:
        self._do("trap", on=on, who=who.name, then=then, delay=delay)

    def _forgotten_grant(self, fields: Fields) -> None:
        if (cast := self._cast(fields)) is None:
            return
        primary, rival, others = cast
        seconds = fields["for"]
        self._do("cut", **{"from": primary.name, "to": rival.name, "both": True, "for": seconds})
        for other in others:
            self._trap("granted", other, {"do": "crash", "who": other.name, "power": False, "for": 0.05})
        self._trap("promoted", rival, {"do": "isolate", "who": rival.name, "for": seconds}, fields["cut"])
        self._do("promote", 0.05, who=rival.name)

    def _forgotten_set(self, fields: Fields) -> None:
        if (cast := self._cast(fields)) is None:
            return
        primary, removed, others = cast
        away = fields["away"]
        self._do("isolate", who=removed.name, **{"for": away})
        self._do("isolate", away, who=primary.name, **{"for": fields["for"]})
        for other in others:
            self._do("crash", away, who=other.name, power=False, **{"for": 0.05})
        self._do("promote", away + 0.2, who=removed.name)

    def _half_a_difference(self, fields: Fields) -> None:
        if (cast := self._cast(fields)) is None:
            return
        primary, back, others = cast
        for each in others:
            self._do("cut", **{"from": primary.name, "to": each.name, "both": True, "for": fields["for"]})
        # It gives its link up, and is back before a manager would promote another one.
        for one, other in ((primary, back), (back, primary)):
            self._do("linger", **{"from": one.name, "to": other.name, "for": fields["for"]})
        self._do("slow", **{"from": primary.name, "to": back.name, "delay": 0.003, "for": fields["for"]})
        crash = {"do": "crash", "who": primary.name, "power": False, "for": fields["for"]}
        self._trap("catchup_begin", back, crash, fields["cut"])
        # It has lost sight of the primary once already, when the network was cut.
        promoted = {"do": "promote", "who": back.name}
        lost = {"do": "trap", "on": "primary_lost", "who": back.name, "then": promoted, "delay": 0.0}
        self._trap("backup_connected", primary, lost, 0.0)

    def _race(self, fields: Fields) -> None:
        if (cast := self._cast(fields)) is None:
            return
        primary, first, (second, *_) = cast
        ways: dict[str, Any] = {"from": second.name, "to": first.name}
        self._do("crash", who=primary.name, power=False, **{"for": 0.3})
        self._do("slow", **ways, delay=0.1, **{"for": fields["for"]})
        self._do("promote", 0.005, who=first.name)
        # Its grant is under way; what it sends from now on is faster.
        self._trap("granted", second, {"do": "slow", **ways, "delay": 0.0, "for": 0.0})
        self._trap("claim", second, {"do": "promote", "who": second.name}, fields["second"])
        self._trap("promoted", first, {"do": "isolate", "who": second.name, "for": fields["for"]})

    def _last_witness(self, fields: Fields) -> None:
        if (cast := self._cast(fields)) is None:
            return
        primary, away, others = cast
        ends = {each.name: (fields["then"], fields["for"]) for each in (primary, *others)}
        self._do("crash", who=away.name, power=False, **{"for": fields["away"]})
        self._trap("state", away, {"do": "promote", "who": away.name})
        self._trap("promote_request", away, {"do": "blackout", "power": False, "ends": ends})

    def _unwritten(self, fields: Fields) -> None:
        if (cast := self._cast(fields)) is None:
            return
        primary, backup, others = cast
        sides = [primary], [backup, *others]
        hanging, written = sides if fields["whose"] == "primary" else reversed(sides)
        for each in hanging:
            self._do("disk-hangs", who=each.name, **{"for": 1.0})
        back = {each.name: 0.05 for each in hanging} | {each.name: fields["for"] for each in written}
        self._do("blackout", power=True, ends={name: (fields["then"], seconds) for name, seconds in back.items()})
