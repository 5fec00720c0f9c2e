"""Which clusters are computed together (pure).

A *bin* is some clusters that one task of Spark computes from beginning to end; it is named by its number.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final

FULL: Final = 2_000_000
"""Events of a bin, unless one cluster has more."""
EACH: Final = 4
"""Bins for each core, if there are clusters enough: some take longer than others."""


def packed(events: Mapping[str, int], cores: int) -> dict[str, int]:
    """Cluster → its bin; `events`: cluster → how many.  Bins are about as full as each other, the fullest first."""
    wanted = min(len(events), max(EACH * cores, -(-sum(events.values()) // FULL)))
    bins: list[tuple[int, int]] = [(0, number) for number in range(wanted)]
    found = {}
    for cluster in sorted(events, key=lambda name: (-events[name], name)):
        held, number = heapq.heappop(bins)
        found[cluster] = number
        heapq.heappush(bins, (held + events[cluster], number))
    return found
