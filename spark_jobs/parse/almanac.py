"""The clocks according to all files together: each node's zone, each file's year (pure).

Order of trust.  Zone: as given by the user; references of the node's own clock; fresh changes of the CIB; the other
nodes' zone if they agree; UTC.  Year of a file: its own references; years in its texts; its modification time if that
is close to the last line; the other files of the bundle; its modification time; `now`.  Assumptions are listed in
`notes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_jobs.parse.heads import DAY, HOUR, SECOND, dated
from spark_jobs.parse.survey import Stream, Survey, rotation, stem
from spark_jobs.parse.years import (
    ASSUMED,
    EXACT,
    GIVEN,
    JUMP,
    LIKELY,
    UTC_ZONE,
    Zone,
    fixed,
    latest_year,
    nearest_year,
    stepped,
    zone_named,
)

ALL_NODES = "*"
ENOUGH_TICKS = 20
MAX_AHEAD = 26 * HOUR
"""A local time text is at most this far ahead of the file's modification time (zones are at most 14 h east)."""


@dataclass(frozen=True)
class Note:
    """What was concluded about a node's or a file's time, and how sure it is (see `years`)."""

    about: str
    text: str
    certainty: str


@dataclass(frozen=True)
class Start:
    """What a reader knows before the first line of one node in one file."""

    year: int | None = None
    fold: int = 0
    transition: Mapping[str, str] = field(default_factory=dict)
    planned: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Almanac:
    """`resolutions`: (node, format) -> us, where the clock is coarser than its text."""

    zones: Mapping[str, Zone] = field(default_factory=dict)
    starts: Mapping[tuple[str, str], Start] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    resolutions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()


def almanac(
    surveys: Iterable[Survey], zones: Mapping[str, str], modified: Mapping[str, int], now: int | None
) -> Almanac:
    """Puts the surveys of a bundle together.  `zones`: node (or `*`) -> zone; `modified`: file -> us; `now` in us.

    Raises ZoneError for an unknown zone.
    """
    found = sorted(surveys, key=lambda item: item.file)
    streams = [stream for item in found for _, stream in sorted(item.streams.items())]
    years, notes = _years(streams, modified, now)
    known, more = _zones(streams, years, zones)
    return Almanac(
        known,
        _starts(streams, years, known),
        _numbers(found),
        _resolutions(streams),
        frozenset(item.file for item in found),
        (*notes, *more),
    )


def _years(
    streams: list[Stream], modified: Mapping[str, int], now: int | None
) -> tuple[dict[tuple[str, str], int], list[Note]]:
    years: dict[tuple[str, str], int] = {}
    notes: list[Note] = []
    for stream in streams:
        if own := _own_year(stream, modified.get(stream.file)):
            years[stream.file, stream.node], text, certainty = own
            if certainty != EXACT:
                notes.append(Note(stream.file, f"year of {stream.node}'s first line {own[0]}, {text}", certainty))
    middle = _middle([stream for stream in streams if (stream.file, stream.node) in years], years)
    for stream in streams:
        if (stream.file, stream.node) not in years:
            year, text = _other_year(stream, middle, modified.get(stream.file), now)
            if year is not None:
                years[stream.file, stream.node] = year
            notes.append(Note(stream.file, f"year of {stream.node}'s first line {year or 'unknown'}, {text}", ASSUMED))
    return years, notes


def _own_year(stream: Stream, modified: int | None) -> tuple[int, str, str] | None:
    if stream.sure:
        counts: Counter[int] = Counter()
        for span in stream.sure:
            counts[span.year] += span.count
        return _most(counts), "from references", EXACT
    if stream.fresh:
        return _most(Counter({year: n for (_, year), n in stream.fresh.items()})), "from changes of the CIB", LIKELY
    if stream.years:
        return _most(stream.years), "from dates in its texts", LIKELY
    if modified is not None:
        year = latest_year(stream.last, modified + MAX_AHEAD)
        last = dated(stream.last, year) if year is not None else None
        if year is not None and last is not None and modified - last <= 2 * DAY:
            return year - stream.wraps, "from the file's modification time", LIKELY
    return None


