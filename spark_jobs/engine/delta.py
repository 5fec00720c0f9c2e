"""Delta tables: which Parquet files of a folder count, and which counted before.                       Shell.

Theory.  A table of plain Parquet is whatever lies in its folder, so replacing some of it means writing all of it anew,
and a reader may see the middle.  Delta adds a log of numbered commits, each of which names files that come and files
that go.  A reader takes the files of one commit: a whole state, also while the next one is written, and an older one as
long as its files are kept (`maintain`).  What changed in one cluster costs what that cluster costs.

The Parquet is written by the engine, in its own workers; a commit is written here, by `deltalake`, which needs neither
Java nor the network.  Both engines read the files that a commit names.  So no package for Spark is needed, and none
that is published fits Spark 4.3.

In folders `cluster=NAME/date=YYYY-MM-DD`; the log also has the least and greatest number of each column of a file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from spark_jobs.engine.base import Engine, Written, arrow, columns_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG: Final = "_delta_log"
FOLDERS: Final = ("cluster", "date")
_NONE: Final = "__HIVE_DEFAULT_PARTITION__"
_TYPES: Final = {"long": "bigint", "integer": "int"}
_MAP: Final = "map<string,string>"
COMPARED: Final = 200_000
"""Rows of a folder: to write more of them anew costs less than to compare them one by one."""

Chosen = Callable[[str | None, str | None], bool]
"""By cluster and date of a file's folder."""


class DeltaError(ValueError):
    """The user asked for what Delta tables cannot do here; the message says what."""


def is_table(place: str) -> bool:
    """Also of an empty one, which has no file but its log."""
    if "://" not in place or place.startswith("file:"):
        return Path(_uri(place), LOG).is_dir()
    return place.startswith("s3") and _library().DeltaTable.is_deltatable(_uri(place))


def load(
    engine: Engine,
    name: str,
    place: str,
    columns: str | None = None,
    version: int | None = None,
    only: Collection[str] | None = None,
) -> None:
    """A view of a snapshot, by default of the newest, or of some files; `columns`: DDL, what the table lacks of them is
    NULL.

    The column `date` of the folders is left out."""
    table = _opened(place, version)
    known = dict(_columns(table)) | dict(columns_of(columns) if columns else ())
    named = ", ".join(f"{column} {kind}" for column, kind in known.items() if column != "date")
    files = [file for file, _ in _folders(table) if only is None or file in only]
    engine.load_files(name, place, files, named)


def merge(engine: Engine, view: str, place: str, gone: Chosen) -> int:
    """What a view gives, in place of all rows of chosen folders: one commit; its version.

    A row is its own key: one that is there already stays in its file.  A folder with the same rows is not written; one
    that has only gained some (and has no more than COMPARED) gets these; in all others the files are replaced.
    The view has the columns `cluster` and `date`.  Columns that the table lacks are added to it."""
    columns, engine = engine.ddl(view), engine.large(view)
    if not is_table(place):
        _create(place, columns, FOLDERS)
    table = _opened(place)
    old = {file: folder for file, folder in _folders(table) if gone(*(folder[f"partition.{name}"] for name in FOLDERS))}
    fresh, stale = _compared(engine, view, place, list(old), columns)
    named = ", ".join(map(engine.quoted, engine.columns(view)))
    named = named.replace(engine.quoted("cluster"), "nullif(cluster, '') as cluster")  # a folder has a name
    added = engine.spread(f"select {named} from ({fresh})", place, FOLDERS)
    removed = {
        file: of for file, of in old.items() if tuple(of[f"partition.{name}"] or "" for name in FOLDERS) in stale
    }
    return _commit(table, columns, [_add(place, file, columns) for file in added], removed)


def _compared(
    engine: Engine, view: str, place: str, old: Sequence[str], columns: str
) -> tuple[str, set[tuple[str, ...]]]:
    """(query of the rows to write, folders whose files go).  Sums of hashes tell which folders are the same; only of
    those with more rows than before, and not very many, the rows are compared: by two hashes, and how often each is."""
    if not old:
        return f"select * from {view}", set()
    engine.load_files("rows_there", place, old, columns)
    for name, source in (("hashed_there", "rows_there"), ("hashed_now", view)):
        engine.view(name, f"select *, {_hashes(engine, columns)} from {source}")
    before, now = (_sums(engine, name) for name in ("hashed_there", "hashed_now"))
    grown = {folder for folder in before.keys() & now.keys() if before[folder][0] < now[folder][0] <= COMPARED}
    grown -= _with_losses(engine, grown)
    stale = {folder for folder in before if now.get(folder) != before[folder]} - grown
    _folders_table(engine, "merge_all", (now.keys() - before.keys()) | (stale & now.keys()))
    return f"{_IN.format('*', 'hashed_now', 'merge_all')} union all {_more(engine, grown)}", stale


