"""DuckDB: one machine, no JVM."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from spark_jobs.engine.base import ROWS_MAX, Row, Written, arrow, checked, columns_of, laid, placed, removed

if TYPE_CHECKING:
    import pyarrow as pa

_SPARKS: Final = {
    "VARCHAR": "string", "BIGINT": "bigint", "INTEGER": "int", "BOOLEAN": "boolean", "DOUBLE": "double",
    "MAP(VARCHAR, VARCHAR)": "map<string,string>", "VARCHAR[]": "array<string>", "BLOB": "binary",
}  # fmt: skip
_MACROS: Final = {
    "div(a, b)": "a // b",
    "shiftright(a, b)": "a >> b",
    "sequence(a, b)": "generate_series(a, b)",
    "array_repeat(a, n)": "list_resize([a], n, a)",
    "explode(a)": "unnest(a)",
    "timestamp_micros(a)": "make_timestamp(a)",
    "xxhash64(a)": "cast(hash(a) >> 1 as bigint), (a, b) as cast(hash(a, b) >> 1 as bigint)",
}
"""Functions of Spark.  Its hash is another one: no table has hashes of both."""
_WILD: Final = re.compile(r"([\[*?])")
_FOLDER: Final = "/cluster=([^/]*)/date=([^/]*)/[^/]*$"


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
        for name, meaning in _MACROS.items():
            self._connection.execute(f"create macro {name} as {meaning}")

    @property
    def name(self) -> str:
        return "duckdb"

    def large(self, *views: str) -> DuckEngine:
        return self

    def quoted(self, word: str) -> str:
        return f'"{word}"'

    def hashed(self, *values: str) -> str:
        return f"cast(hash({', '.join(values)}) >> 1 as bigint)"

    def exists(self, path: str) -> bool:
        return os.path.isfile(path) if path.endswith(".parquet") else any(Path(path).rglob("*.parquet"))

    def load(self, name: str, path: str, columns: str | None = None) -> None:
        if not self.exists(path):
            raise FileNotFoundError(f"{path}: no such table")
        if columns is not None:
            self._filled(name, _text(_files(path)), columns)
            return
        folders = any(Path(path).glob("*=*"))  # below it: those above are no columns
        found = f"read_parquet({_text(_files(path))}, hive_partitioning = {folders}, union_by_name = true)"
        self.view(name, f"select * from {found}")

    def load_files(self, name: str, path: str, files: Sequence[str], columns: str) -> None:
        listed = ", ".join(_text(_literal(f"{path}/{file}")) for file in files)
        self._filled(name, f"[{listed}]" if files else "", columns, any("/" in file for file in files))

    def _filled(self, name: str, files: str, columns: str, folders: bool = False) -> None:
        """With exactly these columns: no row of a table that has them all is added."""
        self.table(f"none_{name}", columns, [])
        named = ", ".join(f'"{column}"' for column, _ in columns_of(columns))
        told = "url_decode(nullif(regexp_extract(filename, '{}', {}), '__HIVE_DEFAULT_PARTITION__'))".format
        cluster = f", coalesce({told(_FOLDER, 1)}, '') as cluster, {told(_FOLDER, 2)} as date" if folders else ""
        options = "hive_partitioning = false, union_by_name = true" + (", filename = true" if folders else "")
        found = f"select *{cluster} from read_parquet({files}, {options}) union all by name " if files else ""
        self.view(name, f"select {named} from ({found}select * from none_{name})")

    def save(self, query: str, path: str) -> None:
        with _alone(Path(path)) as file:
            self._connection.execute(f"copy ({query}) to {_text(file)} (format parquet, compression zstd)")

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
        removed(names, Path(path))

    def append(self, query: str, path: str, prefix: str) -> list[str]:
        name = f"{prefix}.parquet"
        staged = Path(path) / f".{name}"
        self._connection.execute(f"copy ({query}) to {_text(str(staged))} (format parquet, compression zstd)")
        staged.rename(Path(path) / name)
        return [name]

    def spread(self, query: str, path: str, folders: Sequence[str]) -> list[Written]:
        Path(path).mkdir(parents=True, exist_ok=True)
        where = f"partition_by ({', '.join(folders)}), append, filename_pattern 'part-{{uuid}}', return_files"
        self._connection.execute(f"copy ({query}) to {_text(path)} (format parquet, compression zstd, {where})")
        files = [file for _, of in self._connection.fetchall() for file in of or ()]
        return [laid(Path(file), Path(path)) for file in files]

    def written(self, path: str) -> list[Written]:
        return [laid(Path(path, name), Path(path)) for name in self.parts(path)]

    def ddl(self, name: str) -> str:
        rows = self.rows(f"select column_name, column_type from (describe {name})")
        return ", ".join(f"{row['column_name']} {_SPARKS[row['column_type']]}" for row in rows)

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
        found = self.arrow(f"select * from ({query}) limit {limit + 1}")
        return checked(found.to_pylist(maps_as_pydicts="lossy"), limit, query)

    def arrow(self, query: str) -> pa.Table:
        """At least one batch, also of no rows: Spark wants one."""
        found = self._connection.sql(query).to_arrow_table()
        return found if found.num_rows else type(found).from_batches([_no_rows(found.schema)])

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


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def _files(path: str) -> str:
    return _literal(path) if path.endswith(".parquet") else f"{_literal(path)}/**/*.parquet"


def _literal(path: str) -> str:
    """As a pattern that means just this path."""
    return _WILD.sub(r"[\1]", path)


def _text(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"
