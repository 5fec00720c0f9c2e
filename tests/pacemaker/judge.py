"""What became of a trial: messages, primaries, outages, phases.  Pure: what was gathered in, a report out.

The outage of a client is its longest time without a confirm between the event and the moment at which everybody was
served again; of a way (address list, virtual address) it is the median over its producers and the longest; `first` is
that of all producers together, so how long no client was served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Final

from testkit.judge import History, Verdict, longest_pause
from tests.pacemaker.clients import by_way, way_of
from tests.pacemaker.phases import BROKER, VIP, Phases, phases, promoted_spans, throttled
from tests.pacemaker.primaries import Event, Overlap, Sample, overlaps, primary_spans, verdict
from tests.pacemaker.timeline import Entry

BEFORE: Final = 1.0
"""Seconds before an event that its confirms are looked for."""


@dataclass
class Happening:
    """Something that was done to the cluster; moments in µs of CLOCK_MONOTONIC."""

    text: str
    node: str
    moment: int
    served: int = 0
    """When everybody was served again; 0: not yet."""


@dataclass(frozen=True)
class Outage:
    """Of one way, in seconds."""

    first: float
    median: float
    worst: float
    back: int
    """When the first client had a confirm again, µs of CLOCK_MONOTONIC."""


@dataclass(frozen=True)
class Effect:
    """What an event did."""

    happening: Happening
    outages: Mapping[str, Outage]
    clients: Mapping[str, float]
    phases: Phases
    throttled: Mapping[str, str] = field(default_factory=dict)
    """Nodes whose Pacemaker did one action at a time because the machine was busy."""

    def line(self) -> str:
        found = [f"{way} {o.first:.2f}/{o.median:.2f}/{o.worst:.2f} s" for way, o in self.outages.items()]
        slow = f" (throttled: {', '.join(self.throttled)})" if self.throttled else ""
        return f"{self.happening.text}: outage (first/median/worst client) {', '.join(found)}{slow}"


@dataclass(frozen=True)
class Evidence:
    """All that was gathered.  `zero`: seconds since 1970 at which CLOCK_MONOTONIC was 0."""

    happenings: Sequence[Happening]
    history: Sequence[Event]
    samples: Sequence[Sample]
    entries: Sequence[Entry]
    broker_events: Sequence[Event]
    nodes: Mapping[str, str]
    """Address → node."""
    zero: float
    now: float
    """Seconds since 1970."""
    bad: Sequence[str] = ()
    """What the brokers' logs say against them."""
    drained: bool = True


@dataclass(frozen=True)
class Report:
    """The end of a trial."""

    messages: Verdict
    effects: tuple[Effect, ...]
    two_confirming: tuple[str, ...]
    two_promoted: tuple[Overlap, ...]
    """In the eyes of Pacemaker: harmless, but told."""
    two_primaries: tuple[Overlap, ...]
    """By their own word: harmless unless both confirm."""
    bad: tuple[str, ...]
    story: tuple[str, ...] = field(default=(), repr=False)

    def failures(self, may_lose: bool = False) -> list[str]:
        """Empty when all is well.  `may_lose`: every broker was off at one time, so what was in memory is gone."""
        m = self.messages
        names = ("unexpected", "phantom", "changed", "unaccounted", *(() if may_lose else ("lost", "torn")))
        found = [f"{getattr(m, name)} {name} {m.ids.get(name, m.ids.get('missing', ()))}" for name in names
                 if getattr(m, name)]  # fmt: skip
        return [*found, *self.two_confirming, *self.bad]

    def lines(self) -> list[str]:
        """For people."""
        m = self.messages
        found = [f"confirmed {m.confirmed}, lost {m.lost}, unexpected {m.unexpected}, duplicated {m.duplicated}"]
        found += [f"TWO CONFIRMING: {text}" for text in self.two_confirming] or ["two confirming primaries: none"]
        both = {"promoted for Pacemaker": self.two_promoted, "primaries by their word": self.two_primaries}
        for name, pairs in both.items():
            found += [f"two {name}: {one.first} and {one.second}, for {one.length:.2f} s" for one in pairs]
        for effect in self.effects:
            found += [effect.line(), *(f"    {line}" for line in effect.phases.lines())]
            found.append(f"    {effect.phases.transitions} transitions, {len(effect.phases.aborts)} aborts")
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": asdict(self.messages),
            "effects": [asdict(effect) for effect in self.effects],
            "two_confirming": list(self.two_confirming),
            "two_promoted": [asdict(one) for one in self.two_promoted],
            "two_primaries": [asdict(one) for one in self.two_primaries],
            "bad": list(self.bad),
        }


def judge(found: Evidence, story: Sequence[str] = ()) -> Report:
    history = History().add(found.history)
    return Report(
        messages=history.verdict(found.drained),
        effects=tuple(_effect(happening, history, found) for happening in found.happenings),
        two_confirming=tuple(verdict(found.samples, found.history, found.nodes)),
        two_promoted=tuple(overlaps(promoted_spans(found.entries, (), found.now))),
        two_primaries=tuple(overlaps(primary_spans(found.samples))),
        bad=tuple(found.bad),
        story=tuple(story),
    )


def _effect(happening: Happening, history: History, found: Evidence) -> Effect:
    begin, end = happening.moment, happening.served or int((found.now - found.zero) * 1e6)
    near = {
        client: [moment for moment in sorted(moments) if begin - BEFORE * 1e6 <= moment <= end]
        for client, moments in history.confirms.items()
    }
    pauses = {client: longest_pause(moments, begin, end) for client, moments in near.items()}
    outages = {way: _outage(way, values, near, begin, end) for way, values in by_way(pauses).items()}
    others = {f"confirm, {'list' if way == 'list' else 'address'}": found.zero + outage.back / 1e6
              for way, outage in outages.items()}  # fmt: skip
    others |= _of_brokers(found.broker_events, found.zero, begin)
    event, until = found.zero + begin / 1e6, found.zero + end / 1e6
    took = phases(found.entries, event, until, BROKER, VIP, others)
    return Effect(happening, outages, pauses, took, throttled(found.entries, event))


def _outage(way: str, values: Sequence[float], near: Mapping[str, Sequence[int]], begin: int, end: int) -> Outage:
    moments = sorted(moment for client, found in near.items() if way_of(client) == way for moment in found)
    first, back = _longest(moments, begin, end)
    return Outage(first, median(values), max(values), back)


def _longest(moments: Sequence[int], begin: int, end: int) -> tuple[float, int]:
    """Seconds of the longest gap that touches the window, and its end."""
    inside = sorted({begin, end, *moments})
    gaps = [(later - earlier, later) for earlier, later in pairwise(inside) if later > begin]
    length, back = max(gaps, default=(0, begin))
    return length / 1e6, back


def _of_brokers(events: Iterable[Event], zero: float, begin: int) -> dict[str, float]:
    """When a broker was asked to lead, and when it did: the first such moments after the event."""
    kinds = {"promote_request": "claim", "promoted": "primary"}
    found: dict[str, float] = {}
    for event in sorted(events, key=lambda one: int(one["ts_mono"])):
        name = kinds.get(event["kind"])
        if name and int(event["ts_mono"]) >= begin and event.get("result") != "refused":
            found.setdefault(name, zero + int(event["ts_mono"]) / 1e6)
    return found
