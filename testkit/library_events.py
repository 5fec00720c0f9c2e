"""The client library's event log (`client_lib/events.py`) as a history that `judge.py` counts.  Pure.

An attempt is the *first* send of an id: a re-send of the same id after a fail-over is the library's own and would hide
a duplicate.  Queues are drained if every consumer has said so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from testkit import judge
from testkit.judge import Event, Verdict

_KINDS: Final = {"publish": "invoke", "resend": "invoke", "confirm": "ok", "deliver": "receive", "ack": "ack"}


@dataclass
class LibraryHistory:
    """Takes events of any number of clients, in any order; each about one message (runs unfolded)."""

    counted: judge.History = field(default_factory=judge.History)
    resent: int = 0
    drained: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    progress: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Client → moments of its confirms and deliveries, µs."""

    def add(self, events: Iterable[Event]) -> LibraryHistory:
        for event in events:
            if event["kind"] in _KINDS:
                self.counted.add([self._converted(event)])
            elif event["kind"] == "drain_end" and event.get("result") == "ok":
                self.drained.add(event["client_id"])
        return self

    def verdict(self) -> Verdict:
        return self.counted.verdict(bool(self.consumers) and self.consumers <= self.drained)

    def _converted(self, event: Event) -> dict[str, Any]:
        kind, client, moment = _KINDS[event["kind"]], event.get("client_id", ""), event.get("ts_mono", 0)
        again = event["kind"] == "resend" or bool(event.get("resend"))
        self.resent += kind == "invoke" and again
        if kind == "receive":
            self.consumers.add(client)
        if kind in ("ok", "receive"):
            self.progress[client].append(moment)
        mark = {"again": again} if kind == "invoke" else {"redelivered": event.get("redelivered"), "resent": again}
        return {"kind": kind, "id": event["msg_id"], "client": client, "t": moment, **mark}


def outage(times: Iterable[int], begin: int, end: int) -> float | None:
    """The longest pause of a client, in ms, of those that touch `begin` to `end`; None when it never came back.

    All arguments in µs of one monotonic clock; `times` are the moments of progress.
    """
    ordered = sorted(times)
    if not ordered or ordered[-1] < begin:
        return None
    touching = (later - earlier for earlier, later in pairwise(ordered) if later >= begin and earlier <= end)
    return max(touching, default=0) / 1000
