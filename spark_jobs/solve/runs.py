"""A client's run: one line for many messages (pure).

`msg_id` is the first, `attrs.last` the last; the row's times are those of the first message, `attrs.last_ts_mono` is
when the last one happened.  Parsers add `producer`, `pub_first`, `pub_last`.  In between the
messages are taken to be equally far apart; a writer goes on with a run only while that is at most 1 ms from the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_jobs.schema import Event

_OF_RUNS: Final = ("last", "count", "last_ts_mono")


def span(event: Event) -> int:
    """µs from the first message of a row to its last."""
    last = (event.get("attrs") or {}).get("last_ts_mono")
    begin = event.get("ts_mono")
    return max(0, int(last) - begin) if last is not None and begin is not None else 0


def expand(event: Event) -> Iterator[Event]:
    """One row a message; a row that is no run is given as it is."""
    producer, first, last = event.get("producer"), event.get("pub_first") or 0, event.get("pub_last") or 0
    if producer is None or last <= first:
        yield event
        return
    length, count = span(event), last - first + 1
    attrs = {name: value for name, value in (event.get("attrs") or {}).items() if name not in _OF_RUNS}
    for index in range(count):
        later = length * index // (count - 1)
        number = first + index
        row = {**event, "msg_id": f"{producer}:{number}", "pub_first": number, "pub_last": number, "attrs": attrs}
        for clock in ("ts_wall", "ts_mono", "ts_est"):
            if row.get(clock) is not None:
                row[clock] += later
        yield row
