"""The real logs of a three-node cluster (Pacemaker 2.1.5, Corosync 3.1.7), and small helpers for made ones."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from spark_jobs.parse.almanac import Almanac, almanac
from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.lines import parse_file
from spark_jobs.parse.survey import survey
from spark_jobs.schema import COLUMNS, Event
from tests.spark.written import faults

DATA = Path(__file__).parent / "data" / "pacemaker-lab"
Files = Mapping[str, list[bytes]]
_WRITTEN = {column.name for column in COLUMNS if column.written}


@cache
def lab_files() -> dict[str, list[bytes]]:
    """Name -> lines with their ends."""
    return {
        path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        for path in sorted(DATA.glob("*.gz"))
    }


def almanac_of(files: Files, **options: Any) -> Almanac:
    given: dict[str, Any] = {"zones": {}, "modified": {}, "now": None} | options
    return almanac([survey(name, lines) for name, lines in files.items()], **given)


def parsed(files: Files, tally: Tally | None = None, **options: Any) -> list[Event]:
    """The events of a bundle, in two passes."""
    found = almanac_of(files, **options)
    tally = tally if tally is not None else Tally()
    return [
        event
        for name, lines in files.items()
        for event in parse_file(name, lines, Context(cluster="lab", almanac=found, tally=tally))
    ]


@cache
def lab_almanac() -> Almanac:
    return almanac_of(lab_files())


@cache
def lab_events() -> list[Event]:
    return parsed(lab_files())


def one(text: str, **context: Any) -> Event:
    """The only event of one line."""
    (event,) = parse_file("x.log", [text + "\n"], Context(**context))
    return event


def lines_of(text: str) -> list[bytes]:
    return [line.strip().encode() + b"\n" for line in text.strip().splitlines()]


def us(text: str) -> int:
    """us of an ISO time with its offset."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


def wrong(events: Iterable[Event]) -> list[str]:
    """What the schema does not allow in the columns that writers give."""
    return [
        fault for event in events for fault in faults({key: value for key, value in event.items() if key in _WRITTEN})
    ]
