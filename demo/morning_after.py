"""Runs `failover-report` as a process over the logs of a demo run.                                       Shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.workspace import Workspace

TIME: Final = 600.0
"""Seconds; a report takes some."""


class ReportFailed(Exception):
    """The text is the output of `failover-report`."""


def engine() -> str:
    """Spark wherever it can run."""
    return "spark" if shutil.which("java") else "duckdb"


def report(inputs: Sequence[Path], out: Path, *options: str) -> dict[str, Any]:
    """Writes the report of these logs; returns report.json.  Raises ReportFailed."""
    _run("report", *map(str, inputs), "-o", str(out), *options)
    overview: dict[str, Any] = json.loads((out / "report.json").read_text())
    return overview


def check(out: Path, *limits: str) -> list[str]:
    """The text for a broken limit; empty if none is.  Raises ReportFailed if they cannot be compared."""
    done = _run("check", str(out), *limits, fine=(0, 1))
    return done.stdout.splitlines() if done.returncode else []


def rows(out: Path, table: str) -> list[dict[str, Any]]:
    """A table that a report is made of."""
    engine = DuckEngine(threads=1)
    try:
        Workspace(str(out / "work")).load(engine, table)
        return engine.rows(f"select * from {table}")
    finally:
        engine.close()


SAME: Final = {
    "attempted": "attempts", "confirmed": "confirmed", "lost": "lost", "unaccounted": "unaccounted",
    "unexpected": "unexpected", "duplicated": "duplicated", "unmarked": "unmarked", "recovered": "recovered",
}  # fmt: skip
"""The checker's counts, and their names in the report."""


def differences(overview: Mapping[str, Any], counted: Mapping[str, int]) -> list[str]:
    """Where the report counts other than the run's own checker did."""
    total = (overview["messages"] or {}).get("total", {})
    return [
        f"{name} {total.get(ours)}, but the checker of this run counted {counted[name]}"
        for name, ours in SAME.items()
        if total.get(ours) != counted[name]
    ]


def headlines(overview: Mapping[str, Any]) -> list[str]:
    """The first sentence of each incident."""
    return [f"  {row['number']}. {row['words'][0]}" for row in overview["incidents"]]


def _run(*words: str, fine: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_jobs.main", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ReportFailed(f"no report within {TIME:g} s") from None
    if done.returncode not in fine:
        raise ReportFailed(done.stderr.strip() or done.stdout.strip() or f"ended with {done.returncode}")
    return done