_KNOWN: Final = "merge_cluster, merge_day, merge_one, merge_other"
_SAME: Final = " and ".join(f"a.{column} = b.{column}" for column in _KNOWN.split(", "))
_IN: Final = "select {} from {} where exists (select 1 from {} where c = merge_cluster and d = merge_day)"


def _folders_table(engine: Engine, name: str, folders: Collection[tuple[str, ...]]) -> None:
    engine.table(name, "c string, d string", [{"c": cluster, "d": day} for cluster, day in sorted(folders)])


def _sums(engine: Engine, view: str) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Folder → how many rows, and sums of their hashes."""
    sums = "count(*) as n, bit_xor(merge_one) as x, cast(sum(merge_other & 4294967295) as bigint) as y"
    rows = engine.rows(
        f"select merge_cluster as c, merge_day as d, {sums} from {view} group by merge_cluster, merge_day"
    )
    return {(row["c"], row["d"]): (row["n"], row["x"], row["y"]) for row in rows}


def _with_losses(engine: Engine, grown: Collection[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Of folders with more rows than before those in which one is missing that was there."""
    _folders_table(engine, "merge_grown", grown)
    if not grown:
        return set()
    for name in ("hashed_there", "hashed_now"):
        inside = _IN.format(_KNOWN, name, "merge_grown")
        engine.view(f"{name}_counts", f"select {_KNOWN}, count(*) as merge_n from ({inside}) group by {_KNOWN}")
    lost = f"left join hashed_now_counts as b on {_SAME} where coalesce(b.merge_n, 0) < a.merge_n"
    rows = engine.rows(f"select distinct a.merge_cluster as c, a.merge_day as d from hashed_there_counts as a {lost}")
    return {(row["c"], row["d"]) for row in rows}


def _more(engine: Engine, grown: Collection[tuple[str, ...]]) -> str:
    """Query of the rows that their folders did not have, or had less often."""
    if not grown:
        return "select * from hashed_now where false"
    _folders_table(engine, "merge_grown", grown)
    turn = f"*, row_number() over (partition by {_KNOWN} order by merge_one) as merge_turn"
    numbered = _IN.format(turn, "hashed_now", "merge_grown")
    engine.view("numbered_now", numbered)
    named = ", ".join(f"a.{engine.quoted(name)}" for name in engine.columns("hashed_now"))
    more = "b.merge_n is null or a.merge_turn > b.merge_n"
    return f"select {named} from numbered_now as a left join hashed_there_counts as b on {_SAME} where {more}"


def _hashes(engine: Engine, columns: str) -> str:
    """Columns of a SELECT; `cluster` and `date` are never NULL in them."""
    named = [(engine.quoted(name), kind) for name, kind in columns_of(columns) if name not in FOLDERS]
    values = [f"cast(to_json({name}) as string)" if kind == _MAP else name for name, kind in named]
    both = f"{engine.hashed(*values)} as merge_one, {engine.hashed(chr(39) * 2, *values)} as merge_other"
    return f"coalesce(cluster, '') as merge_cluster, coalesce(date, '') as merge_day, {both}"


def name_files(place: str, files: Collection[Written], columns: str) -> int:
    """Files of a folder that are all that counts; in no folders of their own.  The version."""
    if not is_table(place):
        _create(place, columns, ())
    table = _opened(place)
    known = dict(_folders(table))
    wanted = {file.path: file for file in files}
    added = [_add(place, file, columns) for path, file in wanted.items() if path not in known]
    return _commit(table, columns, added, {path: known[path] for path in sorted(known.keys() - wanted.keys())})


def files(place: str) -> list[str]:
    """Of the newest snapshot."""
    return [file for file, _ in _folders(_opened(place))]


def spans(place: str, column: str) -> dict[str, tuple[Any, Any]]:
    """File → least and greatest value, of those of which the log has them."""
    names = f"min.{column}", f"max.{column}"
    found = {file: (of.get(names[0]), of.get(names[1])) for file, of in _folders(_opened(place))}
    return {file: (low, high) for file, (low, high) in found.items() if low is not None and high is not None}


@dataclass(frozen=True)
class Tidied:
    """Days that went, small files that were joined, files that were removed."""

    days: int
    joined: int
    removed: int


