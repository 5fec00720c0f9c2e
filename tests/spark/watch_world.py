"""Logs of a small fleet that come one after the other, and what the tables and documents are in the end."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from spark_jobs import pipeline
from spark_jobs.engine.base import Engine, Row
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.report import files as report
from spark_jobs.watch import job as watch
from spark_jobs.watch.job import Watched
from spark_jobs.workspace import Workspace
from tests.spark.truth.reading import MODIFIED
from tests.spark.truth.story import Story

SETTINGS = pipeline.Settings(zones={"*": "UTC"})
OF_THE_ENGINE = ("names", "message_lives", "slow_waits", "later_answers", "standstills")
"""Tables with an engine's own hashes."""
DAY = 86_400_000_000
CLUSTER = b'"made"'
"""What the stories call theirs."""


class Fleet:
    """`raw`: where logs come to; `out`: of the watch."""

    def __init__(self, place: Path) -> None:
        self.place, self.raw, self.out = place, place / "raw", place / "out"
        self.workspace = Workspace(str(self.out / "work"))
        self.checkpoint = str(place / "checkpoint")

    def lay(self, story: Story, cluster: str, wanted: Callable[[str], bool] = lambda name: True, days: int = 0) -> None:
        """The logs of a story as those of a cluster; `days` later as those of other processes (segments only)."""
        for name in filter(wanted, story.files):
            data = b"".join(story.files[name]).replace(CLUSTER, f'"{cluster}"'.encode())
            place = f"{name}" if not days else f"{Path(name).parent}/day{days}-{Path(name).name}"
            self.write(f"cluster={cluster}/{place}", later(data, days) if days else data)

    def write(self, name: str, data: bytes) -> Path:
        """Closed at once, as a shipper of segments has to do it."""
        path = self.raw / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}")
        beside.write_bytes(data)
        os.utime(beside, (MODIFIED / 1e6, MODIFIED / 1e6))
        beside.rename(path)
        return path

    def watch(self, engine: Engine | None = None) -> Watched:
        """One run, by a process that knows nothing of the others."""
        own = engine or DuckEngine(threads=2)
        try:
            return watch.run(own, self.workspace, [str(self.raw)], self.checkpoint, SETTINGS, out=self.out)
        finally:
            if engine is None:
                own.close()

    def found(self) -> dict[str, list[str]]:
        """All tables and documents as they are."""
        return answers(self.workspace, self.out)

    def at_once(self) -> dict[str, list[str]]:
        """As one report over everything says."""
        out = self.place / "at-once"
        engine, workspace = DuckEngine(threads=2), Workspace(str(out / "work"))
        assert pipeline.run(engine, workspace, [str(self.raw)], SETTINGS) == []
        report.write(engine, workspace, out, ("json",))
        engine.close()
        return answers(workspace, out)


def later(data: bytes, days: int) -> bytes:
    """Event lines of other processes, so many days later."""
    moved = re.sub(rb"\b178\d{13}\b", lambda found: b"%d" % (int(found[0]) + days * DAY), data)
    return re.sub(rb'"(proc|boot_id)": ?"', lambda found: b'"%b":"d%d-' % (found[1], days), moved)


def answers(workspace: Workspace, out: Path) -> dict[str, list[str]]:
    """Rows of each table in an order of their own, lines of each document."""
    engine = DuckEngine(threads=2)
    found = {}
    for table in ("events_raw", *pipeline.MADE):
        if table not in OF_THE_ENGINE:
            workspace.load(engine, table)
            found[table] = sorted(map(_text, engine.rows(f"select * from {table}")))
    engine.close()
    return found | {path.name: _lines(path) for path in sorted(out.glob("*.json"))}


def _text(row: Row) -> str:
    """A map is a list of pairs, in any order."""
    attrs = {"attrs": sorted(map(list, row["attrs"] or ()))} if "attrs" in row else {}
    return json.dumps(row | attrs, sort_keys=True, default=str)


def _lines(document: Path) -> list[str]:
    """Without the place of the workspace."""
    return [line for line in document.read_text().splitlines() if '"workspace"' not in line]
