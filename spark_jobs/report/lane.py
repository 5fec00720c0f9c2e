"""The number of clients in an outage at each moment (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

STEPS_SHOWN: Final = 400
Step = tuple[int, int]
"""(us, clients that are down from then on)"""


def of(outages: Iterable[Mapping[str, Any]], clients: int | None) -> dict[str, Any]:
    """clients (those that existed; at least those that stood still), and the steps."""
    rows = list(outages)
    seen = len({row["client_id"] for row in rows})
    return {"clients": max(clients or 0, seen), "steps": [list(step) for step in thinned(steps(rows))]}


def steps(outages: Iterable[Mapping[str, Any]]) -> list[Step]:
    changes: dict[int, int] = defaultdict(int)
    for row in outages:
        changes[row["ts_begin"]] += 1
        changes[row["ts_end"]] -= 1
    found: list[Step] = []
    down = 0
    for moment in sorted(changes):
        down += changes[moment]
        if not found or found[-1][1] != down:
            found.append((moment, down))
    return found


def thinned(found: Sequence[Step], most: int = STEPS_SHOWN) -> list[Step]:
    """At most `most`: of each stretch of time the greatest, so that no peak is lost; the last one stays as it is."""
    if len(found) <= most:
        return list(found)
    begin, end = found[0][0], found[-1][0]
    width = (end - begin) / (most - 1) or 1
    buckets: dict[int, Step] = {}
    for moment, down in found[:-1]:
        index = min(most - 2, int((moment - begin) / width))
        kept = buckets.get(index)
        buckets[index] = (kept[0], max(kept[1], down)) if kept else (moment, down)
    return [*(buckets[index] for index in sorted(buckets)), found[-1]]
