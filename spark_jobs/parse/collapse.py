"""The same fact in several logs becomes one row (pure).

Up to four daemons of a node tell that a peer is lost; each node tells that a fencing is done; syslog has a copy of
pacemaker.log without what stands behind ` | `.  `per_node` leaves one row a node.
No evidence is lost: `evidence` gives every (file, line) of a row.

Two rows of a node are one fact if their kind and key agree, their times are near (tolerance plus the coarser
resolution of the two), no identifier contradicts (`call`, `trans`, `event`, `ring`, ..: one may lack it, because
syslog cuts it off), and they come from different writers.  A writer is a daemon in one log; a rotated log is one log.
A daemon tells a fact once, so its second line begins a second fact; only Kronosnet repeats its lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.data import table
from spark_jobs.parse.survey import Age, age, stem
from spark_jobs.schema import CLUSTER_KINDS, Event

_TABLE: Final = table(__package__, "collapse")
COARSEST = 1_000_000
"""us: no log has a coarser clock, so a group that is older by this and the tolerance is closed."""
IDS = ("call", "trans", "action", "event", "ring", "ref", "pe", "rc", "op", "child_pid", "target_rc")
_CLOCKS = ("ts_mono", "boot_id")
_RANKS = {"pacemaker": 0, "corosync": 0, "text": 1, "syslog": 1, "crm_mon": 2}


@dataclass(frozen=True)
class CollapseRule:
    """`key`: columns or keys of attrs; `tolerance` in us; `repeats`: one writer may say it more than once."""

    key: tuple[str, ...]
    tolerance: int
    repeats: bool = False

    @staticmethod
    def of(text: str) -> CollapseRule:
        words = text.split()
        key = tuple(word for word in words if not word.isupper())
        tolerance = next((word for word in words if word in ("DAEMONS", "EVENT")), "SAME")
        return CollapseRule(key, _TABLE[tolerance], "REPEATS" in words)


RULES: Final = {kind: CollapseRule.of(text) for kind, text in _TABLE["keys"].items()}
"""Kinds that are not here (and those of brokers and clients) stay as they are."""


@dataclass
class _Group:
    rows: list[Event] = field(default_factory=list)
    writers: set[tuple[str, str]] = field(default_factory=set)


def evidence(row: Event) -> list[tuple[str, int]]:
    """Every (file, line) that says it; the row's own first."""
    places = [(row["file"], row["line_no"])] if "file" in row else []
    for text in (row.get("attrs") or {}).get("also", "").split("\n"):
        name, _, number = text.rpartition(":")
        if name:
            places.append((name, int(number)))
    return places


def per_node(events: Iterable[Event]) -> list[Event]:
    """One row for each fact and node, by time; the best log's row, with what only the others say."""
    near: dict[tuple[str | None, ...], list[_Group]] = {}
    groups: list[_Group] = []
    kept: list[Event] = []
    for event in sorted(events, key=_place):
        rule = RULES.get(event["kind"]) if event["kind"] in CLUSTER_KINDS else None
        if rule is None or event.get("ts_wall") is None or event.get("source") not in _RANKS:
            kept.append(event)
            continue
        key = (event.get("node"), event["kind"], *(_value(event, name) for name in rule.key))
        near[key] = [group for group in near.get(key, ()) if _is_near(event, group.rows[0], rule, COARSEST)]
        if (group := _join(near[key], event, rule)) is not None:
            groups.append(group)
    kept += [_merged(group.rows) for group in groups]
    return sorted(kept, key=_place)


def _join(groups: list[_Group], event: Event, rule: CollapseRule) -> _Group | None:
    """Puts the row into the first group that it fits; the new group if there is none."""
    writer = (_value(event, "daemon") or "", stem(event.get("file") or ""))
    for group in groups:
        if not _is_near(event, group.rows[0], rule):
            continue
        if (rule.repeats or writer not in group.writers) and not _contradicts(group.rows, event):
            group.rows.append(event)
            group.writers.add(writer)
            return None
    groups.append(_Group([event], {writer}))
    return groups[-1]


def _is_near(event: Event, first: Event, rule: CollapseRule, resolution: int = 0) -> bool:
    """Rows come in the order of time, so `first` is never later."""
    return bool(event["ts_wall"] - first["ts_wall"] <= rule.tolerance + max(resolution, _resolution(event, first)))


def _contradicts(rows: list[Event], event: Event) -> bool:
    mine = event.get("attrs") or {}
    return any(
        name in mine and name in theirs and mine[name] != theirs[name]
        for theirs in ((row.get("attrs") or {}) for row in rows)
        for name in IDS
    )


def _merged(rows: list[Event]) -> Event:
    if len(rows) == 1:
        return rows[0]
    ordered = sorted(rows, key=lambda row: (_RANKS[row["source"]], row.get("ts_res") or 1, _place(row)))
    best = dict(ordered[0])
    attrs = dict(best.get("attrs") or {})
    for other in ordered[1:]:
        best = {**{name: value for name, value in other.items() if name not in _CLOCKS}, **best}
        attrs = {**(other.get("attrs") or {}), **attrs}
    finest = min(ordered, key=lambda row: row.get("ts_res") or 1)
    if (finest.get("ts_res") or 1) < (best.get("ts_res") or 1):  # two clocks of one machine: its finer one
        best |= {name: finest[name] for name in ("ts_wall", "ts_res", *_CLOCKS) if finest.get(name) is not None}
    places = sorted({place for row in rows for place in evidence(row)} - {(best.get("file"), best.get("line_no"))})
    attrs["also"] = "\n".join(f"{name}:{number}" for name, number in places)
    attrs["copies"] = str(len(places) + 1)
    attrs["daemons"] = " ".join(sorted({_value(row, "daemon") or "" for row in rows} - {""}))
    return best | {"attrs": attrs}


def _value(event: Event, name: str) -> str | None:
    value = event.get(name)
    return value if isinstance(value, str) else (event.get("attrs") or {}).get(name)


def _resolution(one: Event, other: Event) -> int:
    return max(one.get("ts_res") or 1, other.get("ts_res") or 1)


def _place(event: Event) -> tuple[bool, int, Age, int]:
    moment = event.get("ts_wall")
    return (moment is None, moment or 0, age(event.get("file") or ""), event.get("line_no") or 0)
