"""The engine that the options ask for.  Shell; imports Spark or DuckDB only here, when one is wanted."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, TextIO

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


def make(options: argparse.Namespace, where: str = "") -> Engine:
    if chosen(options, where) == SPARK:
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


def _spark(options: argparse.Namespace) -> Engine:
    from spark_jobs.engine import session

    if not _there("pyspark"):
        raise UserError(f"PySpark is not installed: {_INSTALL}, or --engine {DUCKDB}")
    if not _there("duckdb"):
        raise UserError(f"DuckDB is not installed, which has the small tables of Spark: {_INSTALL}")
    if not session.submitted(os.environ) and not java(os.environ):
        raise UserError(f"Spark wants Java {JAVA}: no java in PATH or JAVA_HOME; install it, or use --engine {DUCKDB}")
    from pyspark.sql import SparkSession

    from spark_jobs.engine.spark import SparkEngine

    running = SparkSession.getActiveSession() is not None
    master = options.master or f"local[{options.threads or '*'}]"
    cores = options.threads or os.cpu_count() or 1
    size = sum(map(_octets, getattr(options, "inputs", ())))
    shuffle = session.shuffle_partitions(size // PACKED, cores) if master.startswith("local") else None
    with _java_says() as said:
        try:
            suited = session.suited(size) if master.startswith("local") else {}
            begun = session.session(master, shuffle, options.memory, {**suited, **dict(options.conf)})
            return SparkEngine(begun, own=not running, threads=options.threads or None)
        except Exception as error:
            why = said() or _first_line(str(error)) or type(error).__name__
            raise UserError(f"Spark does not start at {master}: {why}") from error


@contextlib.contextmanager
def _java_says() -> Iterator[Callable[[], str]]:
    """Redirects standard error of a JVM started here into a hidden file: warnings about modules and logging do not help
    users.  Yields a function that returns its first error."""
    if os.environ.get(DEBUG) or not _has_descriptor(sys.stderr):
        yield lambda: ""
        return
    number = sys.stderr.fileno()
    kept = os.dup(number)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), number)
        try:
            yield lambda: _said(file)
        finally:
            os.dup2(kept, number)
            os.close(kept)


def _said(file: BinaryIO) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in lines if "rror" in line or "xception" in line), "")


def _has_descriptor(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False


def remote(engine: Engine) -> bool:
    """True if its workers run on other machines."""
    from spark_jobs.engine import session

    found = getattr(engine, "session", None)
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


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")
