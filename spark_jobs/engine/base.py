"""The interface of an engine for the jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
ROWS_MAX: Final = 1_000_000
"""The maximum number of rows of a small result; more are an error of the caller."""


@dataclass(frozen=True)
class Written:
    """A file below a table's folder; `mtime`: ms since 1970."""

    path: str
    size: int
    mtime: int


class TooManyRows(RuntimeError):
    """A query for a small result gave a big one."""


class Engine(Protocol):
    """Names of views are plain words.  Paths are local ones or s3a://.  An error in a query is the engine's own."""

    @property
    def name(self) -> str: ...

    def large(self, *views: str) -> Engine:
        """The one for tables of any size, with these views; the next of ours may replace its views."""

    def quoted(self, word: str) -> str:
        """A column's name that may be a word of SQL such as `end`."""

    def hashed(self, *values: str) -> str:
        """A bigint that stands for values, in this engine only."""

    def exists(self, path: str) -> bool:
        """True if there is a table."""

    def load(self, name: str, path: str, columns: str | None = None) -> None:
        """A view of a Parquet table; raises FileNotFoundError.  `columns`: its DDL, if it is known."""

    def load_files(self, name: str, path: str, files: Sequence[str], columns: str) -> None:
        """A view of some Parquet files below a folder, with just these columns; what a file lacks is NULL.  `cluster`
        is told by a file's folder `cluster=NAME`, if it lies in one."""

    def save(self, query: str, path: str) -> None:
        """Write what a query gives as Parquet (zstd), in place of what was there."""

    def keep(self, path: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows of ours as a table, in place of what was there: no query, so a small table costs milliseconds."""

    def parts(self, path: str) -> list[str]:
        """Names of a table's Parquet files, sorted; none if there is no table."""

    def put(self, files: Sequence[Path], path: str) -> None:
        """Move Parquet files of this machine into a table."""

    def drop(self, path: str, names: Iterable[str]) -> None:
        """Remove some of a table's Parquet files."""

    def append(self, query: str, path: str, prefix: str) -> list[str]:
        """Add what a query gives to a table; the names of the new Parquet files, which begin with `prefix`."""

    def spread(self, query: str, path: str, folders: Sequence[str]) -> list[Written]:
        """Add what a query gives to a folder, in folders by the values of columns; the new files."""

    def written(self, path: str) -> list[Written]:
        """A table's Parquet files, without those in folders below it."""

    def ddl(self, name: str) -> str:
        """Columns of a view and their types, as Spark's DDL has them."""

    def columns(self, name: str) -> list[str]:
        """Of a view."""

    def view(self, name: str, query: str) -> None:
        """Give a query a name; it runs each time that it is used."""

    def narrow(self, name: str, condition: str) -> None:
        """Of a view only the rows of a condition, under its own name."""

    def table(self, name: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """A view of rows of ours; `columns` in Spark's DDL."""

    def rows(self, query: str, limit: int = ROWS_MAX) -> list[Row]:
        """A small result; raises TooManyRows beyond `limit`."""

    def close(self) -> None:
        """Views end; a Spark session that was given stays."""


def checked(rows: list[Row], limit: int, query: str) -> list[Row]:
    """Raises TooManyRows."""
    if len(rows) > limit:
        raise TooManyRows(f"more than {limit} rows, wanted a small result, of: {' '.join(query.split())[:200]}")
    return rows


def columns_of(ddl: str) -> list[tuple[str, str]]:
    """(name, type) of a DDL, in lower case: `a bigint, b map<string,string>`."""
    found: list[tuple[str, str]] = []
    for part in ddl.replace("map<string,string>", "texts").split(",") if ddl else ():
        name, kind = part.split()
        found.append((name, "map<string,string>" if kind == "texts" else kind.lower()))
    return found


def arrow(columns: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table; what a row lacks is NULL, what no column has is left out."""
    import pyarrow as pa

    types = {
        "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "double": pa.float64(),
        "map<string,string>": pa.map_(pa.string(), pa.string()), "array<string>": pa.list_(pa.string()),
        "binary": pa.binary(),
    }  # fmt: skip
    listed = list(rows)
    named = [(name, types[kind]) for name, kind in columns_of(columns)]
    arrays = {name: pa.array([_plain(row.get(name)) for row in listed], kind) for name, kind in named}
    return pa.table(arrays, schema=pa.schema(named))


def laid(file: Path, folder: Path) -> Written:
    """A file as it lies below a folder."""
    found = file.stat()
    return Written(file.relative_to(folder).as_posix(), found.st_size, int(found.st_mtime * 1000))


def removed(names: Iterable[str], folder: Path) -> None:
    """Files of a folder, with the checksums that a Hadoop wrote of them."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / f".{name}.crc").unlink(missing_ok=True)


def placed(file: Path, target: Path) -> None:
    """Moves a file to where others look for it, whole or not at all, also from another disk."""
    staged = target.with_name(f".{target.name}.new")
    shutil.move(file, staged)
    os.replace(staged, target)


def _plain(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value