def _other_year(stream: Stream, middle: int | None, modified: int | None, now: int | None) -> tuple[int | None, str]:
    if middle is not None:
        return nearest_year(stream.first, middle), "that of the other files"
    for moment, text in ((modified, "the last before the file's modification time"), (now, "the last before now")):
        if moment is not None:
            year = latest_year(stream.last, moment + MAX_AHEAD)
            return (year - stream.wraps if year is not None else None), text
    return None, "no reference, no modification time: its lines have no time"


def _most(counts: Counter[int]) -> int:
    return max(counts.items(), key=lambda item: (item[1], item[0]))[0]


def _middle(streams: list[Stream], years: Mapping[tuple[str, str], int]) -> int | None:
    """The middle one of the known files' last lines, us."""
    ends = sorted(
        real for item in streams if (real := dated(item.last, years[item.file, item.node] + item.wraps)) is not None
    )
    return ends[len(ends) // 2] if ends else None


def _zones(
    streams: list[Stream], years: Mapping[tuple[str, str], int], given: Mapping[str, str]
) -> tuple[dict[str, Zone], list[Note]]:
    zones: dict[str, Zone] = {}
    notes: list[Note] = []
    nodes = sorted({stream.node for stream in streams} | (set(given) - {ALL_NODES}))
    for node in nodes:
        proved = _proved([stream for stream in streams if stream.node == node], years)
        if text := given.get(node, given.get(ALL_NODES, "")):
            zones[node] = zone_named(text)
            notes.append(_compared(node, text, zones[node], proved))
        elif proved is not None:
            zones[node], certainty, reason = proved
            notes.append(Note(node, f"zone of {node} {zones[node]}, {reason}", certainty))
    agreed = set(zones.values())
    for node in nodes:
        if node not in zones:
            zones[node] = next(iter(agreed)) if len(agreed) == 1 else UTC_ZONE
            reason = "as the other nodes'" if len(agreed) == 1 else "nothing says otherwise"
            notes.append(
                Note(
                    node,
                    f"zone of {node} assumed {zones[node] if zones[node] != UTC_ZONE else 'UTC'}, {reason}",
                    ASSUMED,
                )
            )
    return zones, notes


def _compared(node: str, text: str, zone: Zone, proved: tuple[Zone, str, str] | None) -> Note:
    if proved is None or proved[0] == zone or (zone.key and proved[1] != EXACT):
        return Note(node, f"zone of {node} {text}, given", GIVEN)
    first = proved[0].steps[0][1]
    later = proved[0].steps[-1][0]
    agrees = zone.offset(later + first * SECOND if later > 0 else 0) == first if zone.key else False
    doubt = "" if agrees else f"; its own references say {proved[0]}"
    return Note(node, f"zone of {node} {text}, given{doubt}", GIVEN)


def _proved(streams: list[Stream], years: Mapping[tuple[str, str], int]) -> tuple[Zone, str, str] | None:
    spans: list[tuple[int, int, int, int]] = []
    jumps: list[tuple[int, int]] = []
    for stream in streams:
        year = years.get((stream.file, stream.node))
        if year is None:
            continue
        for span in stream.sure:
            first, last = _real(span.first, span.year), _real(span.last, span.year)
            spans.append((first - span.offset * SECOND, first, last, span.offset))
        jumps += [(_real(before, year), _real(after, year)) for before, after in stream.jumps]
    if spans:
        spans.sort()
        count = sum(span.count for stream in streams for span in stream.sure)
        return stepped([span[1:] for span in spans], jumps), EXACT, f"from {count} references"
    votes: Counter[int] = Counter()
    for stream in streams:
        for (offset, _), count in stream.fresh.items():
            votes[offset] += count
    if votes and (best := _most(votes)) is not None and votes[best] >= 2 and votes[best] * 5 >= votes.total() * 3:
        return fixed(best), LIKELY, f"from {votes[best]} of {votes.total()} changes of the CIB"
    return None


def _real(place: tuple[int, int], year: int) -> int:
    real = dated(place[1], year + place[0])
    return real if real is not None else 0


def _starts(
    streams: list[Stream], years: Mapping[tuple[str, str], int], zones: Mapping[str, Zone]
) -> dict[tuple[str, str], Start]:
    """What each part of a log begins with: the parts of a rotated log, in their order, tell it one another."""
    starts: dict[tuple[str, str], Start] = {}
    logs: dict[tuple[str, str], list[Stream]] = {}
    for stream in sorted(streams, key=lambda stream: rotation(stream.file)):
        logs.setdefault((stem(stream.file), stream.node), []).append(stream)
    for (_, node), parts in logs.items():
        running: dict[str, str] = {}
        following = [*parts[1:], None]
        folds = _folds(parts, years, zones[node])
        for part, fold, then in zip(parts, folds, following, strict=True):
            year, planned = years.get((part.file, node)), dict(then.planned) if then is not None else {}
            starts[part.file, node] = Start(year, fold, dict(running), planned)
            running |= part.transition
    return starts


def _folds(parts: list[Stream], years: Mapping[tuple[str, str], int], zone: Zone) -> list[int]:
    """In which pass of a repeated hour each part begins."""
    folds: list[int] = []
    before: tuple[int, int] | None = None  # local time and pass of the last line of the part before
    for part in parts:
        year = years.get((part.file, part.node))
        if year is None:
            folds.append(0)
            before = None
            continue
        first, last = _real((0, part.first), year), _real((part.wraps, part.last), year)
        turns = any(zone.ambiguous(_real(a, year)) and zone.ambiguous(_real(b, year)) and b < a for a, b in part.jumps)
        folds.append(0 if not zone.ambiguous(first) else _begins(part, first, before, zone))
        ends = 1 if turns or (folds[-1] and last - first < 2 * HOUR) else 0
        before = (last, ends) if zone.ambiguous(last) else None
    return folds


def _begins(part: Stream, first: int, before: tuple[int, int] | None, zone: Zone) -> int:
    """The pass of a part's first line, in the repeated hour: its own references know, else the part before does."""
    if part.sure:
        calibrated = _real(part.sure[0].first, part.sure[0].year)
        early = not any(after <= part.sure[0].first for _, after in part.jumps)
        if zone.ambiguous(calibrated) and early and part.sure[0].offset == zone.offset(calibrated, 1):
            return 1
    if before is None or abs(before[0] - first) > 2 * HOUR:
        return 0
    return 1 if first < before[0] - JUMP else before[1]


def _numbers(surveys: list[Survey]) -> dict[str, str]:
    """Corosync's numbers of nodes; a number that two nodes have (logs of several clusters) names none."""
    names: dict[str, set[str]] = {}
    for item in surveys:
        for number, name in item.numbers.items():
            names.setdefault(number, set()).add(name)
    return {number: found.pop() for number, found in sorted(names.items()) if len(found) == 1}


def _resolutions(streams: list[Stream]) -> dict[tuple[str, str], int]:
    """Clocks whose neighbouring readings differ by multiples of a tick only (the kernel's coarse clock).

    Not quite all: a clock that NTP slews loses its phase now and then.  A fine one would have a quarter of them.
    """
    counts: dict[tuple[str, str], Counter[int]] = {}
    for stream in streams:
        for format_, ticks in stream.ticks.items():
            counts.setdefault((stream.node, format_), Counter()).update(ticks)
    return {
        key: tick * 1000
        for key, ticks in counts.items()
        for tick in (4, 10)
        if ticks[1] >= ENOUGH_TICKS and ticks[tick] >= 0.95 * ticks[1]
    }
