"""Some clusters of a workspace, computed apart and put back: what is known of the others stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine
from spark_jobs.workspace import DELTA, Workspace

FOLDER: Final = "part"
"""Of the workspace, for what is computed apart."""
GIVEN: Final = frozenset({"events_raw", "files", "notes"})
"""What ingest wrote, and jobs read."""
MOMENTS: Final = {
    "facts": "ts_wall", "pairs": "sent", "clock_segments": "t0", "events": "ts_est", "takings": "first_ts",
    "message_lives": "coalesce(sent, delivered, confirmed)", "outages": "ts_begin", "primary_spans": "from_est",
    "message_verdicts": "coalesce(sent, delivered, confirmed)", "gaps": "{begin}",
}  # fmt: skip
"""Table → µs of a row's day, if no incident says it."""


@dataclass(frozen=True)
class Part(Workspace):
    """`place` gets the tables that are made; what ingest wrote is read from `whole`, and of that only `clusters`; None:
    all."""

    whole: Workspace
    clusters: tuple[str, ...] | None

    def has(self, engine: Engine, table: str) -> bool:
        return self.whole.has(engine, table) if table in GIVEN else super().has(engine, table)

    def load(self, engine: Engine, *tables: str) -> None:
        for table in tables:
            if table in GIVEN:
                self.whole.load(engine, table)
                if self.clusters is not None:
                    engine.narrow(table, among(self.clusters))
            else:
                super().load(engine, table)


def of(workspace: Workspace, clusters: Iterable[str] | None = None) -> Part:
    place = f"{workspace.place.rstrip('/')}/{FOLDER}"
    return Part(place, workspace, None if clusters is None else tuple(sorted(clusters)))


def among(clusters: Iterable[str]) -> str:
    """Condition; rows that name no cluster are of the one without a name."""
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in clusters)
    return f"coalesce(cluster, '') in ({listed})"


def merge(engine: Engine, part: Part, tables: Iterable[str]) -> None:
    """The part's tables in place of what the whole had of its clusters.

    A job that is interrupted here must compute everything anew: of the tables some may be replaced.  A table is
    replaced at once; one of plain Parquet by Spark is not."""
    engine.view("days", "select cast(null as string) as of_incident, cast(null as string) as day where 1 = 0")
    for table in sorted(tables, key=lambda name: name != "incidents"):
        engine.load("made", part.path(table))
        if part.whole.format == DELTA:
            _replace(engine, part, table)
        else:
            _rewrite(engine, part, table)


def _replace(engine: Engine, part: Part, table: str) -> None:
    """Folders of the part's clusters, in one commit."""
    if table == "incidents":
        rows = engine.rows(f"select incident as of_incident, {_day(engine, '{begin}')} as day from made")
        engine.table("days", "of_incident string, day string", rows)
    own = _day(engine, MOMENTS[table]) if table in MOMENTS else "cast(null as string)"
    dated = f"select *, {own} as date from made"
    if "incident" in engine.columns("made"):
        joined = "made left join days on of_incident = incident"
        dated = f"select made.*, coalesce(day, {own}) as date from {joined}"
    engine.view("dated", dated)
    gone = part.clusters
    delta.replace(engine, "dated", part.whole.path(table), lambda name, _: gone is None or (name or "") in gone)


def _day(engine: Engine, moment: str) -> str:
    return engine.dialect.day(moment.format(begin=engine.dialect.name("begin")))


def _rewrite(engine: Engine, part: Part, table: str) -> None:
    query = "select * from made"
    if part.whole.has(engine, table):
        part.whole.load(engine, table)
        kept = "1 = 0" if part.clusters is None else f"not ({among(part.clusters)})"
        query += f" union all select * from {table} where {kept}"
    engine.save(query, part.path("scratch"))  # first under another name: Spark cannot replace a table that it reads
    engine.load("merged", part.path("scratch"))
    part.whole.save(engine, table, "select * from merged")
