"""Inputs by what they are: paths to be read here, URLs for Spark, and Parquet that is a table of events already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from spark_jobs import schema
from spark_jobs.engine.base import Engine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.ingest.plan import labels
from spark_jobs.ingest.tables import Catalog, State

PARQUET = ".parquet"
KIND = "parquet"


class IngestError(ValueError):
    """An input is not there, or holds nothing that can be read; the message names it."""


def sorted_out(engine: Engine, inputs: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """(Parquet, paths, URLs), each once.  Raises IngestError for a URL that the engine cannot read."""
    given: list[str] = []
    paths: list[str] = []
    urls: list[str] = []
    for one in dict.fromkeys(inputs):
        if not isinstance(engine, SparkEngine):
            one = _local(one)
        if "://" in one:
            assert isinstance(engine, SparkEngine)
            (given if engine.holds_only(one, PARQUET) else urls).append(one.rstrip("/"))
        else:
            (given if is_parquet(Path(one)) else paths).append(str(Path(one).resolve()))
    return given, paths, urls


def _local(one: str) -> str:
    if one.startswith("file://"):
        return "/" + one.removeprefix("file://").lstrip("/")
    if "://" in one:
        raise IngestError(f"{one}: DuckDB reads this machine's files only, wanted a path (or --engine spark)")
    return one


def is_parquet(path: Path) -> bool:
    """A Parquet file, or a folder of nothing else."""
    if not path.is_dir():
        return path.suffix == PARQUET and path.is_file()
    files = [file for file in path.rglob("*") if file.is_file() and file.name[0] not in "._"]
    return bool(files) and all(file.suffix == PARQUET for file in files)


def add(engine: Engine, catalog: Catalog, paths: Iterable[str]) -> bool:
    """Enters them; those that are known are counted again, they may have grown.  True if anything changed.

    Raises IngestError for another table's Parquet."""
    before = {name: state for name, state in catalog.files.items() if state.kind == KIND}
    named = labels([*catalog.given, *paths])
    found = {label: _counted(engine, path, label) for path, label in named.items()}
    catalog.files = {name: state for name, state in catalog.files.items() if name not in before} | found
    catalog.given = sorted(named)
    return found != before


def _counted(engine: Engine, path: str, label: str) -> State:
    engine.load("given_events", path)
    missing = sorted(set(schema.NAMES) - set(engine.columns("given_events")))
    if missing:
        raise IngestError(f"{path}: not a table of events: it lacks the columns {', '.join(missing)}")
    query = "select count(*) as events, min(ts_wall) as first_ts, max(ts_wall) as last_ts from given_events"
    return State(label, label, "", KIND, "given", **engine.rows(query)[0])
