"""Breadth first over all states, each visited once; so the schedule of a fault is a shortest one.

Of a visited state only its 64 bit hash is kept.  With n states the chance that two of them share one, and a part of the
space is missed, is about n²/2⁶⁵: one in thirty million for a million states.  Hashes of texts change with every run.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.calls import Broken, Cluster, Label
from tests.model.state import World
from tests.model.steps import steps as steps_of
from tests.model.symmetry import canonical, orbit


@dataclass
class Result:
    """What was found."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    """Of the processor."""
    complete: bool = True
    """Was every state within the bounds visited?"""
    fault: str = ""
    schedule: list[Label] = field(default_factory=list)

    def text(self) -> str:
        return (
            f"{self.states:,} states, {self.steps:,} steps, depth {self.depth}, {self.seconds:.0f} s of the processor"
        )


def explore(
    cluster: Cluster,
    start: World,
    most: int = 10_000_000,
    tell: Callable[[Result, int], None] = lambda result, waiting: None,
    look: Callable[[World], None] = lambda world: None,
) -> Result:
    """Up to `most` states.  `tell` is called now and then with the number of states that wait, `look` with each."""
    result, began = Result(), time.process_time()
    visited = {hash(start)}
    waiting = deque([(0, 0, start)])
    parents, steps = array("L", [0]), array("H", [0])
    while waiting:
        index, depth, world = waiting.popleft()
        result.depth = max(result.depth, depth)
        look(world)
        try:
            for number, (_, after) in enumerate(steps_of(cluster, world)):
                result.steps += 1
                after = canonical(after, cluster.groups)
                key = hash(after)
                if key not in visited:
                    visited.add(key)
                    waiting.append((len(parents), depth + 1, after))
                    parents.append(index)
                    steps.append(number)
        except Broken as broken:
            result.fault = str(broken)
            result.schedule = [*_schedule(cluster, start, _path(parents, steps, index)), broken.label]
            break
        if len(visited) >= most:
            result.complete = False
            break
        if result.steps % 1024 < 8:
            result.states, result.seconds = len(visited), time.process_time() - began
            tell(result, len(waiting))
    result.states, result.seconds = len(visited), time.process_time() - began
    return result


def _path(parents: array[int], steps: array[int], index: int) -> list[int]:
    path = []
    while index:
        path.append(steps[index])
        index = parents[index]
    return path[::-1]


def _schedule(cluster: Cluster, start: World, path: list[int]) -> list[Label]:
    """The names of these steps.  What was explored may have other names than what follows from the start."""
    labels, world, explored = [], start, start
    for number in path:
        after = next(step for i, step in enumerate(steps_of(cluster, explored)) if i == number)[1]
        wanted, explored = orbit(after, cluster.groups), canonical(after, cluster.groups)
        label, world = next(step for step in steps_of(cluster, world) if orbit(step[1], cluster.groups) == wanted)
        labels.append(label)
    return labels
