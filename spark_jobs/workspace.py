"""A workspace: a folder (local or s3a://) of tables, each a folder of its own, of Parquet or of Delta.

The table `about` says which version of the layout it has, and which format.  Of format `delta` are the tables that
others read; what one run leaves to the next (catalog, steps, ..) is Parquet always.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spark_jobs.engine import delta
from spark_jobs.engine.base import Engine, Row
from spark_jobs.schema import NAMES, VERSION, ddl

TABLES: Final = frozenset(
    {"about", "events_raw", "clock_segments", "events", "incidents", "phases", "takings", "pairs"}
    | {"message_lives", "message_verdicts", "message_summary", "outages", "outage_union"}
    | {"names", "slow_waits", "later_answers", "producer_moments", "queue_sights", "standstills", "consumer_moments"}
    | {"primary_spans", "dual", "hints", "gaps", "fleet", "budget", "near_misses", "resources"}
    | {"catalog", "files", "faults", "notes", "given", "facts"}
    | {"watched", "announced"}
    | {"incident_outages", "steps", "scratch"}
    | {"clocks_failures", "order_failures", "incidents_failures", "gaps_failures"}
)

PARQUET, DELTA = "parquet", "delta"
_ABOUT: Final = "version string, format string"


class WrongVersion(ValueError):
    """The workspace was written by a program with another layout, or in another format than is wanted."""


@dataclass(frozen=True)
class Workspace:
    """`place`: the folder; `format`: of what is written, see `of_format`."""

    place: str
    format: str = field(default=PARQUET, kw_only=True)

    def path(self, table: str) -> str:
        """Raises ValueError for a table that no job knows."""
        if table not in TABLES:
            raise ValueError(f"table {table!r}, wanted one of {', '.join(sorted(TABLES))}")
        return f"{self.place.rstrip('/')}/{table}"

    def has(self, engine: Engine, table: str) -> bool:
        return engine.exists(self.path(table)) or delta.is_table(self.path(table))

    def load(self, engine: Engine, *tables: str) -> None:
        """Views with the tables' names; raises FileNotFoundError."""
        for table in tables:
            self._load(engine, table, table)
            if table == "events_raw" and self.has(engine, "given"):
                self._with_given(engine)

    def _load(self, engine: Engine, name: str, table: str) -> None:
        path, columns = self.path(table), ddl() if table == "events_raw" else None
        if delta.is_table(path):
            delta.load(engine, name, path, columns)
        else:
            engine.load(name, path, columns)

    def _with_given(self, engine: Engine) -> None:
        """Folders of Parquet that are events already are read where they lie."""
        engine.load("given", self.path("given"))
        paths = [str(row["path"]) for row in engine.rows("select path from given")]
        self._load(engine, "events_raw_0", "events_raw")
        for number, path in enumerate(paths, 1):
            engine.load(f"events_raw_{number}", path)
        parts = (f"select {', '.join(NAMES)} from events_raw_{number}" for number in range(len(paths) + 1))
        engine.view("events_raw", " union all ".join(parts))

    def save(self, engine: Engine, table: str, query: str) -> None:
        """Write it, and load what was written, so that later queries do not compute it again."""
        engine.save(query, self.path(table))
        engine.load(table, self.path(table))

    def published(self, engine: Engine, table: str, files: Sequence[str]) -> None:
        """Of a folder of Parquet just these files count; with plain Parquet all do, and there must be no others."""
        if self.format == DELTA:
            found = [file for file in engine.written(self.path(table)) if file.path in files]
            delta.name_files(self.path(table), found, ddl())

    def begin(self, engine: Engine) -> None:
        """Write version and format, or check them; raises WrongVersion."""
        found = _about(engine, self.place)
        if not found:
            engine.keep(self.path("about"), _ABOUT, [{"version": VERSION, "format": self.format}])
            return
        versions = [row["version"] for row in found]
        if [version.split(".")[0] for version in versions] != [VERSION.split(".")[0]]:
            raise WrongVersion(f"{self.place}: version {', '.join(versions)}, wanted {VERSION}")
        if (known := _format(found)) != self.format:
            raise WrongVersion(f"{self.place}: the tables are {known}, wanted {self.format}: take another folder")


class Busy(ValueError):
    """Another run works on the same tables."""


@contextmanager
def alone(place: str) -> Iterator[None]:
    """No other run on this machine works on the tables meanwhile; of a bucket nobody knows.  Raises Busy."""
    if "://" in place and not place.startswith("file://"):
        yield
        return
    folder = Path("/" + place.removeprefix("file://").lstrip("/")) if "://" in place else Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{place}: another run works on these tables, wait until it has ended") from None
        yield


def of_format(engine: Engine, place: str, wanted: str | None = None) -> Workspace:
    """In the format that it has; a new one in the `wanted` one.  `begin` refuses if they differ."""
    found = _about(engine, place)
    return Workspace(place, format=wanted or (_format(found) if found else PARQUET))


def _about(engine: Engine, place: str) -> list[Row]:
    path = Workspace(place).path("about")
    if not engine.exists(path):
        return []
    engine.load("about", path, _ABOUT)  # the first version of it had no format
    return engine.rows("select version, format from about") or [{"version": "none", "format": None}]


def _format(about: Sequence[Row]) -> str:
    return about[0]["format"] or PARQUET
