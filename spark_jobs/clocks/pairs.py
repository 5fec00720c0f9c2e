"""Observations in the logs about the difference of two nodes' clocks (pure).

An observation is "sent by A at `a` (A's clock), received by B at `b` (B's clock)".  Nothing arrives before it is sent,
so at the moment of sending   clock(B) - clock(A) <= b - a + slack.   Messages both ways bound the difference from both
sides; no assumption about delays is made.

`slack` is what the numbers themselves may be off: a stamp is the true reading cut down to its resolution, so the
receiver's may have been later by its resolution (`stamp_error`), the sender's only earlier, which does no harm.

Links are observations between two rows that we have, and so causes, too (`solve.order`).  Exact ones join rows of one
message or batch.  The broker's samples (`repl_send` and `repl_recv` without a peer, at most one a second) say only what
a position *was*: a backup that holds more than the primary had at `a` got it later than `a`.

All times are in us.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from spark_jobs.clocks.pairs_pacemaker import attribute_pairs, operation_links, ring_pairs
from spark_jobs.parse.survey import age
from spark_jobs.schema import Event

BUCKET: Final = 10_000_000
"""us: of all observations of a pair and kind in it, the shortest delay is kept."""
RING_SPREAD: Final = 10_000
"""us between two nodes' lines about one ring: a rotation of the token (the lab's largest: one tick of 4 ms)."""
ATTRIBUTE_SPREAD: Final = 100_000
"""us between two nodes' lines about one broadcast of attrd (the lab's largest: 12 ms)."""
READING: Final = 1_000
"""us between a process's two looks at its clocks, for the median of several."""
READING_DIGITS: Final = 18
WRITTEN_AFTER: Final = {"result": 1_000}
"""us: pacemaker-controld sends its update just before it writes `Result of`."""
WEAK: Final = frozenset({"attr"})
"""Kinds that only stand in where a pair of nodes has nothing better."""
_EXACT: Final = (
    ("repl", "repl_send", "repl_recv"),
    ("replack", "replack_send", "replack_recv"),
)


@dataclass(frozen=True)
class Link:
    """`received` is an effect of `sent`."""

    kind: str
    sent: Event
    received: Event


@dataclass(frozen=True, order=True)
class Observation:
    """clock(receiver) - clock(sender) <= delay + slack, when the sender's clock showed `sent`."""

    sender: str
    receiver: str
    sent: int
    delay: int
    slack: int
    kind: str
    count: int = 1

    @property
    def bound(self) -> int:
        return self.delay + self.slack

    @property
    def received(self) -> int:
        return self.sent + self.delay


def stamp_error(event: Event) -> int:
    """us that a row's true time may be later than it says.

    A resolution that is no power of ten is the tick of the clock that was read; its readings are cut to ms then.
    """
    resolution: int = event.get("ts_res") or 1
    return resolution if resolution in (1, 1_000, 1_000_000) else resolution + 1_000


def links(events: Iterable[Event]) -> list[Link]:
    """All pairs of cause and effect on two nodes, in an order that does not depend on that of the input."""
    rows = sorted((event for event in events if timed(event)), key=place)
    names = aliases(rows)
    found = [Link(kind, sent, received) for kind, sent, received in operation_links(rows)]
    for kind, send, receive in _EXACT:
        found += _batches(rows, names, kind, send, receive)
    found += _samples(rows)
    return [link for link in found if link.sent["node"] != link.received["node"]]


def observations(events: Iterable[Event], of: Sequence[Link] | None = None) -> list[Observation]:
    """What rows say about clocks, thinned; `of`: their `links`, if they are known already.  What one row says alone,
    and what is about messages, is found in logs of any size: see `pairs_query`."""
    rows = sorted((event for event in events if timed(event)), key=place)
    found = [observed(link) for link in (links(rows) if of is None else of)]
    for one, other in ring_pairs(rows):
        found += _both_ways("ring", one, other, RING_SPREAD)
    for one, other in attribute_pairs(rows, ATTRIBUTE_SPREAD):
        found += _both_ways("attr", one, other, ATTRIBUTE_SPREAD)
    found += _shared_kernel(rows)
    return thinned(found)


def from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Observation]:
    """Of the table `pairs`: sender, receiver, kind, sent, delay, slack and count (us)."""
    names = ("sender", "receiver", "sent", "delay", "slack", "kind")
    return thinned(Observation(**{name: row[name] for name in names}, count=row.get("count") or 1) for row in rows)


