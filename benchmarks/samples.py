"""Results: values of one run, and medians over the repetitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, order=True)
class Key:
    """The key of a value."""

    brokers: int
    load: str
    """both, publish, drain, window 1, transient, outage, catch-up, rejoin, declare, bind, memory, cliff NAME, storm."""
    size: int
    """Octets of a body; for declare and bind how many, for storm of logins, for cliff of others."""


@dataclass
class Sample:
    """One run on one side. Units are in the names of the values: rate is messages/s, us, ms, mb (2**20 octets)."""

    key: Key
    side: str
    values: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self.key), "side": self.side, "values": self.values}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Sample:
        return cls(Key(data["brokers"], data["load"], data["size"]), data["side"], data["values"])


@dataclass
class Results:
    """All samples of a session, in the order of the runs, and what went wrong."""

    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def keys(self, loads: Iterable[str]) -> list[Key]:
        """Those of these loads, in the order of `loads`; a load's keys by brokers and size."""
        order = list(loads)
        found = {sample.key for sample in self.samples if sample.key.load in order}
        return sorted(found, key=lambda key: (order.index(key.load), key.brokers, key.size))

    def value(self, key: Key, side: str, name: str) -> float | None:
        """The median over the repetitions; None: not measured."""
        found = [s.values[name] for s in self.samples if s.key == key and s.side == side and name in s.values]
        return median(found) if found else None

    def largest(self, key: Key, side: str, name: str) -> float | None:
        return max(
            (s.values[name] for s in self.samples if s.key == key and s.side == side and name in s.values), default=None
        )
