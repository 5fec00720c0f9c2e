"""Local time texts to microseconds of UTC: zones, years, and the state machine over the lines of one file (pure).

A `LineClock` reads the lines of one node in one file, in order.  Its states are the year and, inside the hour that
an autumn repeats, the pass (`fold` 0, then 1).  Invariants:

    * two neighbouring lines are never half a year apart: January after December is the next year, and a late line
      of December after January belongs to the old one;
    * inside an ambiguous hour the second pass begins with a jump back of more than 25 minutes, and ends with the hour;
    * a line with its own offset (RFC 3339) sets the state and needs none.

What a clock starts with (year, pass, zone) is found by `almanac` from all files together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from spark_jobs.parse.heads import DAY, MINUTE, SECOND, dated, offset_of

QUARTER = 15 * MINUTE
"""Offsets of zones are multiples of it, and zones change their offset at one."""
JUMP = 25 * MINUTE
HALF_YEAR = 182 * DAY
GIVEN, EXACT, LIKELY, ASSUMED = "given", "exact", "likely", "assumed"
"""The certainty of a conclusion: given by the user; proved by the logs; likely from the logs; the default."""
_EPOCH = datetime(1970, 1, 1)
_OFFSET = re.compile(r"[+-]\d\d:?\d\d$|Z$")


class ZoneError(ValueError):
    """An unknown zone: names the text, and the expected form."""


@dataclass(frozen=True)
class Zone:
    """`key`: of the zone database, or empty and then `steps`: (from us UTC, seconds east), ascending in time."""

    key: str = ""
    steps: tuple[tuple[int, int], ...] = ((-(1 << 62), 0),)

    def offset(self, local: int, fold: int = 0) -> int:
        """Seconds east of UTC at a local time (us since 1970), in the first or second pass of a repeated hour."""
        if self.key:
            return _named_offset(self.key, local // QUARTER, fold)
        fitting = [offset for offset, begin, end in self._spans() if begin <= local - offset * SECOND < end]
        if fitting:
            return fitting[-1 if fold else 0]
        # the hour skipped in spring: no clock showed it, so the zone must be wrong
        return [offset for offset, begin, _ in self._spans() if begin <= local - offset * SECOND or begin < 0][-1]

    def ambiguous(self, local: int) -> bool:
        """Whether the local time comes twice."""
        return self.offset(local, 0) > self.offset(local, 1)

    def _spans(self) -> list[tuple[int, int, int]]:
        ends = [begin for begin, _ in self.steps[1:]] + [1 << 62]
        return [(offset, begin, end) for (begin, offset), end in zip(self.steps, ends, strict=True)]

    def __str__(self) -> str:
        return self.key or ", then ".join(dict.fromkeys(offset_text(offset) for _, offset in self.steps))


UTC_ZONE = Zone()


@lru_cache(maxsize=4096)
def _named_offset(key: str, quarter: int, fold: int) -> int:
    moment = (_EPOCH + timedelta(minutes=15 * quarter)).replace(tzinfo=ZoneInfo(key), fold=fold)
    difference = moment.utcoffset()
    return int(difference.total_seconds()) if difference is not None else 0


def fixed(offset: int) -> Zone:
    """The zone that is always `offset` seconds east of UTC."""
    return Zone(steps=((-(1 << 62), offset),))


def zone_named(text: str) -> Zone:
    """A zone as the user gives it: `Europe/Berlin`, `UTC`, `+08:00`.  Raises ZoneError."""
    if _OFFSET.match(text):
        return fixed(offset_of(text))
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as error:
        raise ZoneError(f"zone {text!r}: wanted a name such as Europe/Berlin, or an offset such as +08:00") from error
    return Zone(key=text)


def zone_text(zone: tzinfo) -> str:
    """A zone of Python's as `zone_named` takes it."""
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    difference = zone.utcoffset(None)
    return offset_text(int(difference.total_seconds()) if difference is not None else 0).removeprefix("UTC")


