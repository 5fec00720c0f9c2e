"""Two confirming primaries: exactly what that means, and how it is found.  Pure.

*Confirming* is what counts, not being promoted: Pacemaker may have two promoted for a moment after a network cut, and
`ha` has to make that harmless.  A broker has confirmed between two moments when

    its own word   it was primary in one epoch at both and its safe position was greater at the second; or
    a client's     a client that was connected to it published a message after the first and had its confirm by the
                   second (only clients that connect by address know to whom they are connected)

Both say "somewhere between these moments", so what is *certain* is: it had begun by the end of its first interval, and
it still went on after the beginning of its last one.  The verdict is `torture.evidence.two_confirming`: a broker that
certainly went on in an older epoch after another one had certainly begun in a newer.  The intervals are 10 ms wide when
all is well, so an overlap of two of them cannot be missed, and none is invented.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from torture.evidence import Advance, two_confirming

Event = Mapping[str, Any]
PRIMARY: Final = ("recovering", "active")


@dataclass(frozen=True)
class Sample:
    """One answer of a broker; moments in µs of CLOCK_MONOTONIC."""

    node: str
    run: int
    """Numbers the connections to this node: within one there is one broker process."""
    asked: int
    answered: int
    state: str
    epoch: int
    safe: int

    @property
    def primary(self) -> bool:
        return self.state in PRIMARY


def by_their_word(samples: Iterable[Sample]) -> list[Advance]:
    """The intervals in which brokers moved their safe positions as primaries."""
    runs: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        runs[sample.node, sample.run].append(sample)
    return [
        Advance(new.node, new.epoch, old.asked, new.answered)
        for found in runs.values()
        for old, new in pairwise(sorted(found, key=lambda one: one.asked))
        if old.primary and new.primary and old.epoch == new.epoch and new.safe > old.safe
    ]


class Epochs:
    """In which epoch a node's broker was primary at a moment, as far as it has said so."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for sample in sorted(samples, key=lambda one: one.asked):
            if sample.primary:
                self._found[sample.node].append((sample.asked, sample.epoch))

    def at(self, node: str, moment: int) -> int | None:
        """None: it had not been primary before."""
        found = self._found.get(node, [])
        index = bisect_right(found, moment, key=lambda one: one[0])
        return found[index - 1][1] if index else None


def by_clients(events: Iterable[Event], nodes: Mapping[str, str], epochs: Epochs) -> list[Advance]:
    """The intervals that the clients' histories prove (`testkit.record`).  `nodes`: address → name."""
    histories: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        histories[str(event["client"])].append(event)
    return [one for history in histories.values() for one in _of_client(history, nodes, epochs)]


def _of_client(history: Sequence[Event], nodes: Mapping[str, str], epochs: Epochs) -> Iterable[Advance]:
    node, invoked = "", dict[str, int]()
    for event in history:
        kind, moment = event["kind"], int(event["t"])
        if kind == "fact":
            node, invoked = _connected(str(event["text"]), nodes, node), {}
        elif kind == "invoke":
            invoked[event["id"]] = moment
        elif kind == "ok" and node and event["id"] in invoked:
            epoch = epochs.at(node, moment)
            if epoch is not None:
                yield Advance(node, epoch, invoked[event["id"]], moment)


def _connected(text: str, nodes: Mapping[str, str], before: str) -> str:
    """To whom, after this fact; "" for no client."""
    word, _, rest = text.partition(" ")
    if word == "connected":
        return nodes.get(rest, "")
    return "" if word == "disconnected" else before


def verdict(samples: Sequence[Sample], events: Iterable[Event], nodes: Mapping[str, str]) -> list[str]:
    """Sentences that name two primaries of which both confirmed; empty when all is well."""
    found = [*by_their_word(samples), *by_clients(events, nodes, Epochs(samples))]
    return two_confirming(found)


@dataclass(frozen=True)
class Overlap:
    """Two nodes in one role at one time; seconds."""

    first: str
    second: str
    begin: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Span:
    """A node in a role."""

    node: str
    begin: float
    end: float


def overlaps(spans: Iterable[Span]) -> list[Overlap]:
    """Of different nodes; the earlier one first."""
    ordered = sorted(spans, key=lambda span: (span.begin, span.node))
    return [
        Overlap(one.node, other.node, other.begin, min(one.end, other.end))
        for index, one in enumerate(ordered)
        for other in ordered[index + 1 :]
        if other.node != one.node and other.begin < one.end
    ]


def primary_spans(samples: Iterable[Sample]) -> list[Span]:
    """When each broker called itself primary, from its first such answer to its last one in a row."""
    found: list[Span] = []
    current: dict[str, Span] = {}
    for sample in sorted(samples, key=lambda one: one.asked):
        span = current.get(sample.node)
        if sample.primary:
            begin = span.begin if span else sample.asked / 1e6
            current[sample.node] = Span(sample.node, begin, sample.answered / 1e6)
        elif span:
            found.append(current.pop(sample.node))
    return [*found, *current.values()]
