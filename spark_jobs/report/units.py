"""Times and durations as a person writes them (pure).  Times are us since 1970 UTC, durations us."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

MS: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
LAST: Final = 253_402_300_800 * SECOND
"""The end of the year 9999, us since 1970."""
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
UNKNOWN: Final = 1 << 60
"""Bounds beyond it are those of an unknown clock."""


def duration(us: int | None) -> str:
    """`172 ms`, `2.28 s`, `4 min 10 s`: three figures, or two units."""
    if us is None:
        return "unknown"
    if us < 0:
        return f"-{duration(-us)}"
    if us == 0:
        return "0 s"
    if us < 1000 * MS:
        return f"{us} µs" if us < MS else _figures(us / MS, "ms")
    if us < 99_950_000:
        return _figures(us / SECOND, "s")
    seconds = round(us / SECOND)
    if seconds < 7200:
        return _two(seconds // 60, "min", seconds % 60, "s")
    minutes = round(us / MINUTE)
    if minutes < 48 * 60:
        return _two(minutes // 60, "h", minutes % 60, "min")
    return _two(minutes // 1440, "d", minutes % 1440 // 60, "h")


def _figures(value: float, unit: str) -> str:
    """Three of them: 1.21, 12.1, 121; zeros that say nothing are left out."""
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    text = f"{value:.{digits}f}"
    if unit == "ms" and text == "1000":
        return "1 s"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def _two(big: int, unit: str, small: int, smaller: str) -> str:
    return f"{big} {unit} {small} {smaller}" if small else f"{big} {unit}"


def error(us: int | None, low: int | None, high: int | None) -> str:
    """`±2 ms`; `+2 ms / -0.4 ms` if the two sides differ; empty if there is none, `error unknown` if it is unknown."""
    if us is None:
        return ""
    if low is None or high is None or high - low > UNKNOWN:
        return "error unknown"
    below, above = us - low, high - us
    if max(below, above) <= 1:
        return ""
    if abs(below - above) <= max(below, above) / 5:
        return f"±{rough(max(below, above))}"
    return f"+{rough(max(0, above))} / -{rough(max(0, below))}"


def rough(us: int) -> str:
    """Of an error: two figures, rounded up."""
    step = 10 ** max(0, len(str(us)) - 2)
    return duration(-(-us // step) * step)


def with_error(us: int | None, low: int | None, high: int | None) -> str:
    """`172 ms ±8 ms`; as many figures as the error leaves."""
    unsure = error(us, low, high)
    if us is None or low is None or high is None or not unsure:
        return " ".join(filter(None, (duration(us), unsure)))
    return f"{_exact(us, max(us - low, high - us))} {unsure}"


def _exact(us: int, unsure: int) -> str:
    """With the digits of a second that the error leaves, but not fewer than `duration` gives."""
    plain = duration(us)
    if not SECOND <= abs(us) < 99_950_000 or unsure >= 10 * MS:
        return plain
    return f"{us / SECOND:.3f} s"


def signed(us: int | None) -> str:
    """`+344 ms`, `-1.19 s`, `0`"""
    if us is None:
        return "unknown"
    return "0" if us == 0 else duration(us) if us < 0 else f"+{duration(us)}"


def offset(us: int | None, unsure: int | None) -> str:
    """Of a clock: `+131 µs ±1.3 ms`."""
    if us is None or unsure is None:
        return "unknown"
    return f"{signed(us)} ±{rough(unsure)}" if unsure else signed(us)


def _dated(us: int) -> bool:
    """Of the calendar, not the bound of something without one (`clocks.segments.NEVER`, `FOREVER`)."""
    return 0 <= us < LAST


def date(us: int) -> str:
    return _moment(us).strftime("%Y-%m-%d") if _dated(us) else "unknown"


def clock(us: int, digits: int = 3) -> str:
    """`12:00:00.900`; `digits` of the second."""
    if not _dated(us):
        return "unknown"
    if digits <= 0:
        return _moment(us).strftime("%H:%M:%S")
    step = 10 ** (6 - digits)
    rounded = us // step * step
    moment = _moment(rounded)
    return f"{moment.strftime('%H:%M:%S')}.{moment.microsecond // step:0{digits}d}"


def moment(us: int | None, digits: int = 3) -> str:
    """`2026-06-01 12:00:00.900 UTC`"""
    return "unknown" if us is None or not _dated(us) else f"{date(us)} {clock(us, digits)} UTC"


def _moment(us: int) -> datetime:
    # exact: a float of seconds does not hold all us
    seconds, rest = divmod(us, SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def octets(count: int | None) -> str:
    """`1.3 MiB`"""
    if count is None:
        return "unknown"
    value, units = float(count), ["octets", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{count} octets" if units[0] == "octets" else f"{value:.1f} {units[0]}"


def number(value: int | float | None) -> str:
    """`1 234 567`: with thin spaces; a float with at most three digits behind the point."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".").replace(",", "\u202f")
    return f"{value:,}".replace(",", "\u202f")


def plural(count: int, word: str, words: str = "") -> str:
    """`1 message`, `2 messages`"""
    return f"{number(count)} {word if count == 1 else words or word + 's'}"


def by_note(told: Iterable[tuple[str, str]]) -> str:
    """Names with their notes, each note once: `fencing, path (no log of it); promotion`."""
    notes: dict[str, list[str]] = {}
    for name, note in told:
        notes.setdefault(note, []).append(name)
    return "; ".join(", ".join(names) + (f" ({note})" if note else "") for note, names in notes.items())


def percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool], between: str = "  ") -> list[str]:
    """Texts in columns, a line for each row; `right`: columns of numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.rjust if is_right else str.ljust for is_right in right]
    return [between.join(map(lambda pad, cell, width: pad(cell, width), pads, row, widths)) for row in rows]
