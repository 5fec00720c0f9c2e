"""The job `fleet`: the incidents of many reports and workspaces -> the table `fleet`, and the fleet document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from spark_jobs.engine.base import Engine, Row
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.fleet import inputs as fleet_inputs
from spark_jobs.fleet.inputs import FleetError, FleetInputs, RefusedInput
from spark_jobs.fleet.record import COLUMNS, merged, record
from spark_jobs.fleet.summary import FleetSettings, summary
from spark_jobs.progress import QUIET, Progress
from spark_jobs.report.document import Report
from spark_jobs.workspace import Workspace

STEPS = ("read incidents", "compare")


def run(
    engine: Engine,
    places: Sequence[str],
    settings: FleetSettings | None = None,
    workspace: Workspace | None = None,
    progress: Progress = QUIET,
) -> dict[str, Any]:
    """The fleet document of all incidents in `places`, and of those that the table `fleet` of `workspace` has from
    earlier runs; it keeps them all.  What is no document is listed in `refused`.

    Raises FileNotFoundError and FleetError (nothing to read; nothing but what is no document)."""
    progress.step(STEPS[0])
    rows: list[Row] = []
    refused: list[RefusedInput] = []
    for found in _read(engine, fleet_inputs.look(engine, places), progress):
        if isinstance(found, RefusedInput):
            refused.append(found)
        else:
            rows.append(found)
    if refused and not rows:
        first = refused[0]
        raise FleetError(f"{first.place}: {first.why}" + (f" (and {len(refused) - 1} more)" if refused[1:] else ""))
    if workspace is not None:
        rows = _kept(engine, workspace, rows)
    progress.step(STEPS[1])
    named = sorted((PurePosixPath(item.place).name, item.why) for item in refused)
    return summary(rows, settings) | {"refused": [{"file": name, "why": why} for name, why in named]}


def _read(engine: Engine, found: FleetInputs, progress: Progress) -> Iterator[Row | RefusedInput]:
    total = len(found.documents) + len(found.workspaces) + len(found.urls)
    if not total and not found.reports:
        raise FleetError("no incident in what was given: wanted folders with incident-N.json, or workspaces")
    for number, place in enumerate(found.documents):
        progress.at(number, total)
        yield fleet_inputs.read(place)
    for number, place in enumerate(found.workspaces, len(found.documents)):
        progress.at(number, total)
        yield from map(record, Report(engine, Workspace(place)).documents())
    if found.urls and isinstance(engine, SparkEngine):
        yield from fleet_inputs.by_spark(engine, found.urls)
    progress.at(total, total)


def _kept(engine: Engine, workspace: Workspace, rows: list[Row]) -> list[Row]:
    """With those of earlier runs; the table is written anew."""
    workspace.begin(engine)
    if workspace.has(engine, "fleet"):
        workspace.load(engine, "fleet")
        rows = [*rows, *engine.rows("select * from fleet")]
    kept = merged(rows)
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    engine.table("fleet_rows", columns, kept)
    workspace.save(engine, "fleet", "select * from fleet_rows")
    return kept
