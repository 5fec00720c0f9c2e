"""`failover-report watch`: reports what is new since the last call; for cron.  Shell around `watch.job`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_jobs.cli import common, engines, output, values
from spark_jobs.cli.errors import OK, UserError

RUNS: Final = "watch.jsonl"
"""A line for each run: at (s since 1970), seconds, segments, rows that came, rows that were computed `again`,
incidents, files that came too `late`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_reading(parser)
    common.add_output(parser, formats=False)
    add = parser.add_argument_group("stream").add_argument
    add("--checkpoint", metavar="PLACE", help="where Spark keeps what it has read (below the tables)")
    add("--late", type=values.days, metavar="DUR",
        help="of delta tables: days that ended so long before their cluster's newest line are closed, as 30d; what "
             "comes for them is counted, named, and computed by `report` (none is closed)")  # fmt: skip
    engines.add_arguments(parser, engines.SPARK)  # of a stream, which goes on where it was


def run(options: argparse.Namespace) -> int:
    common.check_inputs(options.inputs)
    out = common.folder(options.output)
    with engines.opened(options) as engine, common.progress(options.progress) as progress:
        from spark_jobs.watch import job  # not before it is known that the engine's packages are here
        from spark_jobs.workspace import alone

        workspace = common.workspace(options, engine)
        checkpoint = options.checkpoint or f"{workspace.place}/checkpoint"
        begun = time.time()
        late = None if options.late is None else options.late // values.UNITS["d"]
        if late is not None and workspace.format != common.FORMATS_OF_TABLES[1]:
            raise UserError(f"--late: the tables are {workspace.format}, expected --table-format delta")
        given = common.settings(options)
        with alone(workspace.place):
            found = job.run(engine, workspace, options.inputs, checkpoint, given, progress, out, late=late)
    measured = {"segments": found.segments, "rows": found.rows, "again": found.again, "incidents": len(found.new)}
    measured |= {"late": len(found.late)}
    _noted(out / RUNS, {"at": round(begun), "seconds": round(time.time() - begun, 2), **measured})
    if options.json:
        output.show([output.as_json({**measured, "new": found.new, "too_late": found.late})])
    elif found.lines():
        output.show(found.lines())
    return OK


def _noted(path: Path, run: Mapping[str, float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")
