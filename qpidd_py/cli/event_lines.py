"""What `qpid-printevents` asks a broker, and what it prints.                                                    Pure.

    {"time": µs, "broker": "node1:5672", "number": 17, "event": "queueDeclare", "queue": "orders", ...}
    2026-11-24 09:00:00.123456 node1:5672 queueDeclare queue=orders durable=true user=anna

Events of the tool itself have no number:

    brokerUp          it answers
    brokerDown        it does not any more, or not yet; reason
    brokerRestarted   its numbers begin anew
    missed            so many (count) were forgotten before they could be asked for
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from re import Pattern
from typing import Any, Final

Row = dict[str, Any]
WAIT: Final = 10.0
"""Seconds that a broker waits for an event."""
_HEAD: Final = ("time", "broker", "number", "event")


class Follow:
    """How far one broker was read."""

    def __init__(self, broker: str, since: int | None, now: int) -> None:
        """`since`: the number of the last event that is not wanted; None: none are wanted from before `now`."""
        self._broker = broker
        self._after = since
        self._began = now if since is None else 0
        self._history = ""
        self._up: bool | None = None

    def request(self) -> Row:
        """The arguments of `event.list`."""
        if self._after is None:
            return {}
        return {"after": self._after, "wait": WAIT, **({"history": self._history} if self._history else {})}

    def up(self, now: int) -> list[Row]:
        """It answers; `now` in µs since 1970."""
        before, self._up = self._up, True
        return [] if before else [self._row(now, "brokerUp")]

    def down(self, now: int, reason: str) -> list[Row]:
        """Told once.  Of a broker that comes later, what it did until it answered is wanted."""
        before, self._up = self._up, False
        self._after = self._after or 0
        return [] if before is False else [self._row(now, "brokerDown", reason=reason)]

    def answered(self, now: int, result: Row) -> list[Row]:
        events: list[Row] = result["events"]
        rows = []
        if self._history not in ("", result["history"]):
            rows.append(self._row(now, "brokerRestarted"))
        if result["missed"] and (self._history or not self._began):
            rows.append(self._row(now, "missed", count=result["missed"]))
        self._history = result["history"]
        self._after = events[-1]["number"] if events else result["last"]
        news = (each for each in events if each["time"] >= self._began)
        return rows + [{"time": each["time"], "broker": self._broker, **each} for each in news]

    def _row(self, now: int, event: str, **fields: Any) -> Row:
        return {"time": now, "broker": self._broker, "event": event, **fields}


def line(row: Row) -> str:
    """Local time; nothing in it controls a terminal."""
    seconds, micros = divmod(row["time"], 1_000_000)
    when = f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}.{micros:06}"
    return f"{when} {row['broker']} {said(row)}"


def said(row: Row) -> str:
    """The event and its fields."""
    fields = (f"{name}={_value(value)}" for name, value in row.items() if name not in _HEAD)
    return " ".join((row["event"], *fields))


def wanted(row: Row, filters: Sequence[Pattern[str]]) -> bool:
    return not filters or any(each.search(said(row)) for each in filters)


def _value(value: Any) -> str:
    plain = isinstance(value, str) and value.isprintable() and not set(value) & {" ", '"', "="} and value != ""
    return value if plain else json.dumps(value)
