"""`failover-report watch`: reports what is new since the last call; for cron.  Shell around `watch.job`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_jobs.cli import common, engines, output
from spark_jobs.cli.errors import OK

RUNS: Final = "watch.jsonl"
"""A line for each run: at (s since 1970), seconds, segments, rows that came, rows that were computed `again`,
incidents."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_reading(parser)
    common.add_output(parser, formats=False)
    add = parser.add_argument_group("stream").add_argument
    add("--checkpoint", metavar="PLACE", help="where Spark keeps what it has read (below the tables)")
    engines.add_arguments(parser, engines.SPARK)  # of a stream, which goes on where it was


def run(options: argparse.Namespace) -> int:
    common.check_inputs(options.inputs)
    out = common.folder(options.output)
    with engines.opened(options) as engine, common.progress(options.progress) as progress:
        from spark_jobs.watch import job  # not before it is known that the engine's packages are here

        workspace = common.workspace(options, engine)
        checkpoint = options.checkpoint or f"{workspace.place}/checkpoint"
        begun = time.time()
        found = job.run(engine, workspace, options.inputs, checkpoint, common.settings(options), progress, out)
    measured = {"segments": found.segments, "rows": found.rows, "again": found.again, "incidents": len(found.new)}
    _noted(out / RUNS, {"at": round(begun), "seconds": round(time.time() - begun, 2), **measured})
    if options.json:
        output.show([output.as_json({**measured, "new": found.new})])
    elif found.new:
        output.show(found.lines())
    return OK


def _noted(path: Path, run: Mapping[str, float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")
