"""`failover-report fleet`: many incidents together.  Shell around `fleet.job`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.cli import common, engines, output, values
from spark_jobs.cli.errors import OK

if TYPE_CHECKING:
    from spark_jobs.fleet.summary import FleetSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="OUT of reports, folders of them, or URLs")
    add = parser.add_argument_group("which").add_argument
    add("--since", type=values.moment, metavar="TIME", help="incidents from then on, as 2026-01-01")
    add("--until", type=values.moment, metavar="TIME", help="incidents before then")
    add("--split", type=values.split, metavar="TIME|version", help="compare before with after, or versions")
    add("--near", type=values.duration, default=values.duration("50ms"), metavar="DUR",
        help="a dual primary that was missed by less is told (50ms)")  # fmt: skip
    add("--seed", type=values.count, default=1, metavar="N", help="of the intervals' random samples (%(default)s)")
    add = parser.add_argument_group("output").add_argument
    add("-o", "--output", required=True, type=Path, metavar="OUT", help="folder, or a file .html, .md or .json")
    add("--work", metavar="PLACE", help="keeps the incidents of all runs, so that an input is needed but once")
    add("--json", action="store_true", help="print what was found as JSON")
    common.add_progress(add)
    engines.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    common.check_inputs(options.inputs)
    with engines.opened(options) as engine, common.progress(options.progress) as progress:
        from spark_jobs.fleet import job  # not before it is known that the engine's packages are here
        from spark_jobs.workspace import Workspace

        kept = Workspace(options.work) if options.work else None
        found = job.run(engine, options.inputs, settings(options), kept, progress)
    from spark_jobs.report import fleet as page

    written = page.write(found, options.output)
    shown = [page.text(found)] if options.json else [page.table(found), *(f"see {path}" for path in written[:1])]
    output.show([text.rstrip("\n") for text in shown])
    return OK


def settings(options: argparse.Namespace) -> FleetSettings:
    from spark_jobs.fleet.summary import FleetSettings

    return FleetSettings(
        since=options.since, until=options.until, split=options.split, near_ms=options.near / 1000, seed=options.seed
    )
