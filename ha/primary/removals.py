"""Events about messages removed without being consumed: dropped, expired, dead-lettered, purged.  Pure; times: seconds.

A row is a run of publisher ids: `msg_id` is the first, `attrs.last` the last, `attrs.count` their number, `first_pos`
and `last_pos` their positions in the log.  Messages without known ids, or whose ids make too many rows, share one row
without `msg_id`.  Only the primary writes these events, since only it decides about removals.

`attrs.at` is the position of the removal: the end of the log including the batch that carries it.  For gathered
removals it is the end of the log when they are written, and `attrs.since` the end of the log when the gathering began.
A removal beyond the position with which the next epoch began (`attrs.base` of `promoted`) did not survive: for the
cluster it has not happened.

Rows are written in the turn in which the messages are removed, before backups or clients are told.  At a steady high
rate (a full ring, a short time to live) this would fill the disk: after BURST rows, and above RATE rows a second,
removals are gathered for GATHERED seconds, so that runs grow long.  If this process dies, gathered removals are not
recorded; so a row without `msg_id` is written before, with `attrs.gathering`: rows of that queue may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ha.model.allowance import Allowance
from ha.model.environment import Environment
from qpidd_py.core import Engine, IdRuns

BURST: Final = 2000
RATE: Final = 20.0
GATHERED: Final = 1.0

Key = tuple[str, str, bool]
"""(queue, reason, becomes a dead letter), as reported by the engine."""

KINDS: Final = {
    "expired": ("expire", "expired"),
    "maxlen": ("drop", "maxlen"),
    "replaced": ("drop", "replaced"),
    "rejected": ("drop", "rejected"),
    "delivery_limit": ("drop", "delivery_limit"),
    "unroutable": ("drop", "unroutable"),
    "purged": ("purge", "purged"),
    "deleted": ("purge", "deleted"),
}
"""Engine's reason -> kind and reason of the event."""


def kind_of(reason: str, dead: bool) -> tuple[str, str]:
    return ("dead_letter", reason) if dead else KINDS[reason]


class Removals:
    """Removals during one time as primary."""

    def __init__(self, env: Environment, engine: Engine, burst: int = BURST, rate: float = RATE) -> None:
        self._env, self._engine = env, engine
        self._allowance = Allowance(burst, rate)
        self._written = env.now()
        self._announced: set[Key] = set()
        self._position = engine.position
        """The end of the log when rows were last written."""
        engine.on_removed = self._noticed

    def stop(self) -> None:
        self._write(self._env.now())
        self._engine.on_removed = None

    def tick(self, now: float) -> None:
        """Write gathered removals that are old enough; called several times a second."""
        if now - self._written >= GATHERED and self._engine.removing:
            self._write(now)

    def _noticed(self) -> None:
        """Called by the engine: messages are removed in this turn."""
        now = self._env.now()
        if self._allowance.is_left(now):
            self._write(now, {"at": self._engine.position})
            return
        for key in self._engine.removing:
            if key not in self._announced:
                self._announced.add(key)
                self._event(key, attrs={"gathering": "1", "at": self._engine.position})

    def _write(self, now: float, where: Mapping[str, int] | None = None) -> None:
        """`where`: the attributes `at` and `since`; None: those of the gathered removals."""
        where = where or {"at": self._engine.position, "since": self._position}
        self._written, self._position = now, self._engine.position
        for queue, reason, dead, runs in self._engine.removed():
            self._write_runs((queue, reason, dead), runs, where)

    def _write_runs(self, key: Key, runs: IdRuns, where: Mapping[str, int]) -> None:
        named, others = runs.named, runs.unnamed
        most = max(1, int(self._allowance.room))
        for first, last, count, low, high in named[:most]:
            self._event(
                key, first_pos=low, last_pos=high, msg_id=first, attrs={**run_attrs(first, last, count), **where}
            )
        for _, _, *rest in named[most:]:
            others = joined(others, (rest[0], rest[1], rest[2]))
        if others[0]:
            self._event(key, first_pos=others[1], last_pos=others[2], attrs={"count": others[0], **where})
        self._allowance.take(min(most, len(named)) + 1)

    def _event(self, key: Key, **fields: object) -> None:
        queue, reason, dead = key
        kind, reason = kind_of(reason, dead)
        self._env.event(kind, queue=queue, reason=reason, **fields)


def run_attrs(first: str, last: str, count: int) -> dict[str, object]:
    return {"count": count} if first == last else {"last": last, "count": count}


def joined(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    """(messages, lowest position, highest position) of both."""
    if not one[0]:
        return other
    return one[0] + other[0], min(one[1], other[1]), max(one[2], other[2])
