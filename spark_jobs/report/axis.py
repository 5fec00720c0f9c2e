"""The time axis of a drawing (pure).  Times are us UTC, places px."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_jobs.report.units import DAY, HOUR, MINUTE, MS, SECOND, clock, date

_STEPS: Final = (
    *(step * MS for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(step * SECOND for step in (1, 2, 5, 10, 20, 30)),
    *(step * MINUTE for step in (1, 2, 5, 10, 20, 30)),
    *(step * HOUR for step in (1, 2, 3, 6, 12)),
    *(step * DAY for step in (1, 2, 5, 10, 30, 100, 365)),
)


@dataclass(frozen=True)
class Axis:
    begin: int
    end: int
    left: float
    right: float

    @property
    def width(self) -> float:
        return self.right - self.left

    def x(self, us: int) -> float:
        """At most the ends."""
        inside = min(max(us, self.begin), self.end)
        return self.left + (inside - self.begin) * self.width / max(1, self.end - self.begin)

    def shows(self, us: int) -> bool:
        return self.begin <= us <= self.end

    def ticks(self, apart: float) -> list[tuple[int, str]]:
        """Times at round values, at least `apart` px from each other, with labels that name no more than they need."""
        least = (self.end - self.begin) * apart / self.width
        step = next((step for step in _STEPS if step >= least), _STEPS[-1])
        first = -(-self.begin // step) * step
        return [(at, _label(at, step)) for at in range(first, self.end + 1, step)]


def _label(us: int, step: int) -> str:
    if step >= DAY:
        return date(us)
    if step >= MINUTE:
        return clock(us, 0)[:5]
    digits = 0 if step >= SECOND else 1 if step >= 100 * MS else 2 if step >= 10 * MS else 3
    return clock(us, digits)
