"""What `watch` remembers: of which state of each file the tables were made, and which incidents were told."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from hashlib import sha256
from typing import Any, Final

from spark_jobs.engine.base import Engine, Row
from spark_jobs.ingest.plan import SEGMENTS
from spark_jobs.ingest.tables import Catalog, Resume
from spark_jobs.jobs.eras import Era, eras
from spark_jobs.schema import day
from spark_jobs.workspace import DELTA, Workspace

WATCHED: Final = "file string, cluster string, state string, first string, last string"
ANNOUNCED: Final = "incident string, state string"
_TIMES: Final = ("first_ts", "last_ts")
_STATE: Final = ("name", "cluster", "kind", "state", "octets", "lines", "events", "torn", "covered", "undated")


@dataclass(frozen=True)
class Files:
    """`now`: rows of `watched` as they should be.  `changed`: names of files that are not what they were, of which
    `segments` are segments.  `stale`: clusters that have, or had, rows of them; `eras`: what of these is to be
    computed, none if they are as a whole; `gone`: what had rows of them, None: nobody knows.  `events`: of the files
    that are computed again.  `late`: notes on those that came for days that are closed, which are not."""

    now: tuple[Row, ...]
    changed: frozenset[str]
    segments: int
    stale: frozenset[str]
    eras: tuple[Era, ...] = ()
    gone: tuple[Era, ...] | None = ()
    events: int = 0
    late: tuple[Row, ...] = ()

    @property
    def clusters(self) -> frozenset[str]:
        """All that there are."""
        return frozenset(row["cluster"] for row in self.now)


def files(engine: Engine, workspace: Workspace, settings: str, late: int | None = None) -> Files:
    """Compare; `settings`: what else decides about the tables; `late`: days after which a day is closed."""
    workspace.load(engine, "files")
    states = {row["name"]: row for row in engine.rows(f"select {', '.join((*_STATE, *_TIMES))} from files")}
    now = {name: _digest([settings, {key: row[key] for key in _STATE}]) for name, row in states.items()}
    before = _by_file(_rows(engine, workspace, "watched", WATCHED))
    changed = {name for name in now.keys() | before.keys() if _state(before.get(name)) != now.get(name)}
    found = _clusters(engine, workspace, changed & now.keys())
    rows = [row for name in now.keys() - changed for row in before[name]]
    for name in changed & now.keys():
        of = found.get(name) or {states[name]["cluster"] or ""}
        days = {side: moment and day(moment) for side in ("first", "last") for moment in (states[name][f"{side}_ts"],)}
        rows += [{"file": name, "cluster": cluster, "state": now[name], **days} for cluster in of]
    was = [row for name in changed for row in before.get(name, ())]
    stale = {row["cluster"] for row in (*was, *rows) if row["file"] in changed}
    segments = [name for name in changed & now.keys() if states[name]["kind"] in SEGMENTS]
    known = Files(tuple(rows), frozenset(changed), len(segments), frozenset(stale))
    if workspace.format == DELTA:
        known = _by_era(engine, workspace, known, was if before else None)
        known = known if late is None or known.gone is None else _in_time(known, late, states)
    if known.late and not known.eras:
        return known
    again = {file for era in known.eras for file in era.files} or {
        row["file"] for row in rows if row["cluster"] in stale
    }
    return replace(known, events=sum(states[name]["events"] or 0 for name in again))


def _by_era(engine: Engine, workspace: Workspace, files: Files, was: Sequence[Row] | None) -> Files:
    """With the eras; without them if a file had no time, or if rows were given as Parquet, which names other files."""
    catalog = Catalog.load(engine, workspace)
    if catalog.given or any(row["first"] is None for row in was or ()):
        return files
    procs = {name: tuple(Resume.of(state.resume).seqs) for name, state in catalog.files.items()}
    found = eras({**row, "procs": procs.get(row["file"], ())} for row in files.now if row["cluster"] in files.stale)
    old = tuple({Era(row["cluster"], row["first"], row["last"]) for row in was or ()})
    chosen = tuple(era for era in found if era.files & files.changed or any(era.meets(one) for one in old))
    return replace(files, eras=chosen or old, gone=None if was is None else old)


def _in_time(files: Files, late: int, states: Mapping[str, Row]) -> Files:
    """Without the eras that ended more than so many days before the newest line of their cluster.  A clock that is
    years ahead closes nothing: what is later than tomorrow does not count."""
    newest, tomorrow = dict[str, str](), (date.today() + timedelta(1)).isoformat()
    for row in files.now:
        last = row["last"] if row["last"] and row["last"] <= tomorrow else ""
        newest[row["cluster"]] = max(last, newest.get(row["cluster"], ""))
    limits = {name: (date.fromisoformat(last) - timedelta(late)).isoformat() for name, last in newest.items() if last}
    closed = [era for era in files.eras if era.last < limits.get(era.cluster, "")]
    notes = [
        {"cluster": era.cluster, "about": file, "text": _came_late(file, era, newest[era.cluster], states[file])}
        for era in closed for file in sorted(era.files & files.changed)
    ]  # fmt: skip
    left = tuple(era for era in files.eras if era not in closed)
    gone = tuple(one for one in files.gone or () if not any(era.meets(one) for era in closed))
    return replace(files, eras=left, gone=gone, stale=frozenset(era.cluster for era in left), late=tuple(notes))


def _came_late(file: str, era: Era, newest: str, state: Row) -> str:
    days = era.first if era.first == era.last else f"{era.first} to {era.last}"
    came = f"{state['events'] or 0} lines of {file}, of {days}, came or changed when {newest} was known"
    return f"{came}: too late for `watch`, they are in no conclusion until `report` is run"


def _by_file(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["file"]].append(row)
    return found


def _state(rows: Collection[Row] | None) -> str | None:
    return next((str(row["state"]) for row in rows or ()), None)


def _clusters(engine: Engine, workspace: Workspace, names: Collection[str]) -> Mapping[str, set[str]]:
    """Of the rows of some files."""
    found: dict[str, set[str]] = defaultdict(set)
    if names:
        workspace.load(engine, "events_raw")
        engine.table("changed_files", "file string", [{"file": name} for name in sorted(names)])
        some = "file in (select file from changed_files)"
        for row in engine.rows(f"select distinct file, coalesce(cluster, '') as cluster from events_raw where {some}"):
            found[row["file"]].add(row["cluster"])
    return found


def remember(engine: Engine, workspace: Workspace, rows: Iterable[Row]) -> None:
    """Of which state of the files the tables are; without rows: of none."""
    engine.keep(workspace.path("watched"), WATCHED, sorted(rows, key=lambda row: (row["file"], row["cluster"])))


@dataclass(frozen=True)
class Incidents:
    """Rows of `incidents` by time: all, those that were not there before, those that are not what they were."""

    now: list[Row]
    new: list[Row]
    changed: list[Row]


def incidents(engine: Engine, workspace: Workspace) -> Incidents:
    workspace.load(engine, "incidents")
    now = sorted(engine.rows("select * from incidents"), key=lambda row: (row["begin"], row["incident"]))
    told = {row["incident"]: row["state"] for row in _rows(engine, workspace, "announced", ANNOUNCED)}
    new = [row for row in now if row["incident"] not in told]
    changed = [row for row in now if told.get(row["incident"], _digest(row)) != _digest(row)]
    return Incidents(now, new, changed)


def announced(engine: Engine, workspace: Workspace, rows: Iterable[Row]) -> None:
    """They have been told."""
    told = [{"incident": row["incident"], "state": _digest(row)} for row in rows]
    engine.keep(workspace.path("announced"), ANNOUNCED, told)


def _rows(engine: Engine, workspace: Workspace, table: str, columns: str) -> list[Row]:
    """What was written before there was a column has NULL there."""
    if not workspace.has(engine, table):
        return []
    engine.load(table, workspace.path(table), columns)
    return engine.rows(f"select * from {table}")


def _digest(value: Any) -> str:
    """The same for both engines: what Arrow gives."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:24]