def offset_text(offset: int) -> str:
    """`UTC+08:00`."""
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"UTC{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}"


def rounded(difference: int) -> int:
    """The zone's offset (seconds) that explains best that a local time is `difference` us ahead of UTC."""
    return (difference + QUARTER // 2) // QUARTER * (QUARTER // SECOND)


def nearest_year(local: int, moment: int) -> int | None:
    """The year that puts a nominal local time nearest to a moment (us UTC); None if no year near has that day."""
    middle = year_of(moment)
    found = [(abs(real - moment), year) for year in range(middle - 2, middle + 3) if (real := dated(local, year))]
    return min(found)[1] if found else None


def latest_year(local: int, moment: int) -> int | None:
    """The last year that does not put a nominal local time after a moment (us UTC)."""
    found = [
        year
        for year in range(year_of(moment) - 4, year_of(moment) + 2)
        if (real := dated(local, year)) is not None and real <= moment
    ]
    return max(found, default=None)


def year_of(moment: int) -> int:
    return datetime.fromtimestamp(moment // SECOND, UTC).year


def wrap(previous: int, local: int) -> int:
    """How many years pass between two neighbouring lines (nominal local times): -1, 0 or 1."""
    if local < previous - HALF_YEAR:
        return 1
    return -1 if local > previous + HALF_YEAR else 0


class LineClock:
    """The clock of one node's lines in one file; see the module's text for its states."""

    def __init__(self, zone: Zone, year: int | None, fold: int = 0) -> None:
        self.zone = zone
        self.year = year
        self.fold = fold
        self._nominal: int | None = None
        self._real: int | None = None

    def utc(self, local: int) -> int | None:
        """us of UTC of the next line's nominal local time; None while the year is unknown."""
        if self.year is None:
            return None
        if self._nominal is not None:
            self.year += wrap(self._nominal, local)
        real = dated(local, self.year)
        if real is None:
            return None
        self._turn(real)
        self._nominal, self._real = local, real
        return real - self.zone.offset(real, self.fold) * SECOND

    def seen(self, local: int, utc: int, offset: int) -> None:
        """A line that says its own UTC time (us) and offset (seconds)."""
        self._nominal, self._real = local, utc + offset * SECOND
        self.year = year_of(self._real)
        self.fold = int(self.zone.ambiguous(self._real) and offset == self.zone.offset(self._real, 1))

    def _turn(self, real: int) -> None:
        if not self.zone.ambiguous(real):
            # the first line keeps the pass that it was given only if its hour has two
            self.fold = 0
        elif self._real is not None and real < self._real - JUMP and self.zone.ambiguous(self._real):
            self.fold = 1


def stepped(spans: Sequence[tuple[int, int, int]], jumps: Sequence[tuple[int, int]]) -> Zone:
    """A zone from what calibrated lines say: `spans` are (first local, last local, offset in seconds), in order.

    `jumps`: neighbouring lines (local before, local after) that are far apart.  Where the offset changes between two
    spans, the change lies in a jump that has room for it, at a quarter of an hour; without one, in the middle.
    """
    steps = [(-(1 << 62), spans[0][2])]
    for (_, before, old), (after, _, new) in pairwise(spans):
        if new != old:
            steps.append((_change(before, after, old * SECOND, new * SECOND, jumps), new))
    return Zone(steps=tuple(steps))


def _change(before: int, after: int, old: int, new: int, jumps: Sequence[tuple[int, int]]) -> int:
    low, high = before - old, after - new
    rooms = [(left - old, right - new) for left, right in jumps if low <= left - old <= right - new <= high]
    # the tightest room first: a change that falls between two busy lines leaves it seconds
    for begin, end in [*sorted(rooms, key=lambda room: room[1] - room[0]), (low, high)]:
        for grid in (4 * QUARTER, QUARTER):
            moment = -(-begin // grid) * grid
            if moment <= end:
                return moment
    return (low + high) // 2
