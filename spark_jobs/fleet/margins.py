"""How close the fleet came to two primaries at once (pure).

The margin of a fail-over is the time from the old primary's certain end to the new one's begin, in ms: "fencing beat
promotion by 12 ms".  A negative one is an overlap.  It is *near* below a limit, and *unsure* if the clocks and the logs
leave it open whether there was any.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from statistics import median
from typing import Any, Final

from spark_jobs.fleet import compare
from spark_jobs.fleet.record import Row

SMALLEST: Final = 10
"""Fail-overs; fewer have no trend.  It is that within clusters: one that joins with small margins is no trend."""


def margins(rows: Sequence[Row], near_ms: float, seed: int, shuffles: int) -> dict[str, Any]:
    """Rows by time.  `p` of the trend is that of margins that come in an order by chance."""
    asked = [row for row in rows if row["dual"] is not None]
    known = [row for row in asked if row["margin_ms"] is not None]
    verdicts = Counter(row["dual"] for row in asked)
    least = min(known, key=lambda row: (row["margin_ms"], row["incident"]), default=None)
    return {
        "n": len(asked),
        "known": len(known),
        **{verdict: verdicts[verdict] for verdict in ("excluded", "possible", "certain")},
        "near_ms": near_ms,
        "near": sum(row["margin_ms"] < near_ms for row in known),
        "unsure": sum(
            row["margin_ms"] >= 0 and (row["margin_lo_ms"] is None or row["margin_lo_ms"] < 0) for row in known
        ),
        "least_ms": least["margin_ms"] if least else None,
        "least_incident": least["incident"] if least else None,
        "least_cluster": least["cluster"] if least else None,
        "median_ms": median(row["margin_ms"] for row in known) if known else None,
        "months": _months(known, near_ms),
        **_trend(known, seed, shuffles),
    }


def _months(known: Sequence[Row], near_ms: float) -> list[dict[str, Any]]:
    def month(row: Row) -> str:
        return datetime.fromtimestamp(row["begin"] // 1_000_000, UTC).strftime("%Y-%m")

    found = []
    for name, group in groupby(known, key=month):
        listed = list(group)
        values = [row["margin_ms"] for row in listed]
        near = sum(value < near_ms for value in values)
        found.append(
            {"month": name, "n": len(values), "least_ms": min(values), "median_ms": median(values), "near": near}
        )
    return found


def _trend(known: Sequence[Row], seed: int, shuffles: int) -> dict[str, Any]:
    bounded = [row for row in known if row["margin_lo_ms"] is not None]
    sizes = Counter(map(_stratum, bounded))
    if sum(size for size in sizes.values() if size > 1) < SMALLEST:
        return {"trend": "too few", "trend_p": None}
    values = [
        compare.Value(
            row["margin_lo_ms"], math.inf if row["margin_hi_ms"] is None else row["margin_hi_ms"], _stratum(row)
        )
        for row in bounded
    ]
    p, direction = compare.trend(values, seed, shuffles)
    word = {1: "growing", 0: "no trend shown", -1: "shrinking"}[direction if p <= 0.05 else 0]
    return {"trend": word, "trend_p": p}


def _stratum(row: Row) -> tuple[str, str]:
    return row["cluster"] or "", row["type"] or ""
