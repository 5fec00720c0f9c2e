"""`failover-report` as a second judge: the same logs must give the same verdict.                                Shell.

It reads the clients' histories as events (`client_events.py`) and the brokers' own segments.  What it counts is
compared with the campaign's checker, how long each producer stood still with `waiting.py`, and `check` has limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from demo import morning_after
from demo.morning_after import ReportFailed
from testkit import record
from testkit.judge import Verdict
from torture import client_events, waiting

SHORTEST: Final = 100_000
"""µs; outages below it are not reported."""
ERROR: Final = 1_000
"""µs that two accounts of one outage may differ by: the clock is one."""
PROMISED: Final = ("--no-dual-primary", "--max-lost", "0")

Event = Mapping[str, Any]
Row = Mapping[str, Any]


def contradictions(
    directory: Path, mode: str, verdict: Verdict, drained: bool, logs: Iterable[Path] | None = None, cut: bool = False
) -> list[str]:
    """Failures and differing counts; `verdict`: on the same clients; `directory`: of a run, the report comes into it;
    `logs`: of the brokers; `cut`: the ends of these went with the power, so what was lost may be "unaccounted"."""
    events, out = directory / "client-events", directory / "report"
    client_events.write(directory / "history", events, drained)
    brokers = sorted(directory.glob("node*/events")) if logs is None else list(logs)
    limits = () if mode == "availability" else PROMISED
    try:
        overview = morning_after.report([events, *brokers], out, "--engine", "duckdb", "--cluster", "torture")
        counted = asdict(verdict)
        if cut:
            total, counted = _gone(overview["messages"]["total"]), _gone(counted)
            overview = {**overview, "messages": {**overview["messages"], "total": total}}
        found = morning_after.differences(overview, counted)
        found += morning_after.check(out, "--max-unexpected", "0", *limits)
    except ReportFailed as error:
        found = [str(error)]
    else:
        found += outages_differ(record.read(directory / "history", apart=False), morning_after.rows(out, "outages"))
    return [f"failover-report: {line}" for line in found]


def _gone(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Lost and unaccounted for as one."""
    return {**counts, "lost": 0, "unaccounted": counts["lost"] + counts["unaccounted"]}


def outages_differ(history: Iterable[Event], rows: Iterable[Row]) -> Iterator[str]:
    """Standstills of producers that no row of `outages` has."""
    reported = [(row["client_id"], row["ts_begin"], row["ts_end"]) for row in rows]
    for client, events in groupby(history, key=lambda event: event["client"]):
        mine = list(events)
        offset = mine[0]["wall"] - mine[0]["t"]
        for begin, end in waiting.stood_still(mine, SHORTEST):
            at = begin + offset, end + offset
            if not any(name == client and _close(at, (b, e)) for name, b, e in reported):
                yield f"{client} stood still for {(end - begin) / 1e6:.3f} s at {begin / 1e6:.3f}, not reported"


def _close(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return all(abs(a - b) <= ERROR for a, b in zip(one, other, strict=True))
