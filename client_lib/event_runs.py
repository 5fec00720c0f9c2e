"""Joins events of one kind into one line that still names every message (pure; times are arguments, in microseconds).

Theory.  Without joining, publish, resend, confirm, deliver and ack would be several lines per message.  Consecutive
events of one kind, queue, flags and place whose message ids are `PREFIX:n`, `PREFIX:n+1`, ... become one *run*: the
fields of the line are those of the first, `attrs.last` is the last id, `attrs.count` how many, `attrs.last_ts_mono`
when the last happened.

* Exact: a run stands for the ids first ... last, each once, and for no other.
* Even: a reader takes the times between the first and the last in equal steps, and is wrong by EVEN at most.  From the
  first message, each later one leaves open the slopes whose line passes it by no more than EVEN; the run goes on only
  to a message that lies on one of the slopes that all before it have left open ("swinging door").
* Ordered: runs are written in the order in which they began.  When a run ends, those that began earlier are written
  with it, and before a line of another kind all runs are written, so the order of lines (`seq`) never contradicts
  the times in them.  A confirm is never written before the publish or the disconnect that it followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RUN_MAX = 1000
"""Messages of one line."""
EVEN = 1000
"""How far, in microseconds, the time of a message may be from the one that a reader of its run computes."""


@dataclass(frozen=True, eq=False, slots=True)
class Where:
    """The channel that messages go over; one object a channel, compared by identity."""

    peer: str = ""
    conn_id: str = ""
    channel: str = ""

    def fields(self) -> dict[str, Any]:
        return {"peer": self.peer or None, "conn_id": self.conn_id or None, "channel": self.channel or None}


NOWHERE = Where()
RunKey = tuple[str, str, str, int, Where]
REDELIVERED, RESENT = 1, 2
"""Flags of a delivery; of all other kinds there is one, True: it was sent again."""


def split_id(message_id: str) -> tuple[str, int] | None:
    """The prefix and number of `PREFIX:n`, None for ids of another form (or with leading zeros)."""
    prefix, colon, digits = message_id.rpartition(":")
    if not colon or not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and digits != "0"):
        return None
    return prefix, int(digits)


def flag_fields(kind: str, flags: int) -> dict[str, bool]:
    """The columns for the flags of a message event."""
    if kind != "deliver":
        return {"resend": True} if flags else {}
    found = {"redelivered": flags & REDELIVERED, "resend": flags & RESENT}
    return {name: True for name, is_set in found.items() if is_set}


@dataclass(slots=True)
class Run:
    """Messages PREFIX:first ... PREFIX:last."""

    kind: str
    queue: str
    prefix: str
    flags: int
    where: Where
    first: int
    last: int
    wall: int
    mono: int
    last_mono: int
    low: float = 0.0
    high: float = float("inf")
    """The slopes that are open, in microseconds for each message."""

    def goes_on(self, mono: int) -> bool:
        """Takes the next message and returns True, if it happened when the run lets it."""
        steps = self.last + 1 - self.first
        slope, slack = (mono - self.mono) / steps, EVEN / steps
        if not self.low <= slope <= self.high or steps >= RUN_MAX:
            return False
        # Once for each message of a program: comparing is faster than min and max.
        if slope - slack > self.low:
            self.low = slope - slack
        if slope + slack < self.high:
            self.high = slope + slack
        self.last += 1
        self.last_mono = mono
        return True

    def follow(self, ids: Sequence[str | None], start: int, mono: int) -> int:
        """Takes the ids from ids[start] that continue the run, all of them at `mono`; returns the index of the first
        that does not.  As `Runs.add`, fast."""
        prefix, index = f"{self.prefix}:", start
        if index == len(ids) or ids[index] != prefix + str(self.last + 1) or not self.goes_on(mono):
            return index
        # Those that follow are on smaller slopes, and leave open more of the small ones than the first.
        limit = self.first + min(self._furthest(mono - self.mono), RUN_MAX - 1)
        index, number = index + 1, self.last + 1
        while index < len(ids) and number <= limit and ids[index] == prefix + str(number):
            index, number = index + 1, number + 1
        self.last = number - 1
        steps = self.last - self.first
        self.high = min(self.high, (mono - self.mono) / steps + EVEN / steps)
        return index

    def _furthest(self, span: int) -> int:
        """How many steps behind the first a message may be that comes `span` after it: the last on an open slope."""
        if self.low <= 0:
            return RUN_MAX
        steps = int(span / self.low) + 1
        while span / steps < self.low:
            steps -= 1
        return steps

    def fields(self) -> dict[str, Any]:
        fields = {"queue": self.queue, "msg_id": f"{self.prefix}:{self.first}", **self.where.fields()}
        if self.flags:
            fields.update(flag_fields(self.kind, self.flags))
        if self.last != self.first:
            fields["attrs"] = {
                "last": f"{self.prefix}:{self.last}",
                "count": self.last - self.first + 1,
                "last_ts_mono": self.last_mono,
            }
        return fields


class Runs:
    """Joins events to runs."""

    def __init__(self) -> None:
        self._open: dict[RunKey, Run] = {}  # in the order in which they began
        self._recent: dict[str, Run] = {}  # by kind; each is open

    def go_on(self, kind: str, queue: str, message_id: str | None, flags: int, mono: int, where: Where) -> bool:
        """Adds the message to the last run of its kind and returns True, if it continues that run.  As `add`, fast."""
        run = self._recent.get(kind)
        if run is None or run.queue != queue or run.flags != flags or run.where is not where:
            return False
        return message_id == f"{run.prefix}:{run.last + 1}" and run.goes_on(mono)

    def add(
        self, kind: str, queue: str, prefix: str, number: int, flags: int, mono: int, wall: int, where: Where = NOWHERE
    ) -> tuple[Run, list[Run]]:
        """Returns the run that now contains the message, and the runs to write now, in order."""
        key = (kind, queue, prefix, flags, where)
        run = self._open.get(key)
        if run is None:
            ended = []
        elif number == run.last + 1 and run.goes_on(mono):
            self._recent[kind] = run
            return run, []
        else:
            ended = self._take_until(key)
        run = self._open[key] = self._recent[kind] = Run(
            kind, queue, prefix, flags, where, number, number, wall, mono, mono
        )
        return run, ended

    def take(self) -> list[Run]:
        """All open runs, in their order."""
        runs = list(self._open.values())
        self._open.clear()
        self._recent.clear()
        return runs

    def _take_until(self, key: RunKey) -> list[Run]:
        taken = []
        self._recent.clear()
        for found in list(self._open):
            taken.append(self._open.pop(found))
            if found == key:
                break
        return taken
