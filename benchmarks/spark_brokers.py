"""Broker events of a generated cluster: replication, and the fail-over from n1 to n2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.spark_rows import Column, Rows

BROKERS: Final = ("n1", "n2", "n3")
BACK: Final = 60_000_000
"""µs after its death n1 is there again, as a backup."""
ROWS_A_BATCH: Final = 8
_READY: Final = 800_000
"""µs until a started backup is ready."""


@dataclass(frozen=True)
class Clock:
    """A machine's; `offset` µs ahead of true time at `begin`, `drift` in ppm."""

    begin: int
    offset: int = 0
    drift: float = 0.0
    up: int = 0

    def wall(self, ts: np.ndarray | int) -> np.ndarray:
        since = np.asarray(ts, np.int64) - self.begin
        found: np.ndarray = self.begin + self.offset + since + np.rint(since * self.drift * 1e-6).astype(np.int64)
        return found

    def mono(self, ts: np.ndarray | int) -> np.ndarray:
        """The same oscillator, from the start of the machine."""
        return self.wall(ts) - self.begin - self.offset + self.up


@dataclass(frozen=True)
class Crash:
    """When the primary died, and when the next one served clients; µs."""

    dead: int
    alive: int


def clocks(chance: np.random.Generator, begin: int, hosts: int) -> dict[str, Clock]:
    """n1's and every other host's are right."""
    names = [*BROKERS, *(f"h{host}" for host in range(hosts))]
    right = {"n1", *(f"h{host}" for host in range(0, hosts, 2))}
    found = {}
    for index, name in enumerate(names):
        offset, drift = int(chance.integers(-400_000, 400_000)), float(chance.uniform(-60, 60))
        up = (index + 1) * 1_000_000_000
        found[name] = Clock(begin, up=up) if name in right else Clock(begin, offset, drift, up)
    return found


def brokers(
    rows: Rows, chance: np.random.Generator, machines: dict[str, Clock], length: int, batches: int, crash: Crash
) -> None:
    """`batches`: replicated in `length` µs."""
    begin = machines["n1"].begin
    end = begin + length
    back = crash.dead + BACK
    told = _Brokers(rows, machines, back)
    _facts(told, begin, crash)
    per_us = batches / (end - begin)
    for primary, backup, first, last, term in (
        ("n1", "n2", begin, crash.dead, 1), ("n1", "n3", begin, crash.dead, 1),
        ("n2", "n3", crash.alive, end, 2), ("n2", "n1", back + _READY, end, 2),
    ):  # fmt: skip
        _replication(told, chance, (primary, backup), (first, last), int(per_us * (last - first)), term)
    for broker in BROKERS:
        told.say(broker, end + 200_000, "log_end")


def _replication(
    told: _Brokers, chance: np.random.Generator, link: tuple[str, str], span: tuple[int, int], count: int, term: int
) -> None:
    """Each batch is sent, received, and answered."""
    primary, backup = link
    # the last ones reach no backup
    sent = np.sort(chance.integers(span[0] + 1_000_000, span[1] - 20_000, count))
    received = sent + 200 + np.minimum(chance.exponential(600, count), 8000).astype(np.int64)
    back = received + 50 + 180 + np.minimum(chance.exponential(500, count), 8000).astype(np.int64)
    first = (term << 48) + np.arange(count) * 10
    batch = {
        "queue": np.char.add("q", (np.arange(count) * 7919 % 20).astype(str)),
        "first_pos": first, "last_pos": first + 9, "term": term,
    }  # fmt: skip
    told.many(primary, sent, "repl_send", peer=backup, **batch)
    told.many(backup, received, "repl_recv", peer=primary, **batch)
    told.many(backup, received + 50, "replack_send", peer=primary, **batch)
    told.many(primary, back, "replack_recv", peer=backup, **batch)


def _facts(told: _Brokers, begin: int, crash: Crash) -> None:
    """All start, n1 is killed, n2 is promoted, n1 comes back."""
    for broker in BROKERS:
        told.started(broker, begin - 2_000_000)
    told.promoted("n1", begin - 1_600_000, 1, "joining")
    for broker in ("n2", "n3"):
        told.ready(broker, "n1", begin - 1_000_000, 1)
    told.say("n1", begin - 900_000, "state", old="recovering", new="active", reason="all are back", term=1)
    for broker in ("n2", "n3"):
        told.say(broker, crash.dead + 20_000, "primary_lost", peer="n1", reason="connection reset", term=1)
    promoted = crash.alive - 500_000
    told.say("n2", promoted - 20_000, "promote_request", term=1)
    told.promoted("n2", promoted, 2, "ready")
    told.say("n3", promoted + 50_000, "state", old="ready", new="catchup", reason="first frame", term=2)
    told.ready("n3", "n2", promoted + 200_000, 2)
    told.say("n2", crash.alive - 100_000, "state", old="recovering", new="active", reason="all are back", term=2)
    told.started("n1", crash.dead + BACK)
    told.ready("n1", "n2", crash.dead + BACK + _READY // 2, 2)


class _Brokers:
    """Rows of brokers; `back`: from then on n1 is another process."""

    def __init__(self, rows: Rows, machines: dict[str, Clock], back: int) -> None:
        self._rows, self._machines, self._back = rows, machines, back

    def say(self, broker: str, ts: int, kind: str, attrs: dict[str, str] | None = None, **more: Column) -> None:
        clock = self._machines[broker]
        self._rows.one(
            attrs, **self._head(broker, ts), kind=kind, ts_wall=int(clock.wall(ts)), ts_mono=int(clock.mono(ts)), **more
        )

    def many(self, broker: str, ts: np.ndarray, kind: str, **more: Column) -> None:
        clock = self._machines[broker]
        head = self._head(broker, int(ts[0])) if len(ts) else {}
        self._rows.add(len(ts), **head, kind=kind, ts_wall=clock.wall(ts), ts_mono=clock.mono(ts), **more)

    def _head(self, broker: str, ts: int) -> dict[str, Column]:
        name, life = self._rows.cluster, 2 if broker == "n1" and ts >= self._back else 1
        return {
            "source": "broker", "node": broker, "boot_id": f"{name}-{broker}",
            "proc": f"{name}-{broker}-{life}",
        }  # fmt: skip

    def started(self, broker: str, ts: int) -> None:
        self.say(broker, ts, "start", {"broker_id": f"id-{broker}", "address": f"{broker}:5672", "version": "1.0"})
        self.say(broker, ts + 10_000, "state", old="standalone", new="joining", reason="start")

    def promoted(self, broker: str, ts: int, term: int, old: str) -> None:
        self.say(broker, ts, "state", old=old, new="recovering", reason="promoted", term=term)
        self.say(broker, ts + 100, "promoted", term=term, last_pos=term << 48)

    def ready(self, broker: str, primary: str, ts: int, term: int) -> None:
        self.say(broker, ts - 100_000, "state", old="joining", new="catchup", reason="first frame", term=term)
        self.say(primary, ts, "membership", peer=broker, result="ready", term=term)
        self.say(broker, ts + 2_000, "state", old="catchup", new="ready", reason="listed by the primary", term=term)
