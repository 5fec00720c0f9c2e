"""The facts that a report shows: evidence, and what is drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.parse.survey import age
from spark_jobs.report.tables import Row, Tables

DRAWN_MOST: Final = 2000
"""Facts of one incident that are drawn."""
AROUND: Final = 5_000_000
"""us that are drawn before and behind an incident, at most."""
BANDS: Final = frozenset(
    {"start", "stop", "state", "promoted", "demote", "exit", "hung", "awake", "fence_op_done", "log_end", "fenced_self"}
    | {"stopped"}
)
"""Kinds that begin or end a node's state; those before the incident say how it began."""
_IMPORTANT: Final = BANDS | frozenset(
    {"token_lost", "membership", "quorum", "quorum_state", "will_fence", "fence_request", "self_fenced", "daemon_exit"}
    | {"sched_pause", "promote_request", "primary_lost", "isolated", "salvage", "election", "no_primary", "refused"}
    | {"kill", "relocate", "stop_request", "op_unexpected", "op_result", "torn", "lines_dropped"}
)
_USEFUL: Final = frozenset(
    {"initiate", "plan", "fsa", "peer_state", "leave_missed", "no_links", "link_down", "backup_lost"}
    | {"backup_connected", "catchup_begin", "catchup_end", "adopted", "down", "restart_planned", "starting", "claim"}
    | {"op_confirmed", "sched_failed_op", "fence_notify", "token_warning"}
)
DRAWN: Final = _IMPORTANT | _USEFUL
_LEFT_OUT: Final = frozenset({"producer", "pub_first", "pub_last"})
Place = tuple[str, int]
"""(file, line)"""


@dataclass(frozen=True)
class WantedFact:
    """Of one incident: what is between `begin` and `end` (us), and certain lines."""

    cluster: str
    begin: int
    end: int
    places: tuple[Place, ...] = ()

    @property
    def low(self) -> int:
        return self.begin - AROUND

    @property
    def high(self) -> int:
        return self.end + AROUND


@dataclass
class SeenFact:
    """Facts whose time is known, by cluster: a torn line may have none, and has no place on a time axis.

    `observed`: cluster → begin, end (us) of all its facts."""

    bands: dict[str, list[Row]] = field(default_factory=dict)
    drawn: dict[str, list[Row]] = field(default_factory=dict)
    lines: dict[tuple[str, str, int], list[Row]] = field(default_factory=dict)
    observed: dict[str, Row] = field(default_factory=dict)

    def of(self, wanted: WantedFact) -> tuple[list[Row], int]:
        """(facts by time, how many more were not taken)"""
        lines = [row for place in wanted.places for row in self.lines.get((wanted.cluster, *place), [])]
        drawn = [row for row in self.drawn.get(wanted.cluster, []) if wanted.low <= row["ts_est"] <= wanted.high]
        kept = thinned(drawn, DRAWN_MOST)
        before = _last_before(self.bands.get(wanted.cluster, []), wanted.low)
        found = {_key(row): row for row in (*before, *kept, *lines)}
        return [_shown(row) for row in sorted(found.values(), key=_order)], len(drawn) - len(kept)

    def versions(self, cluster: str, end: int) -> list[str]:
        """Of the software that was started before `end`."""
        started = [row for row in self.bands.get(cluster, []) if row["kind"] == "start" and row["ts_est"] <= end]
        brokers = [row for row in started if row["source"] in ("broker", "text")]
        return sorted({row["attrs"]["version"] for row in brokers if (row.get("attrs") or {}).get("version")})


def read(tables: Tables, wanted: Sequence[WantedFact]) -> SeenFact:
    if not wanted:
        return SeenFact()
    windows = [{"cluster": item.cluster, "low": item.low, "high": item.high} for item in wanted]
    places = sorted({(item.cluster, *place) for item in wanted for place in item.places})
    seen = SeenFact(_by_cluster(tables.facts(BANDS)), _by_cluster(tables.facts_between(DRAWN, windows)))
    for row in tables.facts_at(places):
        if row["ts_est"] is not None:
            seen.lines.setdefault((row["cluster"] or "", row["file"], row["line_no"]), []).append(row)
    seen.observed = {row["cluster"]: {"begin": row["begin"], "end": row["end"]} for row in tables.observed()}
    return seen


def _by_cluster(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["ts_est"] is not None:
            groups[row["cluster"] or ""].append(row)
    return groups


def _last_before(rows: Iterable[Row], moment: int) -> list[Row]:
    """Of each node, source and kind the last one."""
    last: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        if row["ts_est"] < moment:
            last[row["node"], row["source"], row["kind"], row.get("peer")] = row
    return list(last.values())


def thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """The important ones first; of those of which there are too many, evenly many over the time."""
    kept: list[Row] = []
    for wanted in (_IMPORTANT, _USEFUL, None):
        some = [row for row in rows if (row["kind"] in wanted if wanted else row["kind"] not in DRAWN)]
        room = most - len(kept)
        kept += some if len(some) <= room else [some[index * len(some) // room] for index in range(room)]
    return kept


def places(rows: Iterable[Mapping[str, Any]]) -> set[Place]:
    """All lines that rows of the tables name."""
    found: set[Place] = set()
    for row in rows:
        found |= {place for text in row.get("evidence") or () if (place := parsed(text))}
        for prefix in ("begin_", "end_", "from_", "to_", ""):
            file, line = row.get(f"{prefix}file"), row.get(f"{prefix}line_no" if not prefix else f"{prefix}line")
            if file and line:
                found.add((file, line))
    return found


def parsed(text: str) -> Place | None:
    """`FILE:LINE`"""
    file, _, line = text.rpartition(":")
    return (file, int(line)) if file and line.isdigit() else None


def _key(row: Row) -> tuple[Any, ...]:
    return row["file"], row["line_no"], row["kind"], row.get("peer") or "", row.get("seq") or 0


def _order(row: Row) -> tuple[Any, ...]:
    return (
        row["ts_est"],
        row["node"] or "",
        row.get("seq") or 0,
        age(row["file"] or ""),
        row["line_no"] or 0,
        row["kind"],
    )


def _shown(row: Row) -> Row:
    """Without columns that say nothing."""
    kept = {name: value for name, value in sorted(row.items()) if value not in (None, {}, "") and name not in _LEFT_OUT}
    return kept | {"place": f"{row['file']}:{row['line_no']}"}