def maintain(place: str, snapshots: int, before: str = "") -> Tidied:
    """Days `before` a date go, if the table has folders, and its small files become one for each of them; files that no
    snapshot of the last `snapshots` hours has are removed."""
    table, days, joined = _opened(place), set(), 0
    if table.metadata().partition_columns:
        old = {file: of for file, of in _folders(table) if (of["partition.date"] or "9") < before}
        _commit(table, "", [], old)
        days, joined = {of["partition.date"] for of in old.values()}, table.optimize.compact()["numFilesRemoved"]
    table.create_checkpoint()
    gone = table.vacuum(snapshots, dry_run=False, enforce_retention_duration=False, full=True)
    return Tidied(len(days), int(joined), len(gone))


# ---- commits --------------------------------------------------------------------------------------------------------


def _library() -> Any:
    try:
        import deltalake
    except ImportError:
        raise DeltaError("Delta tables want the package deltalake: pip install 'qpidd-py[spark]'") from None
    return deltalake


def _uri(place: str) -> str:
    """As `deltalake` has it, which takes keys and endpoint of S3 from the environment (AWS_..)."""
    if place.startswith("file:"):
        return "/" + place.removeprefix("file:").lstrip("/")
    if "://" in place and not place.startswith(("s3://", "s3a://")):
        raise DeltaError(f"{place}: Delta tables lie on a disk or in s3a://, or take --table-format parquet")
    return re.sub(r"^s3a://", "s3://", place)


def _opened(place: str, version: int | None = None) -> DeltaTable:
    found: DeltaTable = _library().DeltaTable(_uri(place), version=version)
    return found


def _schema(columns: str) -> Any:
    return _library().Schema.from_arrow(arrow(columns, []).schema)


def _create(place: str, columns: str, folders: Sequence[str]) -> None:
    if not _uri(place).startswith("s3"):
        Path(_uri(place)).mkdir(parents=True, exist_ok=True)
    _library().DeltaTable.create(_uri(place), _schema(columns), partition_by=list(folders))


def _commit(table: DeltaTable, columns: str, added: Sequence[Any], removed: Mapping[str, Mapping[str, Any]]) -> int:
    """`removed`: file → what the log says of it."""
    has = dict(_columns(table))
    new = ", ".join(f"{name} {kind}" for name, kind in columns_of(columns) if name not in has)
    if new:
        table.alter.add_columns(_schema(new).fields)
    if added or removed:
        gone = [_gone(file, of) for file, of in removed.items()]
        folders = table.metadata().partition_columns
        table.create_write_transaction([*added, *gone], "append", table.schema(), partition_by=folders)
        table.update_incremental()
    return table.version()


def _gone(file: str, of: Mapping[str, Any]) -> Any:
    from deltalake.transaction import RemoveAction

    values = {name: of[f"partition.{name}"] for name in FOLDERS if f"partition.{name}" in of}
    return RemoveAction(file, True, int(time.time() * 1000), of["size_bytes"], values)


def _columns(table: DeltaTable) -> list[tuple[str, str]]:
    fields = json.loads(table.schema().to_json())["fields"]
    return [(field["name"], _type(field["type"])) for field in fields]


def _type(found: Any) -> str:
    if isinstance(found, dict):
        return _MAP if found["type"] == "map" else f"array<{_type(found['elementType'])}>"
    return _TYPES.get(found, str(found))


def _folders(table: DeltaTable) -> list[tuple[str, dict[str, Any]]]:
    """(file below the table, what the log says of it)."""
    import pyarrow as pa

    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [(unquote(row["path"]), row) for row in rows]


def _add(place: str, file: Written, columns: str) -> Any:
    from deltalake.transaction import AddAction

    folders = dict(part.split("=", 1) for part in file.path.split("/")[:-1] if "=" in part)
    values = {name: None if value == _NONE else unquote(value) for name, value in folders.items()}
    return AddAction(file.path, file.size, values, file.mtime, True, json.dumps(_stats(place, file, columns)))


def _stats(place: str, file: Written, columns: str) -> dict[str, Any]:
    """Of a file on a disk: with them readers skip files."""
    if _uri(place).startswith("s3"):
        return {}
    import pyarrow.parquet as pq

    found = pq.read_metadata(f"{_uri(place)}/{file.path}")
    told = {name for name, kind in columns_of(columns) if kind == "bigint" or name == "cluster"}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for group in range(found.num_row_groups):
        for index in range(found.num_columns):
            column = found.row_group(group).column(index)
            name, of = column.path_in_schema, column.statistics
            if name in told and of is not None and of.has_min_max:
                least[name], most[name] = min(of.min, least.get(name, of.min)), max(of.max, most.get(name, of.max))
    return {"numRecords": found.num_rows, "minValues": least, "maxValues": most}
