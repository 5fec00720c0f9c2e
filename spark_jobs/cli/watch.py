"""`failover-report watch`: reports what is new since the last call; for cron.  Shell around `watch.job`."""

from __future__ import annotations

import argparse
from typing import Final

from spark_jobs.cli import common, engines, output
from spark_jobs.cli.errors import OK

HELP: Final = "read what is new, say what has happened; for cron"
DESCRIPTION: Final = """\
Read the segments that were closed since the last call, compute again the clusters that they belong to, and print one
line for each new incident.  Nothing new: nothing is printed.  Meant for cron, or a timer."""
EXAMPLES: Final = """\
  failover-report watch /var/lib/qpidd/events clients/ -o out --engine duckdb
  failover-report watch s3a://bucket/clusters/ -o out --checkpoint s3a://bucket/checkpoint/"""


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
        found = job.run(engine, workspace, options.inputs, checkpoint, common.settings(options), progress, out)
    if options.json:
        output.show([output.as_json({"segments": found.segments, "rows": found.rows, "new": found.new})])
    elif found.new:
        output.show(found.lines())
    return OK
