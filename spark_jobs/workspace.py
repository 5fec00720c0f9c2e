"""A workspace: a folder (local or s3a://) of Parquet tables, each a folder of its own.

The table `about` says which version of the layout it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_jobs.engine.base import Engine
from spark_jobs.schema import NAMES, VERSION, ddl

TABLES: Final = frozenset(
    {"about", "events_raw", "clock_segments", "events", "incidents", "phases", "takings", "pairs"}
    | {"message_lives", "message_verdicts", "message_summary", "outages", "outage_union"}
    | {"slow_waits", "queue_sights", "standstills", "consumer_moments"}
    | {"primary_spans", "dual", "hints", "gaps", "fleet", "budget", "near_misses", "resources"}
    | {"files", "faults", "notes", "facts"}
    | {"catalog", "files", "faults", "notes", "given"}
    | {"watched", "announced"}
    | {"incident_outages", "steps", "scratch"}
    | {"clocks_failures", "order_failures", "incidents_failures", "gaps_failures"}
)


class WrongVersion(ValueError):
    """The workspace was written by a program with another layout."""


@dataclass(frozen=True)
class Workspace:
    """`place`: the folder."""

    place: str

    def path(self, table: str) -> str:
        """Raises ValueError for a table that no job knows."""
        if table not in TABLES:
            raise ValueError(f"table {table!r}, wanted one of {', '.join(sorted(TABLES))}")
        return f"{self.place.rstrip('/')}/{table}"

    def has(self, engine: Engine, table: str) -> bool:
        return engine.exists(self.path(table))

    def load(self, engine: Engine, *tables: str) -> None:
        """Views with the tables' names; raises FileNotFoundError."""
        for table in tables:
            engine.load(table, self.path(table), ddl() if table == "events_raw" else None)
            if table == "events_raw" and self.has(engine, "given"):
                self._with_given(engine)

    def _with_given(self, engine: Engine) -> None:
        """Folders of Parquet that are events already are read where they lie."""
        engine.load("given", self.path("given"))
        paths = [self.path("events_raw"), *(str(row["path"]) for row in engine.rows("select path from given"))]
        for number, path in enumerate(paths):
            engine.load(f"events_raw_{number}", path)
        parts = (f"select {', '.join(NAMES)} from events_raw_{number}" for number in range(len(paths)))
        engine.view("events_raw", " union all ".join(parts))

    def save(self, engine: Engine, table: str, query: str, partitions: tuple[str, ...] = ()) -> None:
        """Write it, and load what was written, so that later queries do not compute it again."""
        engine.save(query, self.path(table), partitions)
        engine.load(table, self.path(table))

    def begin(self, engine: Engine) -> None:
        """Write the version, or check it; raises WrongVersion."""
        if not self.has(engine, "about"):
            engine.keep(self.path("about"), "version string", [{"version": VERSION}])
            return
        engine.load("about", self.path("about"))
        found = [str(row["version"]) for row in engine.rows("select version from about")]
        if [version.split(".")[0] for version in found] != [VERSION.split(".")[0]]:
            raise WrongVersion(f"{self.place}: version {', '.join(found) or 'none'}, wanted {VERSION}")
