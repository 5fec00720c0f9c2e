"""Finds the steps that only contradictions between nodes show (pure): see `clocks.steps`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from spark_jobs.clocks.axis import ClockAxis, Layout, axis_of, resolutions
from spark_jobs.clocks.pairs import Observation
from spark_jobs.clocks.steps import Break, Seen, contradiction, first_clash

MOST: Final = 40
"""Repairs.  Beyond that, contradicting observations are dropped and noted: a clock that jumps so often is unusable."""
WHY: Final = "contradicting observations"


class Search:
    """`run` once; then `axis` has no contradiction, `dropped` says what was left out, `notes` what is not certain."""

    def __init__(self, found: Sequence[Observation], layout: Layout, reference: str, steepest: float) -> None:
        self.found = list(found)
        self.steepest = steepest
        self.dropped: list[str] = []
        self.notes: dict[Break, str] = {}
        self._reference = reference
        self.axis = self._axis(layout, self.found)

    def run(self) -> None:
        """Repairs contradictions from the first to the last."""
        repairs = 0
        while (clash := first_clash(self.axis.seen, self.steepest)) is not None:
            repairs += 1
            if repairs > MOST or not self._split(*clash):
                self._drop(clash[1])

    def _split(self, begin: int, end: int) -> bool:
        """At the node whose split helps most; False if leaving out one observation helps more."""
        seen, old = self.axis.seen, self.axis.layout
        nodes = {node for node, _ in contradiction(seen[begin : end + 1], self.steepest)}
        tried: list[tuple[float, int, str, ClockAxis]] = []
        for node in sorted(nodes, key=lambda node: (node == self._reference, node)):
            axis = self._axis(self._with(old, node, *self._stretch(node, seen[begin], seen[end])), self.found)
            tried.append((-self._reach(axis), len(tried), node, axis))
        best = min(tried, key=lambda item: item[:2])
        removed = [self._reach(self._without(index)) for index in (begin, end) if seen[index].number >= 0]
        if -best[0] <= seen[end].x or max(removed, default=-inf) > -best[0]:
            return False
        others = [node for reach, _, node, _ in tried if reach == best[0] and node != best[2]]
        self.axis = best[3]
        if others:
            new = next(item for item in self.axis.layout.breaks if item not in old.breaks)
            self.notes[new] = f"it may as well have been {' or '.join(others)}"
        return True

    def _stretch(self, node: str, first: Seen, last: Seen) -> tuple[Seen, Seen]:
        """The same contradiction when the others tell the time: a clock that was set tells it wrongly."""
        axis = axis_of(self.found, self.axis.layout, self._reference, self.steepest, suspect=node)
        clash = first_clash(axis.seen, self.steepest)
        return (first, last) if clash is None else (axis.seen[clash[0]], axis.seen[clash[1]])

    def _with(self, layout: Layout, node: str, first: Seen, last: Seen) -> Layout:
        others = {last.sender[0], last.receiver[0]} - {node}
        # x is a stamp: it may be early; without another node both ends are of one clock
        late = max((resolutions(self.found).get(other, 1) - 1 for other in others), default=0)
        axis = (self.axis.origin + first.x, self.axis.origin + last.x + late)
        rough = self.axis.rough.get((node, 0), 0.0)
        walls = (self._wall(first, node), self._wall(last, node))
        new = Break(node, round(axis[0] + rough), round(axis[1] + rough), WHY, axis=axis, walls=walls)
        return Layout(tuple(sorted((*layout.breaks, new), key=lambda item: (item.node, item.lo, item.hi))))

    def _wall(self, seen: Seen, node: str) -> int | None:
        """What the node's clock showed."""
        if seen.number < 0:
            return None
        item = self.found[seen.number]
        return item.sent if item.sender == node else item.received if item.receiver == node else None

    def _reach(self, axis: ClockAxis) -> float:
        """The time of the next contradiction."""
        clash = first_clash(axis.seen, self.steepest)
        return inf if clash is None else axis.seen[clash[1]].x + axis.origin - self.axis.origin

    def _without(self, index: int) -> ClockAxis:
        number = self.axis.seen[index].number
        return self._axis(self.axis.layout, [item for i, item in enumerate(self.found) if i != number])

    def _drop(self, end: int) -> None:
        """The observation that helps most; the last of the stretch if none does."""
        clash = first_clash(self.axis.seen, self.steepest)
        assert clash is not None
        choices = [index for index in (end, clash[0]) if self.axis.seen[index].number >= 0]
        if not choices:  # two known jumps contradict each other: the later one is forgotten
            breaks = [replace(item, jump=None) for item in self.axis.layout.breaks]
            self.axis = self._axis(Layout(tuple(breaks)), self.found)
            return
        worst = max(choices, key=lambda index: self._reach(self._without(index)))
        item = self.found.pop(self.axis.seen[worst].number)
        ends = f"from {item.sender} at {item.sent} us to {item.receiver} at {item.received} us"
        self.dropped.append(f"{item.kind} {ends} contradicts the others")
        self.axis = self._axis(self.axis.layout, self.found)

    def _axis(self, layout: Layout, found: Sequence[Observation]) -> ClockAxis:
        return axis_of(found, layout, self._reference, self.steepest)
