"""Evidence of faults in the brokers' own logs.  Pure: lines and events in, sentences out.

* a traceback, a critical line, an unrequested exit (70: a broken invariant);
* two brokers that confirmed at one time.  Each logs once a second how far it has confirmed (`confirm_sent`, position
  `epoch << 48 | sequence`), so two samples bound the time of its confirms.  A finding is *certain* if it holds for any
  times within these bounds: the old primary confirmed after a moment at which the new one had certainly confirmed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Advance:
    """A broker has confirmed something between two moments, µs."""

    node: str
    epoch: int
    after: int
    until: int


def advances(events: Iterable[Event]) -> list[Advance]:
    """From the `confirm_sent` events of all brokers."""
    samples: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["kind"] == "confirm_sent":
            samples[event["node"], event["proc"]].append((int(event["ts_mono"]), int(event["last_pos"])))
    return [
        Advance(node, new >> 48, earlier, later)
        for (node, _), found in samples.items()
        for (earlier, old), (later, new) in pairwise(sorted(found))
        if new > old and new >> 48 == old >> 48
    ]


@dataclass(frozen=True)
class Lead:
    """The confirms of one broker in one epoch: some were given before `begun`, some after `went_on` (µs)."""

    node: str
    epoch: int
    begun: int
    went_on: int


def leads(found_advances: Iterable[Advance]) -> list[Lead]:
    found: dict[tuple[str, int], list[Advance]] = defaultdict(list)
    for one in found_advances:
        found[one.node, one.epoch].append(one)
    return [
        Lead(node, epoch, min(one.until for one in ones), max(one.after for one in ones))
        for (node, epoch), ones in found.items()
    ]


def confirmed_at_once(events: Iterable[Event]) -> list[str]:
    """`two_confirming`, from the `confirm_sent` events of all brokers."""
    return two_confirming(advances(events))


def two_confirming(found_advances: Iterable[Advance]) -> list[str]:
    """Pairs of brokers of which one certainly confirmed after the other had begun to, and should not have.  Two may
    claim one epoch, and the higher id wins: then it is a fault only if each went on after the other had begun."""
    found = leads(found_advances)
    pairs = [(old, new) for old in found for new in found if old.node != new.node and old.went_on > new.begun]
    return [
        f"{old.node} confirmed in epoch {old.epoch} after {new.node} had confirmed in epoch {new.epoch},"
        f" by {(old.went_on - new.begun) / 1e6:.2f} s at least"
        for old, new in pairs
        if new.epoch > old.epoch or (new.epoch == old.epoch and new.went_on > old.begun)
    ]


def bad_lines(name: str, log: Iterable[str], context: int = 12) -> list[str]:
    """Tracebacks and critical lines of a broker's log, each with what follows."""
    lines = list(log)
    starts = [number for number, line in enumerate(lines) if "Traceback (most recent" in line or " critical" in line]
    found, last = [], -context
    for number in starts:
        if number >= last + context:
            found.append(f"{name}: " + "\n    ".join(line.rstrip() for line in lines[number : number + context]))
            last = number
    return found
