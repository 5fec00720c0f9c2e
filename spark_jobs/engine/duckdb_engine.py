"""DuckDB: one machine, no JVM."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_jobs.engine.base import ROWS_MAX, Row, arrow, checked, placed
from spark_jobs.sql.dialect import DUCKDB, Dialect


class DuckEngine:
    """`threads`: None is one for each core.  `memory`: as `4GB`; what does not fit goes to `scratch`."""

    def __init__(self, threads: int | None = None, memory: str | None = None, scratch: Path | None = None) -> None:
        import duckdb

        self._connection = duckdb.connect()
        wanted = {"threads": threads, "memory_limit": memory, "temp_directory": scratch and str(scratch)}
        for name, value in wanted.items():
            if value is not None:
                self._connection.execute(f"set {name} = {_text(value)}")
        self._connection.execute("set preserve_insertion_order = false")

    @property
    def name(self) -> str:
        return "duckdb"

    @property
    def dialect(self) -> Dialect:
        return DUCKDB

    def exists(self, path: str) -> bool:
        if "://" not in path:  # fifty times as fast as a query
            return os.path.isfile(path) if path.endswith(".parquet") else any(Path(path).rglob("*.parquet"))
        return bool(self._connection.execute(f"select 1 from glob({_text(_files(path))}) limit 1").fetchall())

    def load(self, name: str, path: str, columns: str | None = None) -> None:
        if not self.exists(path):
            raise FileNotFoundError(f"{path}: no such table")
        found = f"read_parquet({_text(_files(path))}, hive_partitioning = true, union_by_name = true)"
        self.view(name, f"select * from {found}")

    def save(self, query: str, path: str, partitions: Sequence[str] = ()) -> None:
        if "://" in path:
            self._copy(query, path, partitions, "overwrite_or_ignore true")
            return
        if partitions:
            with _replaced(Path(path)) as staged:
                self._copy(query, str(staged), partitions, "")
            return
        with _alone(Path(path)) as file:
            options = "format parquet, compression zstd"
            self._connection.execute(f"copy ({query}) to {_text(file)} ({options})")

    def _copy(self, query: str, path: str, partitions: Sequence[str], more: str) -> None:
        options = ["format parquet", "compression zstd", *([more] if more else [])]
        if partitions:
            options.append(f"partition_by ({', '.join(partitions)})")
        else:
            path = f"{path}/part-0.parquet"
        self._connection.execute(f"copy ({query}) to {_text(path)} ({', '.join(options)})")

    def keep(self, path: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        with _alone(Path(path)) as file:
            pq.write_table(arrow(columns, rows), file, compression="zstd")

    def parts(self, path: str) -> list[str]:
        return sorted(file.name for file in Path(path).glob("*.parquet"))

    def put(self, files: Sequence[Path], path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        for file in files:
            placed(file, Path(path) / file.name)

    def drop(self, path: str, names: Iterable[str]) -> None:
        for name in names:
            (Path(path) / name).unlink(missing_ok=True)
            (Path(path) / f".{name}.crc").unlink(missing_ok=True)  # of a Hadoop that wrote it

    def append(self, query: str, path: str, prefix: str) -> list[str]:
        name = f"{prefix}.parquet"
        staged = Path(path) / f".{name}"
        self._connection.execute(f"copy ({query}) to {_text(str(staged))} (format parquet, compression zstd)")
        staged.rename(Path(path) / name)
        return [name]

    def columns(self, name: str) -> list[str]:
        return [str(row["column_name"]) for row in self.rows(f"select column_name from (describe {name})")]

    def view(self, name: str, query: str) -> None:
        self._connection.execute(f"create or replace temp view {name} as {query}")

    def narrow(self, name: str, condition: str) -> None:
        """A view cannot read what it replaces."""
        self._connection.execute(f"drop view if exists whole_{name}")
        self._connection.execute(f"alter view {name} rename to whole_{name}")
        self.view(name, f"select * from whole_{name} where {condition}")

    def table(self, name: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._connection.register("rows_of_ours", arrow(columns, rows))
        self._connection.execute(f"create or replace temp table {name}_rows as select * from rows_of_ours")
        self._connection.unregister("rows_of_ours")
        self.view(name, f"select * from {name}_rows")

    def rows(self, query: str, limit: int = ROWS_MAX) -> list[Row]:
        found = self._connection.sql(f"select * from ({query}) limit {limit + 1}")
        return checked(found.to_arrow_table().to_pylist() if found is not None else [], limit, query)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _alone(place: Path) -> Iterator[Path]:
    """A new file, which becomes the folder's only one at the end: a reader sees the old rows or the new ones."""
    if place.is_file():
        place.unlink()
    place.mkdir(parents=True, exist_ok=True)
    target = place / "part-0.parquet"
    staged = place / f".{target.name}.new"
    yield staged
    os.replace(staged, target)
    for other in place.iterdir():
        if other.is_dir():
            shutil.rmtree(other)
        elif other != target:
            other.unlink()


@contextmanager
def _replaced(place: Path) -> Iterator[Path]:
    """A new folder, which takes the old one's place at the end."""
    staged = place.with_name(f".{place.name}.new")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    yield staged
    if place.is_dir():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    staged.rename(place)


def _files(path: str) -> str:
    return path if path.endswith(".parquet") else f"{path}/**/*.parquet"


def _text(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"
