"""Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_jobs.engine.base import CORRUPT, ROWS_MAX, Row, arrow, checked
from spark_jobs.sql.dialect import SPARK, Dialect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """`own`: the session ends with the engine."""

    def __init__(self, session: SparkSession, own: bool = False) -> None:
        self.session = session
        self._own = own
        self._views: set[str] = set()

    @property
    def name(self) -> str:
        return "spark"

    @property
    def dialect(self) -> Dialect:
        return SPARK

    def exists(self, path: str) -> bool:
        """Through Hadoop: s3a:// as well."""
        jvm = self.session.sparkContext._jvm
        assert jvm is not None
        place = jvm.org.apache.hadoop.fs.Path(path)
        system = place.getFileSystem(self.session.sparkContext._jsc.hadoopConfiguration())
        return bool(system.exists(place))

    def load(self, name: str, path: str) -> None:
        if not self.exists(path):
            raise FileNotFoundError(f"{path}: no such table")
        self._named(name, self.session.read.parquet(path))

    def save(self, query: str, path: str, partitions: Sequence[str] = ()) -> None:
        """What a query reads from `path` itself is lost: write elsewhere."""
        writer = self.session.sql(query).write.mode("overwrite").option("compression", "zstd")
        (writer.partitionBy(*partitions) if partitions else writer).parquet(path)

    def json_lines(self, name: str, paths: Sequence[str], columns: str) -> None:
        reader = self.session.read.schema(f"{columns}, {CORRUPT} string").option("mode", "PERMISSIVE")
        self._named(name, reader.option("columnNameOfCorruptRecord", CORRUPT).json(list(paths)))

    def view(self, name: str, query: str) -> None:
        self._named(name, self.session.sql(query))

    def table(self, name: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._named(name, self.session.createDataFrame(arrow(columns, rows)))

    def rows(self, query: str, limit: int = ROWS_MAX) -> list[Row]:
        found = self.session.sql(query).limit(limit + 1).toArrow().to_pylist()
        return checked(found, limit, query)

    def _named(self, name: str, frame: Any) -> None:
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def close(self) -> None:
        for name in self._views:
            self.session.catalog.dropTempView(name)
        if self._own:
            self.session.stop()
