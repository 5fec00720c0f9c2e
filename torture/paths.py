"""What the network does with a packet on its way from one address to another.  Pure; the time is an argument.

A *path* is one direction of a pair of addresses.  Faults lay *effects* on paths; any number of effects may lie on one
path at a time: it is cut if one of them cuts it, delays add up, the smallest rate counts.  A path keeps the order of
its packets, as a wire does.  The octets that wait on a slow path are bounded, as in a router: what exceeds the bound
is dropped, and TCP slows down.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Path = tuple[str, str]
"""Source and destination, dotted addresses."""

BACKLOG: Final = 256 * 1024
"""Octets that may wait on one path."""


@dataclass(frozen=True)
class Effect:
    """What a fault does to a path."""

    cut: bool = False
    delay: float = 0.0
    """Seconds."""
    rate: float = 0.0
    """Octets a second; 0 = as fast as it goes."""

    def to_json(self) -> dict[str, float | bool]:
        return {"cut": self.cut, "delay": self.delay, "rate": self.rate}


CLEAR: Final = Effect()


def combined(effects: Iterable[Effect]) -> Effect:
    """Several effects at a time."""
    found = list(effects)
    rates = [effect.rate for effect in found if effect.rate > 0]
    return Effect(
        any(effect.cut for effect in found), sum(effect.delay for effect in found), min(rates) if rates else 0.0
    )


def addresses(packet: bytes) -> Path | None:
    """Source and destination of an IPv4 packet; None for anything else."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    return ".".join(map(str, packet[12:16])), ".".join(map(str, packet[16:20]))


class Wires:
    """All paths, with the packets that are under way on the slow ones."""

    def __init__(self) -> None:
        self._effects: dict[Path, Effect] = {}
        self._free_at: dict[Path, float] = {}
        self._waiting: dict[Path, int] = {}
        self._heap: list[tuple[float, int, Path, bytes]] = []
        self._number = 0
        self.dropped = 0

    def set(self, path: Path, effect: Effect, now: float) -> None:
        """From now on, also for what waits: a path that was slow does not stay so until its queue is empty."""
        self._effects[path] = effect
        waiting = sorted(entry for entry in self._heap if entry[2] == path)
        self._heap = [entry for entry in self._heap if entry[2] != path]
        heapq.heapify(self._heap)
        self._waiting[path], self._free_at[path] = 0, now
        for _, _, _, packet in waiting:
            self._queue(path, packet, effect, now)

    def offer(self, path: Path, packet: bytes, now: float) -> bool:
        """True: deliver it at once.  False: it is lost, or comes out of `due` later."""
        effect = self._effects.get(path, CLEAR)
        if effect.cut:
            self.dropped += 1
            return False
        waiting = self._waiting.get(path, 0)
        if effect == CLEAR and not waiting:
            return True
        if waiting + len(packet) > BACKLOG:
            self.dropped += 1
            return False
        self._queue(path, packet, effect, now)
        return False

    def _queue(self, path: Path, packet: bytes, effect: Effect, now: float) -> None:
        begin = max(now, self._free_at.get(path, 0.0) - effect.delay)
        arrival = begin + (len(packet) / effect.rate if effect.rate else 0.0) + effect.delay
        arrival = max(arrival, self._free_at.get(path, 0.0))
        self._free_at[path] = arrival
        self._waiting[path] = self._waiting.get(path, 0) + len(packet)
        self._number += 1
        heapq.heappush(self._heap, (arrival, self._number, path, packet))

    def due(self, now: float) -> list[tuple[Path, bytes]]:
        """What arrives now; packets of a path that was cut meanwhile are lost."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            _, _, path, packet = heapq.heappop(self._heap)
            self._waiting[path] -= len(packet)
            if self._effects.get(path, CLEAR).cut:
                self.dropped += 1
            else:
                found.append((path, packet))
        return found

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None
