"""Spark: tables of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from spark_jobs.engine.base import ROWS_MAX, Row, Written, arrow, checked, columns_of, laid, placed, removed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

ALONE: Final = "part-0.parquet"


class Large:
    """`own`: the context ends with the engine."""

    def __init__(self, context: SparkContext, own: bool = False) -> None:
        self.context = context
        self._own = own
        self._views: set[str] = set()
        self._columns: dict[str, Any] = {}  # of tables that this engine wrote
        self._loaded: dict[str, tuple[str, Any, list[Written]]] = {}  # view → path, columns, files
        self._disks = self.hadoop("/")[0].getScheme() == "file"

    @cached_property
    def session(self) -> SparkSession:
        """For queries: beginning one costs seconds."""
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()

    @property
    def reader(self) -> DataFrameReader:
        """Of paths as they are, without patterns."""
        return self.session.read.option("__globPaths__", "false")

    @property
    def name(self) -> str:
        return "spark"

    def large(self, *views: str) -> Large:
        return self

    def quoted(self, word: str) -> str:
        return f"`{word}`"

    def hashed(self, *values: str) -> str:
        return f"xxhash64({', '.join(values)})"

    def exists(self, path: str) -> bool:
        """Through Hadoop: s3a:// as well."""
        if (here := self._here(path)) is not None:
            return here.exists()
        system, place = self.hadoop(path)
        return bool(system.exists(place))

    def load(self, name: str, path: str, columns: str | None = None) -> None:
        """Whose columns are known costs no job that looks for them; what has not changed since costs nothing."""
        if not self.exists(path):
            raise FileNotFoundError(f"{path}: no such table")
        known = columns or self._columns.get(path)
        what = (path, known, self._tree(path) if self._here(path) is not None else [])
        if what[2] and self._loaded.get(name) == what:
            return
        reader = self.reader if known is None else self.reader.schema(known)
        self.named(name, reader.parquet(path))
        self._loaded[name] = what

    def load_files(self, name: str, path: str, files: Sequence[str], columns: str) -> None:
        if not files:
            self.table(name, columns, [])
            return
        known, folders = dict(columns_of(columns)), any("/" in file for file in files)
        given = known | ({"cluster": "string", "date": "string"} if folders else {})
        reader = self.reader.schema(", ".join(f"`{column}` {kind}" for column, kind in given.items()))
        found = reader.option("basePath", path).parquet(*(f"{path}/{file}" for file in files))
        if folders:
            found = found.replace(_misread(files), subset="cluster").fillna("", "cluster")
        self.named(name, found.select(*(f"`{column}`" for column in known)))

    def save(self, query: str, path: str) -> None:
        """What a query reads from `path` itself is lost: write elsewhere."""
        frame = self.session.sql(query)
        frame.write.mode("overwrite").option("compression", "zstd").parquet(path)
        self._columns[path] = frame.schema

    def keep(self, path: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._alone(path, arrow(columns, rows))
        self._columns[path] = columns

    def _alone(self, path: str, table: pa.Table) -> None:
        """In place of what was there."""
        old = [name for name in self.parts(path) if name != ALONE]
        self._written(path, table, ALONE)
        self.drop(path, old)

    def _written(self, path: str, table: pa.Table, name: str) -> None:
        import pyarrow.parquet as pq

        with TemporaryDirectory() as folder:
            pq.write_table(table, Path(folder) / name, compression="zstd")
            self.put([Path(folder) / name], path)

    def parts(self, path: str) -> list[str]:
        return [file.path for file in self.written(path)]

    def put(self, files: Sequence[Path], path: str) -> None:
        if (folder := self._here(path)) is not None:  # Hadoop's copy would read each octet, and leave a checksum file
            folder.mkdir(parents=True, exist_ok=True)
            for file in files:
                (folder / f".{file.name}.crc").unlink(missing_ok=True)
                placed(file, folder / file.name)
            return
        system, place = self.hadoop(path)
        system.mkdirs(place)
        for file in files:
            local, staged = self._path(file.resolve().as_uri()), self._path(f"{path.rstrip('/')}/.{file.name}.new")
            target = self._path(f"{path.rstrip('/')}/{file.name}")
            system.copyFromLocalFile(True, True, local, staged)
            system.delete(target, False)
            system.rename(staged, target)

    def drop(self, path: str, names: Iterable[str]) -> None:
        if (here := self._here(path)) is not None:
            removed(names, here)
            return
        system, _ = self.hadoop(path)
        for name in names:
            system.delete(self._path(f"{path.rstrip('/')}/{name}"), False)

    def qualified(self, path: str) -> str:
        """As Spark names the files below it."""
        system, place = self.hadoop(path)
        return str(system.makeQualified(place).toString()).rstrip("/")

    def holds_only(self, path: str, suffix: str) -> bool:
        """True if all files below it have such names.  Hidden ones do not count."""
        system, place = self.hadoop(path)
        found = False
        if system.exists(place):
            listing = system.listFiles(place, True)
            while listing.hasNext():
                name = str(listing.next().getPath().getName())
                found = found or name[0] not in "._"
                if name[0] not in "._" and not name.endswith(suffix):
                    return False
        return found

    def append(self, query: str, path: str, prefix: str) -> list[str]:
        return self.append_frame(self.session.sql(query), path, prefix)

    def append_frame(self, frame: Any, path: str, prefix: str) -> list[str]:
        """Written under another name, then renamed: a repeated task or an interrupted job leaves no rows."""
        staged = f"{path.rstrip('/')}.{prefix}"
        frame.write.mode("overwrite").option("compression", "zstd").parquet(staged)
        system, place = self.hadoop(path)
        system.mkdirs(place)
        names = {name: f"{prefix}-{number:05d}.parquet" for number, name in enumerate(self.parts(staged))}
        for name, new in names.items():
            system.rename(self._path(f"{staged}/{name}"), self._path(f"{path.rstrip('/')}/{new}"))
        system.delete(self._path(staged), True)
        return sorted(names.values())

    def spread(self, query: str, path: str, folders: Sequence[str]) -> list[Written]:
        staged = f"{path.rstrip('/')}.new"
        writer = self.session.sql(query).write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy(*folders).parquet(staged)
        found = self._tree(staged)
        system, place = self.hadoop(staged)
        for file in found:
            target = self._path(f"{path.rstrip('/')}/{file.path}")
            system.mkdirs(target.getParent())
            system.rename(self._path(f"{staged}/{file.path}"), target)
        system.delete(place, True)
        return found

    def written(self, path: str) -> list[Written]:
        return sorted((file for file in self._tree(path) if "/" not in file.path), key=lambda file: file.path)

    def _tree(self, path: str) -> list[Written]:
        """Of all folders below."""
        if (here := self._here(path)) is not None:
            files = [here] if here.is_file() else here.rglob("[!._]*.parquet")
            return [laid(file, here) for file in files]
        system, place = self.hadoop(path)
        found, root = [], f"{self.qualified(path)}/"
        listing = system.listFiles(place, True) if system.exists(place) else None
        while listing is not None and listing.hasNext():
            status = listing.next()
            name = str(status.getPath().toString()).removeprefix(root)
            if name.endswith(".parquet") and name.rsplit("/")[-1][0] not in "._":
                found.append(Written(name, int(status.getLen()), int(status.getModificationTime())))
        return found

    def ddl(self, name: str) -> str:
        return ", ".join(f"{column} {kind}" for column, kind in self.session.table(name).dtypes)

    def map_in_arrow(self, frame: DataFrame, function: Callable[[Any], Any], columns: str) -> DataFrame:
        """As `frame.mapInArrow`, which asks for pandas although Arrow's batches do not need it.  `columns`: DDL."""
        from pyspark.sql import DataFrame
        from pyspark.sql.udf import _create_udf
        from pyspark.util import PythonEvalType

        udf = _create_udf(function, columns, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column = udf(*(frame[name] for name in frame.columns))
        return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), self.session)

    @contextmanager
    def configured(self, options: Mapping[str, str]) -> Iterator[None]:
        """Settings of the session for a while."""
        before = {name: self.session.conf.get(name, None) for name in options}
        try:
            for name, value in options.items():
                self.session.conf.set(name, value)
            yield
        finally:
            for name, known in before.items():
                if known is None:
                    self.session.conf.unset(name)
                else:
                    self.session.conf.set(name, known)

    def columns(self, name: str) -> list[str]:
        return list(self.session.table(name).columns)

    def _here(self, path: str) -> Path | None:
        """A place on this machine's disk: Python is done before the JVM has heard of it.  None: ask Hadoop."""
        return Path(path) if self._disks and ":" not in path.split("/")[0] else None

    def is_here(self, path: str) -> bool:
        """A plain path on disks that workers see, too."""
        return self._here(path) is not None

    def _path(self, path: str) -> Any:
        jvm = self.context._jvm
        assert jvm is not None
        return jvm.org.apache.hadoop.fs.Path(path)

    def glob(self, pattern: str) -> Sequence[Any]:
        """Hadoop's words on what has such a path."""
        system, place = self.hadoop(pattern)
        return system.globStatus(place) or ()

    def hadoop(self, path: str) -> tuple[Any, Any]:
        """Hadoop's file system for a path, and the path: s3a:// as well."""
        place = self._path(path)
        return place.getFileSystem(self.context._jsc.hadoopConfiguration()), place

    def view(self, name: str, query: str) -> None:
        self.named(name, self.session.sql(query))

    def narrow(self, name: str, condition: str) -> None:
        self.named(name, self.session.table(name).where(condition))

    def table(self, name: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.named(name, self.session.createDataFrame(arrow(columns, rows)))

    def rows(self, query: str, limit: int = ROWS_MAX) -> list[Row]:
        found = self.session.sql(query).limit(limit + 1).toArrow().to_pylist(maps_as_pydicts="lossy")
        return checked(found, limit, query)

    def named(self, name: str, frame: Any) -> None:
        """A view of a frame."""
        self._loaded.pop(name, None)
        frame.createOrReplaceTempView(name)
        self._views.add(name)

    def close(self) -> None:
        for name in self._views:
            self.session.catalog.dropTempView(name)
        if self._own:
            self.__dict__.get("session", self.context).stop()


def _misread(files: Iterable[str]) -> dict[str, str]:
    """Names of clusters as Spark has them from folders of others: it takes each octet `%C3` for a letter."""
    names = {file.split("/", 1)[0].removeprefix("cluster=") for file in files}
    return {found: unquote(name) for name in names if (found := unquote(name, "latin-1")) != unquote(name)} or {"": ""}
