"""Spark for what is large, DuckDB in the driver for what is small.

Theory.  A question costs Spark a tenth of a second or more, however few rows it is about, and most tables of a report
are small.  So a table of at most SMALL octets is *near*: DuckDB reads its files here, and answers what is asked of near
tables only.  Events are Spark's, however few.  A question that names one of Spark's tables is Spark's; the near ones
that it names are lent to it, which then knows how small they are.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from spark_jobs.engine.base import ROWS_MAX, Row, Written
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.large import Large

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

SMALL: Final = 64 * 1024 * 1024
"""Octets of compressed Parquet."""
FITS: Final = 5_000_000
"""Events of a cluster that a single task computes, see `jobs.spread`."""
EVENTS: Final = "/events_raw"
_READ: Final = re.compile(r"\b(?:from|join)\s+(\w+)", re.IGNORECASE)


class SparkEngine(Large):
    """`own`: the context ends with the engine.  `threads` of DuckDB; None: one for each core.  `small`, `fits`: see
    SMALL, FITS; 0: all is Spark's."""

    def __init__(
        self,
        context: SparkContext,
        own: bool = False,
        threads: int | None = None,
        small: int = SMALL,
        fits: int = FITS,
    ) -> None:
        super().__init__(context, own)
        self._large = Large(context)
        self._copies = TemporaryDirectory(prefix="failover-report-")
        self._duck = DuckEngine(threads=threads, scratch=Path(self._copies.name))
        self._small = small
        self.fits = fits
        self._near: dict[str, bool] = {}  # name → Spark has it, too
        self._far: set[str] = set()

    def large(self, *views: str) -> Large:
        """Its views have the names of ours: what was lent may be another one's afterwards."""
        self._lend(" ".join(f"from {name}" for name in views))
        self._near = dict.fromkeys(self._near, False)
        return self._large

    def load(self, name: str, path: str, columns: str | None = None) -> None:
        place = self._disk(path)
        if place is None:
            super().load(name, path, columns)
            return
        if not self.exists(path):
            raise FileNotFoundError(f"{path}: no such table")
        self._duck.load(name, place, columns)
        self._is_near(name)

    def load_files(self, name: str, path: str, files: Sequence[str], columns: str) -> None:
        place = self._disk(path)
        if place is None:
            super().load_files(name, path, files, columns)
        else:
            self._duck.load_files(name, place, files, columns)
            self._is_near(name)

    def save(self, query: str, path: str) -> None:
        if self._asks_spark(query):
            super().save(query, path)
        else:
            self._alone(path, self._duck.arrow(query))
            self._columns.pop(path, None)

    def append(self, query: str, path: str, prefix: str) -> list[str]:
        if self._asks_spark(query):
            return super().append(query, path, prefix)
        self._written(path, self._duck.arrow(query), f"{prefix}.parquet")
        return [f"{prefix}.parquet"]

    def spread(self, query: str, path: str, folders: Sequence[str]) -> list[Written]:
        self._lend(query)
        return super().spread(query, path, folders)

    def ddl(self, name: str) -> str:
        return self._duck.ddl(name) if name in self._near else super().ddl(name)

    def columns(self, name: str) -> list[str]:
        return self._duck.columns(name) if name in self._near else super().columns(name)

    def view(self, name: str, query: str) -> None:
        if self._asks_spark(query):
            super().view(name, query)
        else:
            self._duck.view(name, query)
            self._is_near(name)

    def narrow(self, name: str, condition: str) -> None:
        if name in self._near and not self._asks_spark(condition):
            self._duck.narrow(name, condition)
            self._near[name] = False
        else:
            self._lend(f"from {name} where {condition}")
            super().narrow(name, condition)

    def table(self, name: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._duck.table(name, columns, rows)
        self._is_near(name)

    def rows(self, query: str, limit: int = ROWS_MAX) -> list[Row]:
        return super().rows(query, limit) if self._asks_spark(query) else self._duck.rows(query, limit)

    def frame(self, query: str) -> DataFrame:
        """Spark's, whatever it names."""
        self._lend(query)
        return self.session.sql(query)

    def close(self) -> None:
        self._duck.close()
        self._copies.cleanup()
        self._large.close()
        super().close()

    # ---- which of the two -------------------------------------------------------------------------------------------

    def _is_near(self, name: str) -> None:
        self._near[name] = False
        self._far.discard(name)

    def named(self, name: str, frame: Any) -> None:
        super().named(name, frame)
        self._near.pop(name, None)
        self._far.add(name)

    def _asks_spark(self, query: str) -> bool:
        """Then Spark has what it needs."""
        spark = not self._far.isdisjoint(_READ.findall(query))
        if spark:
            self._lend(query)
        return spark

    def _lend(self, query: str) -> None:
        for name in _READ.findall(query):
            if self._near.get(name) is False:
                self._near[name] = True
                found = self.session.createDataFrame(self._duck.arrow(f"select * from {name}"))
                super().named(name, found)

    def _disk(self, path: str) -> str | None:
        """Where DuckDB finds a small table: there, or in a copy; None if it is Spark's."""
        files = [] if path.endswith(EVENTS) else self._tree(path)
        if path.endswith(EVENTS) or sum(file.size for file in files) > self._small:
            return None
        if self._here(path) is not None:
            return path
        system, place = self.hadoop(path)
        if system.getScheme() == "file":
            return str(place.toUri().getPath())
        if path.endswith(".parquet"):
            return None
        copy = Path(self._copies.name, quote(path, safe=""))
        shutil.rmtree(copy, ignore_errors=True)
        for file in files:
            target = copy / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            system.copyToLocalFile(
                False, self._path(f"{path.rstrip('/')}/{file.path}"), self._path(f"file://{target}"), True
            )
        return str(copy)
