"""Some clusters of a workspace, computed apart and put back: what is known of the others stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_jobs.engine.base import Engine
from spark_jobs.workspace import Workspace

GIVEN: Final = frozenset({"events_raw", "files", "notes"})
"""What ingest wrote, and jobs read."""


@dataclass(frozen=True)
class Part(Workspace):
    """`place` gets the tables that are made; what ingest wrote is read from `whole`, and of that only `clusters`."""

    whole: Workspace
    clusters: tuple[str, ...]

    def has(self, engine: Engine, table: str) -> bool:
        return self.whole.has(engine, table) if table in GIVEN else super().has(engine, table)

    def load(self, engine: Engine, *tables: str) -> None:
        for table in tables:
            if table in GIVEN:
                self.whole.load(engine, table)
                engine.narrow(table, among(self.clusters))
            else:
                super().load(engine, table)


def among(clusters: Iterable[str]) -> str:
    """Condition; rows that name no cluster are of the one without a name."""
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in clusters)
    return f"coalesce(cluster, '') in ({listed})"


def merge(engine: Engine, part: Part, tables: Iterable[str]) -> None:
    """The part's tables in place of what the whole had of its clusters.

    A job that is interrupted here must compute everything anew: of the table that is being replaced only a part may be
    there."""
    for table in tables:
        engine.load("made", part.path(table))
        query = "select * from made"
        if part.whole.has(engine, table):
            part.whole.load(engine, table)
            query += f" union all select * from {table} where not ({among(part.clusters)})"
        engine.save(query, part.path("scratch"))  # first under another name: Spark cannot replace a table that it reads
        engine.load("merged", part.path("scratch"))
        part.whole.save(engine, table, "select * from merged")
