"""The engine that the options ask for.  Shell; imports Spark or DuckDB only here, when one is wanted."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final

from spark_jobs.cli import values
from spark_jobs.cli.errors import DEBUG, UserError
from spark_jobs.engine.base import Engine

AUTO, SPARK, DUCKDB = "auto", "spark", "duckdb"
SMALL: Final = 600_000_000
"""Octets of logs below which DuckDB has the answer before Spark has begun."""
JAVA: Final = "17 or newer"
_PACKINGS: Final = frozenset({".gz", ".tgz", ".bz2", ".xz", ".zst"})
PACKED: Final = 10
"""So many octets of logs are one of Parquet, or more."""
ELSEWHERE: Final = frozenset(
    {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"}
)
"""What may make Spark take a plain path for one of another file system."""
_INSTALL: Final = "pip install 'qpidd-py[spark]' (or make install EXTRAS=client,spark)"


def add_arguments(parser: argparse.ArgumentParser, default: str = AUTO) -> None:
    add = parser.add_argument_group("engine").add_argument
    add("--engine", choices=(AUTO, SPARK, DUCKDB), default=default,
        help=f"who computes (%(default)s); {DUCKDB}: this machine, no Java; {AUTO}: {DUCKDB} if it is installed, for "
             f"files of this machine below {SMALL // 1_000_000} MB")  # fmt: skip
    add("--master", metavar="URL", help="of Spark: spark://HOST:PORT, local[N] (local[*], or as spark-submit was told)")
    add("--conf", type=values.setting, action="append", default=[], metavar="NAME=VALUE",
        help="of Spark, as spark.executor.memory=4g; repeatable")  # fmt: skip
    add("--memory", metavar="SIZE", help="of the engine on this machine, as 4g")
    add("--threads", type=values.count, metavar="N", help="cores that are used here (all)")


@contextlib.contextmanager
def opened(options: argparse.Namespace, where: str = "") -> Iterator[Engine]:
    """`where`: the workspace.  Raises UserError if the engine cannot run here."""
    engine = make(options, where)
    try:
        yield engine
    finally:
        engine.close()


@contextlib.contextmanager
def reading(options: argparse.Namespace) -> Iterator[tuple[Engine, Callable[[], Engine]]]:
    """What reads the logs, and what gives the engine for all that follows.  A Spark of this machine starts while DuckDB
    reads: neither needs the other.  Raises UserError as `opened` does."""
    if chosen(options) == SPARK:
        _check_spark()
    if chosen(options) != SPARK or not _is_of_this_disk(options) or _running():
        with opened(options) as engine:
            yield engine, lambda: engine
        return
    with ThreadPoolExecutor(1) as pool, contextlib.closing(_duckdb(options)) as reader:
        starting = pool.submit(_spark, options)
        try:
            yield reader, starting.result
        finally:
            if starting.exception() is None:
                starting.result().close()


def _is_of_this_disk(options: argparse.Namespace) -> bool:
    """True if a plain path is certainly one of this machine for Spark, too: nothing names another file system."""
    places = [str(place) for place in (options.master or "local", options.work or "", *options.inputs)]
    configured = any("hadoop" in name for name, _ in options.conf) or not ELSEWHERE.isdisjoint(os.environ)
    return places[0].startswith("local") and not configured and not any("://" in place for place in places)


def make(options: argparse.Namespace, where: str = "") -> Engine:
    if chosen(options, where) == SPARK:
        _check_spark()
        return _spark(options)
    if options.master:
        raise UserError(f"--master {options.master}: {DUCKDB} runs on this machine only, expected --engine {SPARK}")
    return _duckdb(options)


def chosen(options: argparse.Namespace, where: str = "") -> str:
    """One of SPARK and DUCKDB."""
    from spark_jobs.engine import session

    if options.engine != AUTO:
        return str(options.engine)
    inputs = [str(one) for one in getattr(options, "inputs", ())]
    urls = any("://" in place for place in (where, getattr(options, "work", None) or "", *inputs))
    if urls or options.master or options.conf or session.submitted(os.environ) or not _there("duckdb"):
        return SPARK
    return DUCKDB if sum(map(_octets, inputs)) < SMALL or not _there("pyspark") else SPARK


def _duckdb(options: argparse.Namespace) -> Engine:
    if not _there("duckdb"):
        raise UserError(f"DuckDB is not installed: {_INSTALL}, or --engine {SPARK}")
    from spark_jobs.engine.duckdb_engine import DuckEngine

    memory = f"{options.memory.upper().removesuffix('B')}B" if options.memory else None
    return DuckEngine(threads=options.threads or None, memory=memory)


def _running() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _spark(options: argparse.Namespace) -> Engine:
    from spark_jobs.engine import session
    from spark_jobs.engine.spark import SparkEngine

    running = _running()
    master = options.master or f"local[{options.threads or '*'}]"
    cores = options.threads or os.cpu_count() or 1
    size = sum(map(_octets, getattr(options, "inputs", ())))
    shuffle = session.shuffle_partitions(size // PACKED, cores) if master.startswith("local") else None
    suited = session.suited(size, cores) if master.startswith("local") else {}
    with tempfile.TemporaryFile() as said:
        try:
            begun = session.context(
                master, shuffle, options.memory, {**suited, **dict(options.conf)},
                errors=None if os.environ.get(DEBUG) else said,
            )  # fmt: skip
            return SparkEngine(begun, own=not running, threads=options.threads or None)
        except Exception as error:
            why = _said(said) or str(error).strip().partition("\n")[0] or type(error).__name__
            raise UserError(f"Spark does not start at {master}: {why}") from error


def _check_spark() -> None:
    """Raises UserError for what is not installed."""
    from spark_jobs.engine import session

    if not _there("pyspark"):
        raise UserError(f"PySpark is not installed: {_INSTALL}, or --engine {DUCKDB}")
    if not _there("duckdb"):
        raise UserError(f"DuckDB is not installed, which has the small tables of Spark: {_INSTALL}")
    if not session.submitted(os.environ) and not java(os.environ):
        raise UserError(f"Spark wants Java {JAVA}: no java in PATH or JAVA_HOME; install it, or use --engine {DUCKDB}")


def _said(file: BinaryIO) -> str:
    """The first error of a JVM.  Its warnings about modules and logging do not help users."""
    file.seek(0)
    lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if "rror" in line or "xception" in line), "")


def remote(engine: Engine) -> bool:
    """True if its workers run on other machines."""
    from spark_jobs.engine import session

    found = getattr(engine, "context", None)
    return found is not None and session.remote(found)


def _octets(place: str) -> int:
    """Of the files of this machine, about: packed ones hold ten times as much."""
    path = Path(place)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size * (PACKED if file.suffix in _PACKINGS else 1) for file in files if file.is_file())


def _there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def java(environ: Mapping[str, str]) -> str | None:
    """Where the program is."""
    home = environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java", path=environ.get("PATH"))
