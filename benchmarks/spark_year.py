"""`python -m benchmarks.spark_year`: a sampled year of a fleet: does a day cost the same at its end as at first?

On each of some days of the year every cluster has one incident, as in `benchmarks.spark`, but smaller.  After each day
`failover-report watch` takes what came, into Delta tables, and `maintain` drops what is older than is wanted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Final

import pyarrow as pa

from benchmarks import spark_segments
from benchmarks.run import describe_machine
from benchmarks.spark import ENGINES, Values, measured, say
from benchmarks.spark_data import T0, cluster, sizes
from benchmarks.spark_run import CORES
from benchmarks.tables import table

YEAR: Final = 365
FLAT: Final = 1.3
"""Of the last days and the first ones that have as much before them as is kept: noise of a shared machine is 10 to 20
%."""
_PROGRAM: Final = (sys.executable, "-m", "spark_jobs.main")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 when days became dearer, or an incident was not found."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-year-", dir=options.directory) as folder:
        rows = [_day(options, Path(folder), turn) for turn in range(options.days)]
    ratio = growth(rows, -(-options.retain * options.days // YEAR) + 1)
    heads = ["day of the year", "rows that came", "computed again", "incidents", "watch: s", "CPU s", "maintain: CPU s"]
    print(describe_machine() + "\n\n" + table(heads, [shown(row) for row in rows]))
    print(f"last days, next to the first full ones: {ratio:.2f} (at most {FLAT})")
    return 1 if ratio > FLAT or any(row["incidents"] != options.clusters for row in rows) else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_year", description=__doc__)
    add = parser.add_argument
    add("--clusters", type=int, default=100, help="of the fleet (%(default)s)")
    add("--days", type=int, default=12, help="of the year that are looked at (%(default)s)")
    add("--events", type=int, default=4000, help="of a cluster on such a day (%(default)s)")
    add("--retain", type=int, default=90, help="days (%(default)s)")
    add("--engine", choices=ENGINES, default="duckdb")
    add("--directory", type=Path, help="for the data (the temporary directory)")
    return parser.parse_args(arguments)


def growth(rows: Sequence[Values], full: int) -> float:
    """CPU of the last third, in parts of that of the first days that have as much before them as is kept; of days that
    are `full` on."""
    costs = [row["cpu"] + row["maintain"] for row in rows[min(full, len(rows) - 2) :]]
    third = max(1, len(costs) // 3)
    return mean(costs[-third:]) / mean(costs[:third])


def shown(row: Values) -> list[str]:
    return [*(f"{row[name]:.0f}" for name in ("day", "rows", "again", "incidents")),
            *(f"{row[name]:.1f}" for name in ("wall", "cpu", "maintain"))]  # fmt: skip


def _day(options: argparse.Namespace, folder: Path, turn: int) -> Values:
    day, raw, out = turn * YEAR // options.days, folder / "raw", folder / "out"
    for number in range(options.clusters):
        made, _ = cluster(day, *sizes(options.events, 1), seed=number)
        spark_segments.write(
            of_day(made, f"c{number:03d}", day), raw / f"cluster=c{number:03d}" / f"day{day:03d}", True
        )
    tables = ("--table-format", "delta", "--no-progress")
    engine = ("--engine", options.engine, "--threads", str(CORES))
    cost = measured([*_PROGRAM, "watch", str(raw), "-o", str(out), *tables, *engine])
    kept = datetime.fromtimestamp(T0 / 1_000_000, UTC) + timedelta(days=day - options.retain)
    when = ("--before", f"{kept:%Y-%m-%d}", "--snapshots", "0s")
    tidied = measured([*_PROGRAM, "maintain", str(out), *when, *engine])
    run = json.loads((out / "watch.jsonl").read_text().splitlines()[-1])
    found = {"day": day, **{name: run[name] for name in ("rows", "again", "incidents")}}
    say(f"day {day}: {cost['wall']:.1f} s, {cost['cpu']:.1f} CPU s, {found}")
    return {**cost, **found, "maintain": tidied["cpu"]}


def of_day(made: pa.Table, name: str, day: int) -> pa.Table:
    """As rows of a cluster and of processes of that day."""
    import pyarrow.compute as pc

    names = pa.array([name] * made.num_rows)
    procs = pc.binary_join_element_wise(made["proc"], f"day{day}", "-")
    made = made.set_column(made.schema.get_field_index("cluster"), "cluster", names)
    return made.set_column(made.schema.get_field_index("proc"), "proc", procs)


if __name__ == "__main__":
    sys.exit(main())
