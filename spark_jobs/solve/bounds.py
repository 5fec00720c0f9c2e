"""A stretch of time between two lines, and how long it was for certain (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.schema import Event
from spark_jobs.solve.signs import UNKNOWN


@dataclass(frozen=True)
class Bound:
    """us; `line`: the line that says it, None if it is computed or from the clients' outages (`said`)."""

    est: int
    lo: int
    hi: int
    line: Event | None = None
    said: str = ""

    @staticmethod
    def of(event: Event) -> Bound:
        return Bound(event["ts_est"], event["ts_lo"], event["ts_hi"], event)

    def earlier(self, by: int, said: str) -> Bound:
        return Bound(self.est - by, self.lo - by, self.hi - by, None, said)


@dataclass(frozen=True)
class Phase:
    """`at_least`: us; it had begun and not ended when the logs or the incident did, and took so long at least."""

    name: str
    begin: Bound | None = None
    end: Bound | None = None
    note: str = ""
    at_least: int | None = None

    @property
    def known(self) -> bool:
        return self.duration is not None

    @property
    def duration(self) -> int | None:
        """us; never below 0: where only the estimates are in the wrong order, none of it is certain.  None if the end
        was certainly before the begin: then these lines are not its bounds."""
        if self.begin is None or self.end is None:
            return None
        near = _on_one_clock(self.begin, self.end)
        length, error = near or (self.end.est - self.begin.est, None)
        most = self.end.hi - self.begin.lo if error is None else length + error
        return max(0, length) if most >= 0 else None

    @property
    def limits(self) -> tuple[int, int] | None:
        """us: the duration is certainly between them; None if the clocks are unknown."""
        if self.begin is None or self.end is None or not self.known or self.end.hi - self.begin.lo > UNKNOWN:
            return None
        near = _on_one_clock(self.begin, self.end)
        if near is not None:
            return max(0, near[0] - near[1]), near[0] + near[1]
        return max(0, self.end.lo - self.begin.hi), self.end.hi - self.begin.lo


def _on_one_clock(begin: Bound, end: Bound) -> tuple[int, int] | None:
    """(length, error) in us by the one clock of two lines of one node; None if they have none in common."""
    one, other = begin.line, end.line
    if one is None or other is None or one.get("node") != other.get("node"):
        return None
    if one.get("boot_id") == other.get("boot_id") and None not in (one.get("ts_mono"), other.get("ts_mono")):
        return other["ts_mono"] - one["ts_mono"], 0
    length = int(other["ts_wall"] - one["ts_wall"])
    error = max(one.get("ts_res") or 1, other.get("ts_res") or 1) - 1
    # a clock that was set in between does not say how long it was
    fits = end.lo - begin.hi <= length + error and length - error <= end.hi - begin.lo
    return (length, error) if fits else None
