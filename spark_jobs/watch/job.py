"""What has happened since the last time, from cron: new closed segments and grown text logs → the same workspace.

    take      closed segments, batch by batch as Spark's file stream gives them; then whatever else `ingest` finds to be
              new: text logs that have grown, tarballs, what the stream gave to a workspace that is no more; with
              DuckDB this is all
    compute   only the clusters of files that have changed, apart, and put back (`part`)
    tell      incidents that were not there the last time; the report's documents, if anything has changed

Each step may be interrupted.  Rows are keyed by (file, line_no), so what is taken twice is there once.  The table
`watched` says of which state of each file the other tables were made: it is emptied before any of them is replaced and
written when all of them are there, so a run that finds it empty computes everything.  `announced` is written last: an
incident is told once, or again if its telling was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from spark_jobs import pipeline
from spark_jobs.engine.base import Engine, Row
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.ingest import job as ingest
from spark_jobs.ingest.local import IngestSettings
from spark_jobs.ingest.plan import Found
from spark_jobs.jobs import part as jobs_part
from spark_jobs.pipeline import Settings
from spark_jobs.progress import QUIET, Progress
from spark_jobs.report import files as report
from spark_jobs.report.headline import title
from spark_jobs.report.units import clock, date, duration
from spark_jobs.watch import memory as watch_memory
from spark_jobs.watch import stream as watch_stream
from spark_jobs.watch.memory import Files
from spark_jobs.workspace import Workspace

OVERVIEW: Final = "report.json"
SHOWN: Final = 20
"""Files that came too late; the report has all."""


@dataclass(frozen=True)
class Watched:
    """`segments`: closed ones that were new, or had grown.  `rows`: that were added.  `clusters`: computed again, with
    so many rows (`again`).  `new`, `changed`: rows of `incidents`, by time.  `late`: what came too late, in words."""

    segments: int = 0
    rows: int = 0
    clusters: tuple[str, ...] = ()
    again: int = 0
    new: list[Row] = field(default_factory=list)
    changed: list[Row] = field(default_factory=list)
    late: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For each new incident: when, where, what, how long; and what came too late."""
        more = [f"and {len(self.late) - SHOWN} more files that came too late"] if len(self.late) > SHOWN else []
        return [*map(line, self.new), *self.late[:SHOWN], *more]


def line(row: Row) -> str:
    """`2026-11-21 01:55:04 blue: partition, node1 → node2, 2.28 s`"""
    took = "not over" if row["total_us"] is None else duration(row["total_us"])
    return f"{date(row['begin'])} {clock(row['begin'], 0)} {row['cluster']}: {title(row)}, {took}"


def run(
    engine: Engine,
    workspace: Workspace,
    inputs: Sequence[str],
    checkpoint: str,
    settings: Settings,
    progress: Progress = QUIET,
    out: Path | None = None,
    batch: int = watch_stream.BATCH,
    late: int | None = None,
) -> Watched:
    """Take what is new, compute what it changes, write the report into `out`.

    `checkpoint`: folder of the stream's, for Spark; `batch`: files that it gives at once; `late`: days that ended so
    many before the newest of their cluster are closed, in Delta tables.  Raises what `ingest.run` does."""
    progress.step("files")
    rows = take(engine, workspace, inputs, checkpoint, settings, progress, batch)
    found = watch_memory.files(engine, workspace, settings.digest(), late)
    if not found.now:
        return Watched()
    if found.changed:
        _compute(engine, workspace, settings, progress, found)
        ingest.late(engine, workspace, found.late, {file for era in found.eras for file in era.files})
    incidents = watch_memory.incidents(engine, workspace)
    if out is not None and (found.changed or incidents.new or not (out / OVERVIEW).exists()):
        report.write(engine, workspace, out)
    if found.changed:
        watch_memory.remember(engine, workspace, found.now)
        watch_memory.announced(engine, workspace, incidents.now)
    again = found.events if found.changed else 0
    told = tuple(f"{row['cluster']}: {row['text']}" for row in found.late)
    return Watched(found.segments, rows, tuple(sorted(found.stale)), again, incidents.new, incidents.changed, told)


# ---- take -----------------------------------------------------------------------------------------------------------


def take(
    engine: Engine,
    workspace: Workspace,
    inputs: Sequence[str],
    checkpoint: str,
    settings: Settings,
    progress: Progress,
    batch: int = watch_stream.BATCH,
) -> int:
    """Reads what is new into the workspace; how many rows were added."""
    given = IngestSettings(cluster=settings.cluster, zones=settings.zones)
    rows: list[int] = []

    def read(only: Callable[[Found], bool]) -> None:
        rows.append(ingest.run(engine, workspace, inputs, replace(given, only=only), progress.at).added)

    if isinstance(engine, SparkEngine):
        for place in (place for place in inputs if watch_stream.is_folder(engine, place)):
            watch_stream.run(engine.session, place, checkpoint, lambda paths: read(_among(paths)), batch)
    read(lambda found: not found.open)
    return sum(rows)


def _among(paths: Collection[str]) -> Callable[[Found], bool]:
    """Closed segments at these paths, and text logs, which say less where segments cover them."""
    chosen = frozenset(paths)
    return lambda found: not found.open and (not found.segment or watch_stream.plain(found.path) in chosen)


# ---- compute --------------------------------------------------------------------------------------------------------


def _compute(engine: Engine, workspace: Workspace, settings: Settings, progress: Progress, found: Files) -> None:
    if found.late and not found.eras:
        return
    if found.stale >= found.clusters and not found.eras:
        pipeline.after_ingest(engine, workspace, settings, progress)
        return
    if found.eras:
        parts = jobs_part.of_eras(workspace, found.eras, found.gone)
    else:
        parts = [jobs_part.of(workspace, found.stale)]
    pipeline.apart(engine, parts, settings, progress, lambda: watch_memory.remember(engine, workspace, ()))
