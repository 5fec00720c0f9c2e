"""Documents of a report, made by hand, and the program run on them in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli.main import main

FORMAT = "failover-report 1.0"
T0 = 1_780_315_200_000_000
"""2026-06-01 12:00:00 UTC, us"""
Row = dict[str, Any]


def phase(name: str, ms: float | None, error: float | None = 0.0, **more: Any) -> Row:
    """A row of `phases`; `ms` None: not known, `error` None: its bounds are not."""
    us = None if ms is None else round(ms * 1000)
    lo = hi = None
    if us is not None and error is not None:
        lo, hi = us - round(error * 1000), us + round(error * 1000)
    bounds = {"duration_us": us, "duration_lo_us": lo, "duration_hi_us": hi}
    return {
        "phase": name,
        "known": us is not None,
        "note": "" if us is not None else "no line says it",
        **bounds,
        **more,
    }


def outage(client: str, ms: float, censored: bool = False) -> Row:
    return {"client_id": client, "ts_begin": T0, "ts_end": T0 + round(ms * 1000), "censored": censored}


TOTAL: Row = {
    "attempts": 100, "confirmed": 98, "lost": 0, "unaccounted": 0, "explained": 0, "unexpected": 0, "unlogged": 0,
    "duplicated": 0, "redelivered": 0, "resend": 0, "unmarked": 0, "recovered": 0,
}  # fmt: skip


def incident(number: int = 1, **parts: Any) -> Row:
    """A clean fail-over in which all is well."""
    return {
        "format": FORMAT,
        "number": number,
        "cluster": "made",
        "workspace": "work",
        "incident": {
            "type": "crash", "old_primary": "node1", "new_primary": "node2", "promotions": 1, "dual": "excluded",
            "total_us": 2_281_000, "begin": T0, "end": T0 + 3_000_000,
        },
        "phases": [phase("detection", 1208, 4), phase("fencing", 352, 4), phase("promotion", 172, 8)],
        "dual": [],
        "hints": [],
        "events": [],
        "outages": [outage("p1", 2300)],
        "outage_union": {"any_down": 2_300_000, "all_down": 2_100_000, "clients": 3},
        "messages": {"summary": [], "total": dict(TOTAL), "causes": [], "verdicts": [], "more": 0},
    } | parts  # fmt: skip


def with_total(**counts: int) -> Row:
    return {"total": TOTAL | counts}


def overview(*incidents: Row, **parts: Any) -> Row:
    rows = [{"number": one["number"], **one["incident"], "lost": 0} for one in incidents]
    slowest = [row for one in incidents for row in one["outages"]]
    longest = max((row["ts_end"] - row["ts_begin"] for row in slowest), default=0)
    outages = {"clients": 3, "count": len(slowest), "longest_us": longest, "never_back": 0, "slowest": slowest}
    return {"format": FORMAT, "incidents": rows, "messages": with_total(), "outages": outages} | parts


def written(place: Path, *documents: Row) -> Path:
    """OUT."""
    place.mkdir(parents=True, exist_ok=True)
    for document in documents:
        name = "report.json" if "incidents" in document else f"incident-{document['number']}.json"
        (place / name).write_text(json.dumps(document))
    return place


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


class Program:
    """`program("check", out, "--max-lost", "0")`"""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> Said:
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        said = self._capsys.readouterr()
        return Said(code, said.out, said.err)
