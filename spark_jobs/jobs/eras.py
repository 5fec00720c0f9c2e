"""Stretches of days of a cluster that have nothing to do with each other (pure).

What a process says on one day may need what it said before: numbers without gaps, who is primary, messages that wait.
So the days of its life belong together, and so do those of all that share a day with it.  A cluster that is dead at
midnight has an outage that begins on one day and ends on the next one, so neighbours belong together, too.  An *era* is
what is left when everything is joined that must be: between two of them nothing of the cluster lived for a whole day.
New lines change their era only.  Text logs name no process: each is taken for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Era:
    """Days as `2026-01-31`, inclusive; names of the files that tell of it."""

    cluster: str
    first: str
    last: str
    files: frozenset[str] = frozenset()

    def meets(self, other: Era) -> bool:
        return self.cluster == other.cluster and self.first <= other.last and other.first <= self.last


def eras(files: Iterable[Row]) -> list[Era]:
    """By cluster and time.  `files`: file, cluster, first, last (days; None: no line has a time), procs (names).

    Files without any time belong to the last era."""
    of: dict[str, list[Row]] = defaultdict(list)
    for row in files:
        of[row["cluster"]].append(row)
    return [era for cluster in sorted(of) for era in _of_cluster(cluster, of[cluster])]


def _of_cluster(cluster: str, files: Iterable[Row]) -> list[Era]:
    dated = [row for row in files if row["first"] is not None]
    lives: dict[str, tuple[str, str]] = {}
    for row in dated:
        for proc in row["procs"]:
            first, last = lives.get(proc, (row["first"], row["last"]))
            lives[proc] = (min(first, row["first"]), max(last, row["last"]))
    spans = [(*_life(row, lives), row["file"]) for row in dated]
    found: list[tuple[str, str, set[str]]] = []
    for first, last, file in sorted(spans):
        if found and first <= _day_after(found[-1][1]):
            begin, end, names = found.pop()
            found.append((begin, max(end, last), names | {file}))
        else:
            found.append((first, last, {file}))
    undated = {row["file"] for row in files if row["first"] is None}
    if undated:
        begin, end, names = found.pop() if found else ("", "", set())
        found.append((begin, end, names | undated))
    return [Era(cluster, first, last, frozenset(names)) for first, last, names in found]


def _day_after(of: str) -> str:
    return (date.fromisoformat(of) + timedelta(days=1)).isoformat()


def _life(row: Row, lives: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """With the lives of all processes in it."""
    of = [(row["first"], row["last"]), *(lives[proc] for proc in row["procs"])]
    return min(first for first, _ in of), max(last for _, last in of)


def waves(found: Iterable[Era]) -> list[tuple[Era, ...]]:
    """Those that can be computed at once: one of each cluster."""
    of: dict[str, list[Era]] = defaultdict(list)
    for era in found:
        of[era.cluster].append(era)
    most = max(map(len, of.values()), default=0)
    return [tuple(of[cluster][turn] for cluster in sorted(of) if turn < len(of[cluster])) for turn in range(most)]
