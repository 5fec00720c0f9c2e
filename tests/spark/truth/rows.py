"""Single facts, for tests of one rule: times in s, bounds as wide as wanted."""

from __future__ import annotations

from typing import Any

from spark_jobs.schema import Event


def fact(node: str, at: float, kind: str, error: float = 0.0, source: str = "broker", **columns: Any) -> Event:
    """`error`: half width of its bounds in s."""
    us, half = round(at * 1e6), round(error * 1e6)
    attrs = {name: str(value) for name, value in columns.pop("attrs", {}).items()}
    return {
        "node": node,
        "source": source,
        "kind": kind,
        "ts_wall": us,
        "ts_est": us,
        "ts_lo": us - half,
        "ts_hi": us + half,
        "ts_res": 1,
        "attrs": attrs,
        "file": f"{node}.log",
        "line_no": us // 1000,
        **columns,
    }


def timed(event: Event) -> Event:
    """With bounds from its resolution alone: of one clock."""
    wall, resolution = event["ts_wall"], max(event.get("ts_res") or 1, 1)
    return {**event, "ts_est": wall, "ts_lo": wall, "ts_hi": wall + resolution - 1}


def promoted(node: str, at: float, term: int, error: float = 0.0, **columns: Any) -> Event:
    return fact(node, at, "promoted", error, term=term, **columns)
