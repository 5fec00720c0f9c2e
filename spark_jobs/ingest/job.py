"""The job `ingest`: files of any number of inputs → events_raw, files, faults, notes.

Theory.  A row's key is (file, line_no).  The table `catalog` records the state of each file, so a second run reads only
what is new: lines behind the last whole one of a segment, and all text logs of a cluster if one of them has
changed, because they date each other.  events_raw is a folder of Parquet files, and the catalog says which count:

    rows of whole lines of segments      written once, never touched again
    rows of one text log, or of a        a file of their own (of tasks: one for a run), which a later run may replace: a
    segment's unfinished last line       line that was torn may be whole then

The catalog is written at once; files that it does not name (a run was cut off) are removed by the next run.  So every
run may be repeated, and two runs at once on one workspace are a mistake.

Where the work is done: paths are read by this process' threads, whatever the engine (on a cluster the driver then sends
finished Parquet, nothing event-sized goes through its memory); URLs (s3a://, hdfs://, file://) are read by Spark's
tasks.  events_raw is not partitioned: one incident is one cluster and one day, and in a fleet the files that each run
adds hold few clusters and times each, so Parquet's statistics find them; folders for (cluster, date) would cut runs
into thousands of tiny files.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spark_jobs import schema
from spark_jobs.bundle import Progress
from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine, Row, Written
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.ingest import given as ingest_given
from spark_jobs.ingest import local as ingest_local
from spark_jobs.ingest import twice
from spark_jobs.ingest.given import IngestError
from spark_jobs.ingest.local import IngestSettings, Outcome
from spark_jobs.ingest.plan import UNREAD, Found, labels
from spark_jobs.ingest.tables import Catalog
from spark_jobs.schema import APART, LATE
from spark_jobs.sql.rows import quoted
from spark_jobs.workspace import DELTA, PARQUET, Workspace

EVENTS: Final = "events_raw"
JOINED: Final = 128 * 1024 * 1024
DAY: Final = 86_400_000_000
_OURS: Final = re.compile(r"r\d{5}-")
_SHOWN: Final = 5


@dataclass(frozen=True)
class Ingested:
    """`files`, `lines`, `events`: of all that was read into the workspace; `added`: events that this run brought (less
    than none if a text log is covered now); `changed`: events_raw is not what it was; `refused`: (name, why)."""

    files: int
    lines: int
    events: int
    added: int
    changed: bool
    refused: list[tuple[str, str]]


def run(
    engine: Engine,
    workspace: Workspace,
    inputs: Sequence[str],
    settings: IngestSettings | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """`progress`: octets of input that were read, of how many.

    Raises IngestError, BundleError (an input that cannot be read), ZoneError, WrongVersion."""
    if not inputs:
        raise IngestError("no input, wanted at least one folder, tarball, file or URL")
    workspace.begin(engine)
    catalog = Catalog.load(engine, workspace)
    _sweep(engine, workspace, catalog)
    before = _events(catalog)
    given, paths, urls = ingest_given.sorted_out(engine, inputs)
    changed = ingest_given.add(engine, catalog, given)
    reading = _Reading(engine, workspace.path(EVENTS), catalog, settings or IngestSettings(), progress)
    changed |= bool(paths) and reading.paths(labels(paths))
    changed |= bool(urls) and reading.urls(labels(urls))
    return _done(engine, workspace, catalog, before, changed)


def _done(engine: Engine, workspace: Workspace, catalog: Catalog, before: int, changed: bool) -> Ingested:
    if changed:
        twice.drop(engine, workspace.path(EVENTS), catalog, _prefix(catalog))
    if not catalog.parts and workspace.format == PARQUET:  # so that there is a table
        engine.keep(workspace.path(EVENTS), schema.ddl(), [])
        catalog.parts = engine.parts(workspace.path(EVENTS))
    catalog.save(engine, workspace)
    workspace.published(engine, EVENTS, catalog.parts)
    _sweep(engine, workspace, catalog)
    workspace.load(engine, EVENTS)
    states = catalog.files.values()
    read = [state for state in states if state.state not in UNREAD]
    refused = [(state.name, state.why or "") for state in states if state.state in ("refused", "damaged")]
    after = _events(catalog)
    return Ingested(len(read), sum(state.lines for state in read), after, after - before, changed, sorted(refused))


def _events(catalog: Catalog) -> int:
    return sum(state.events - state.covered for state in catalog.files.values())


def _sweep(engine: Engine, workspace: Workspace, catalog: Catalog) -> None:
    """Removes what does not count: replaced in this run, or left by one that was cut off.  Of Delta tables `maintain`
    does, since snapshots have it."""
    if workspace.format == DELTA:
        return
    found = [name for name in engine.parts(workspace.path(EVENTS)) if _OURS.match(name)]
    engine.drop(workspace.path(EVENTS), [name for name in found if name not in catalog.parts])


def tidy(engine: Engine, workspace: Workspace, before: int | None, size: int = JOINED) -> tuple[int, int]:
    """Of a Delta table: files go whose rows are all from `before` a time (µs); those of one day that are smaller than
    `size` octets together become one.  How many went and were joined."""
    catalog, path = Catalog.load(engine, workspace), workspace.path(EVENTS)
    spans = delta.spans(path, "ts_wall")
    old = {name for name in catalog.parts if name in spans and before is not None and spans[name][1] < before}
    catalog.files = {
        name: replace(state, part=None if state.part in old else state.part) for name, state in catalog.files.items()
    }
    catalog.parts = [name for name in catalog.parts if name not in old]
    joined = 0
    for number, names in enumerate(_small(engine, path, catalog, spans, size)):
        delta.load(engine, "small_parts", path, schema.ddl(), only=names)
        made = engine.append("select * from small_parts", path, f"{_prefix(catalog)}-joined-{number}")
        catalog.parts = [name for name in catalog.parts if name not in names] + made
        joined += len(names)
    if old and before is not None:
        catalog.remove_before(before)
    if old or joined:
        catalog.save(engine, workspace)
        workspace.published(engine, EVENTS, catalog.parts)
    return len(old), joined


def _small(
    engine: Engine, path: str, catalog: Catalog, spans: Mapping[str, tuple[int, int]], size: int
) -> list[list[str]]:
    """Files of a day that nothing replaces any more, and that are small together."""
    pinned = {state.part for state in catalog.files.values()}
    days: dict[int, list[Written]] = {}
    for file in engine.written(path):
        if file.path in catalog.parts and file.path in spans and file.path not in pinned:
            days.setdefault(spans[file.path][1] // DAY, []).append(file)
    return [
        [file.path for file in files] for files in days.values()
        if len(files) > 1 and sum(file.size for file in files) < size
    ]  # fmt: skip


def late(engine: Engine, workspace: Workspace, rows: Iterable[Row], computed: Iterable[str] | None) -> None:
    """Names lines that came too late; those of files that have been computed now (None: of all) are so no longer."""
    catalog, new = Catalog.load(engine, workspace), [{**row, "certainty": LATE} for row in rows]
    old = [row for row in catalog.notes if row["certainty"] == LATE]
    known = {row["about"] for row in old} if computed is None else {*computed, *(row["about"] for row in new)}
    gone = [row for row in old if row["about"] in known]
    if gone or new:
        catalog.notes = [row for row in catalog.notes if row not in gone] + new
        catalog.save(engine, workspace)


def has_late(engine: Engine, workspace: Workspace) -> bool:
    """Are there lines that no conclusion knows?"""
    return any(row["certainty"] == LATE for row in Catalog.load(engine, workspace).notes)


# ---- reading --------------------------------------------------------------------------------------------------------


def _prefix(catalog: Catalog) -> str:
    """Numbers of runs go up, so names of parts never come again."""
    numbers = [int(name[1:6]) for name in catalog.parts if _OURS.match(name)]
    return f"r{max(numbers, default=0) + 1:05d}"


@dataclass(frozen=True)
class _Reading:
    """Reads inputs (path or URL → label) into `place`, and enters them into the catalog; each is True if events_raw has
    changed."""

    engine: Engine
    place: str
    catalog: Catalog
    settings: IngestSettings
    progress: Progress | None

    def paths(self, named: Mapping[str, str]) -> bool:
        scratch = Path(tempfile.mkdtemp(prefix="failover-report-", dir=self.settings.scratch))
        try:
            with ingest_local.Local(named, self.progress, scratch) as local:
                _something(local.found, named)
                known, prefix = self.catalog.files, _prefix(self.catalog)
                outcome = ingest_local.ingest(local, known, self.settings, scratch, prefix)
            self.engine.put([scratch / name for name in outcome.parts], self.place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return self._entered(outcome)

    def urls(self, named: Mapping[str, str]) -> bool:
        if not isinstance(self.engine, SparkEngine):
            raise IngestError(f"{next(iter(named))}: only Spark reads URLs")
        from spark_jobs.ingest.tasks import Tasks

        tasks = Tasks(self.engine, named, self.settings, self.place, _prefix(self.catalog))
        outcome = tasks.ingest(self.catalog.files, self.progress)
        _something(tasks.found, named)
        return self._entered(outcome)

    def _entered(self, outcome: Outcome) -> bool:
        catalog = self.catalog
        old = {name: catalog.files.pop(name) for name in outcome.replaced if name in catalog.files}
        stale = {state.part for state in old.values() if state.part}
        new = [*outcome.parts, *self._kept(stale)]
        catalog.files |= outcome.states
        catalog.parts = [name for name in catalog.parts if name not in stale] + new
        for name in old.keys() - outcome.states.keys():
            catalog.blame(name, ())
        for name, (since, faults) in outcome.faults.items():
            catalog.blame(name, faults, since)
        kept = (row for row in catalog.notes if row["certainty"] in APART or row["cluster"] not in outcome.notes)
        catalog.notes = [*kept, *(row for rows in outcome.notes.values() for row in rows)]
        return bool(new) or bool(stale)

    def _kept(self, stale: set[str]) -> list[str]:
        """Files that tasks wrote hold rows of several logs: those of logs that were not read again are written anew."""
        sharing = {name: state for name, state in self.catalog.files.items() if state.part in stale}
        made: list[str] = []
        for part in sorted({str(state.part) for state in sharing.values()}):
            mine = [name for name, state in sharing.items() if state.part == part]
            self.engine.load("stale_part", f"{self.place}/{part}")
            query = f"select * from stale_part where file in ({quoted(mine)})"
            names = self.engine.append(query, self.place, f"{part.split('.')[0]}k")
            made += names
            self.catalog.files |= {name: replace(self.catalog.files[name], part=names[0]) for name in mine}
        return made


def _something(found: Sequence[Found], named: Mapping[str, str]) -> None:
    """Raises IngestError for an input without any log."""
    for path, label in named.items():
        inside = [file for file in found if file.input == label]
        if any(file.kind for file in inside):
            continue
        why = "; ".join(f"{file.name}: {file.why or 'no log that we know'}" for file in inside[:_SHOWN]) or "empty"
        more = f"; and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
        raise IngestError(f"{path}: nothing that can be read ({why}{more})")
