"""What a report made from the logs must have found of a trial, whose truth is known from outside.             Shell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.pacemaker.judge import Effect, Report

BEFORE: Final = 2.0
"""Seconds before an event that its incident may begin: the last sign of life is the earliest bound of the fault."""

CLOCKS: Final = 0.01
"""Seconds by which the report may place the same event of a broker earlier than the judge does."""

Row = Mapping[str, Any]


def missed(report: Report, zero: float, out: Path) -> list[str]:
    """Fail-overs of which the report knows nothing, or not the same.  `zero`: seconds since 1970 at which
    CLOCK_MONOTONIC was 0; `out`: of `failover-report`."""
    rows = json.loads((out / "report.json").read_text())["incidents"]
    return [line for effect in report.effects for line in _about(effect, zero, rows)]


def _about(effect: Effect, zero: float, rows: Sequence[Row]) -> Iterator[str]:
    # Of the broker itself: Pacemaker hears of it up to a monitor later, and an incident may be over by then.
    promoted = effect.phases.moments.get("primary")
    if promoted is None:
        return
    event = zero + effect.happening.moment / 1e6
    mine = [row for row in rows if row["failover"] and _covers(row, event, event + promoted)]
    if not mine:
        found = [(row["type"], row["begin"] / 1e6 - event, (row["end"] or 0) / 1e6 - event) for row in rows]
        yield f"failover-report has no fail-over for: {effect.happening.text}; {promoted:.3f} s, it has {found}"


def _covers(row: Row, event: float, promoted: float) -> bool:
    ends_late = row["end"] is None or row["end"] / 1e6 >= promoted - CLOCKS
    return row["begin"] / 1e6 <= promoted and row["begin"] / 1e6 >= event - BEFORE and ends_late
