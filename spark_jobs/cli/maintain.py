"""`failover-report maintain`: tables of format delta stay small.  Shell around `jobs.maintain`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Final

from spark_jobs.cli import engines, output, values
from spark_jobs.cli.errors import OK, UserError

SNAPSHOTS: Final = "7d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="output of `report` or `watch`")
    add = parser.add_argument_group("what").add_argument
    old = parser.add_mutually_exclusive_group()
    old.add_argument("--retain", type=values.days, metavar="DUR", help="days that are older go, as 90d (all stay)")
    old.add_argument("--before", type=values.moment, metavar="DATE", help="days before it go, as 2026-01-31")
    add("--snapshots", type=values.duration, default=values.duration(SNAPSHOTS), metavar="DUR",
        help=f"so far back a table can be read as it was ({SNAPSHOTS})")  # fmt: skip
    add("--work", metavar="PLACE", help="where the tables are kept (OUT/work)")
    add("--json", action="store_true", help="print what was done as JSON")
    engines.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    place = options.work or str(options.out / "work")
    if "://" not in place and not Path(place).is_dir():
        raise UserError(f"{place}: no such folder, expected the tables of `report` or `watch`")
    with engines.opened(options, place) as engine:
        from spark_jobs import pipeline  # not before it is known that the engine's packages are here
        from spark_jobs.jobs import maintain
        from spark_jobs.workspace import alone, of_format

        workspace = of_format(engine, place)
        before = options.before if options.retain is None else time.time_ns() // 1000 - options.retain
        with alone(workspace.place):
            done = maintain.run(engine, workspace, pipeline.MADE, options.snapshots, before)
    if options.json:
        output.show([output.as_json(done)])
    else:
        sums = {name: sum(row[name] for row in done) for name in ("joined", "dropped", "removed")}
        output.show(
            [f"{sums['joined']} files joined, {sums['dropped']} old days or files dropped, {sums['removed']} removed"]
        )
    return OK