def thinned(found: Iterable[Observation]) -> list[Observation]:
    """The tightest of each ordered pair, kind and bucket; weak kinds only where a pair has no other."""
    best: dict[tuple[str, str, str, int], Observation] = {}
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for item in found:
        key = (item.sender, item.receiver, item.kind, item.sent // BUCKET)
        counts[key] += item.count
        if key not in best or (item.bound, item) < (best[key].bound, best[key]):
            best[key] = item
    strong = {frozenset(key[:2]) for key in best if key[2] not in WEAK}
    return sorted(
        Observation(item.sender, item.receiver, item.sent, item.delay, item.slack, item.kind, counts[key])
        for key, item in best.items()
        if item.kind not in WEAK or frozenset(key[:2]) not in strong
    )


def aliases(events: Iterable[Event]) -> dict[str, str]:
    """Names of a node in other rows' `peer` and `client_id`: address, broker's id, client's name -> node."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for event in events:
        node, attrs = event["node"], event.get("attrs") or {}
        nodes[node].add(node)
        if event["kind"] == "start":
            for name in (attrs.get("address"), attrs.get("broker_id")):
                nodes[name or node].add(node)
        if event.get("source") == "client" and event.get("client_id"):
            nodes[event["client_id"]].add(node)
    return {name: min(of) for name, of in nodes.items() if len(of) == 1}


def place(event: Event) -> tuple[Any, ...]:
    """A key that orders rows the same way whatever order they came in."""
    moment = event.get("ts_wall")
    head = (moment is None, moment or 0, event.get("node") or "", event.get("source") or "", event.get("proc") or "")
    line = (age(event.get("file") or ""), event.get("line_no") or 0)
    return (*head, event.get("seq") or 0, line, event.get("kind") or "")


def timed(event: Event) -> bool:
    return event.get("ts_wall") is not None and bool(event.get("node"))


def observed(link: Link) -> Observation:
    sent, received = link.sent, link.received
    slack = stamp_error(received) + WRITTEN_AFTER.get(link.kind, 0)
    delay = received["ts_wall"] - sent["ts_wall"]
    return Observation(sent["node"], received["node"], sent["ts_wall"], delay, slack, link.kind)


def _both_ways(kind: str, one: Event, other: Event, spread: int) -> Iterator[Observation]:
    """Two rows of one moment, give or take `spread`."""
    for sent, received in ((one, other), (other, one)):
        delay = received["ts_wall"] - sent["ts_wall"]
        slack = stamp_error(received) + spread
        yield Observation(sent["node"], received["node"], sent["ts_wall"], delay, slack, kind)


def _batches(rows: Iterable[Event], names: Mapping[str, str], kind: str, send: str, receive: str) -> Iterator[Link]:
    """Both ends name each other and the same positions, once: what was sent twice may have arrived the first time."""
    ends: dict[tuple[Any, ...], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    for event in rows:
        if event["kind"] not in (send, receive) or not event.get("peer") or event.get("last_pos") is None:
            continue
        peer = names.get(event["peer"], event["peer"])
        pair = (event["node"], peer) if event["kind"] == send else (peer, event["node"])
        key = (*pair, event.get("queue"), event.get("first_pos"), event["last_pos"])
        ends[key][event["kind"] == receive].append(event)
    for sends, receipts in ends.values():
        if len(sends) == len(receipts) == 1:
            yield Link(kind, sends[0], receipts[0])


def _samples(rows: Iterable[Event]) -> Iterator[Link]:
    """Each sample of a backup with the primary's last one that is *behind* it, of the same term."""
    had: dict[tuple[str, int], list[tuple[int, int, Event]]] = defaultdict(list)
    held: list[Event] = []
    for number, event in enumerate(rows):
        if event.get("peer") or event.get("last_pos") is None or event.get("term") is None:
            continue
        if event["kind"] == "repl_send":
            had[event["node"], event["term"]].append((event["last_pos"], -number, event))
        elif event["kind"] == "repl_recv":
            held.append(event)
    for samples in had.values():
        samples.sort(key=lambda item: item[:2])
    for event in held:
        for (node, term), samples in had.items():
            index = bisect_left(samples, event["last_pos"], key=lambda item: item[0])
            if term == event["term"] and node != event["node"] and index:
                yield Link("repl_sample", samples[index - 1][2], event)


def _shared_kernel(rows: Iterable[Event]) -> Iterator[Observation]:
    """Nodes of one boot share CLOCK_MONOTONIC, so wall minus mono of each compares their wall clocks."""
    levels: dict[tuple[str, int], dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in rows:
        if event.get("ts_mono") is not None and event.get("boot_id") not in (None, "", "unknown"):
            levels[event["boot_id"], event["ts_mono"] // BUCKET][event["node"]].append(event)
    for nodes in levels.values():
        middle = {node: round(median(e["ts_wall"] - e["ts_mono"] for e in of)) for node, of in nodes.items()}
        for sender, receiver in ((one, other) for one in nodes for other in nodes if one != other):
            sent = nodes[sender][len(nodes[sender]) // 2]["ts_wall"]
            slack = READING + max(stamp_error(event) for event in nodes[receiver])
            yield Observation(sender, receiver, sent, middle[receiver] - middle[sender], slack, "kernel")
