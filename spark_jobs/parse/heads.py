"""The head of a log line: who wrote it, when, and where its text begins (pure).

Formats, with the software that writes them:

    pacemaker  `Nov 21 01:55:06.333 node2 pacemaker-controld  [57] (log_executor_event) \tnotice: TEXT`; without ms
               before libqb 2 (Pacemaker 2.0.1 on SLES 15); the file log of lib/common/logging.c
    (older)    `Nov 21 01:55:06 [57] node2       crmd:   notice: do_lrm_rsc_op:\tTEXT`: the same of Pacemaker 1.1
    agent      `Nov 21 01:55:06  IPaddr2(vip)[164]:    INFO: TEXT`: resource agents write into pacemaker.log, too,
               without a node
    corosync   `Nov 21 01:55:30.861 [26] node1 corosync notice  [TOTEM ] TEXT` (to_logfile; timestamp: hires or on)
    syslog     `Nov 21 01:55:06 node2 corosync[26]:   [TOTEM ] TEXT`, also `journalctl -o short[-precise]`
    rfc3339    `2019-03-22T10:57:27.920258+08:00 node2 crmd[1]:  notice: TEXT`, also `journalctl -o short-iso[-precise]`
    rfc5424    `<30>1 2026-11-21T01:55:06.333+01:00 node2 corosync 26 - - TEXT`, with structured data or without
    full       `Sat 2026-11-21 01:55:06 CET node2 corosync[26]: TEXT`: `journalctl -o short-full`
    unix       `1795226106.333000 node2 corosync[26]: TEXT`: `journalctl -o short-unix`
    journal    one JSON object a line: `journalctl -o json`, `json-seq`, `json-sse`; `export` as well (`parse.journal`)

Names of months are English or German.  The first four have neither a year nor a zone: `local` counts from 1 January of
a *nominal* leap year (so that 29 February has a place), and `years` finds the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from spark_jobs.data import table

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOMINAL_YEAR = 2000
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH_BEGINS = {
    name: date(NOMINAL_YEAR, number, 1).toordinal() - date(NOMINAL_YEAR, 1, 1).toordinal()
    for number, name in enumerate(MONTHS, 1)
}
_MONTH_DAYS = dict(zip(MONTHS, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))
_EPOCH = date(1970, 1, 1).toordinal()
_PRIORITIES = ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug")
_TABLES: Final = table(__package__, "heads")
OLD_NAMES: Final[dict[str, str]] = _TABLES["names"]
"""Daemons of Pacemaker 1.1 under the names that they have since 2.0."""


@dataclass(frozen=True, slots=True)
class Head:
    """One line, taken apart.  `local` and `utc` in us; `offset` in seconds east of UTC; `resolution` in us."""

    format: str
    local: int
    resolution: int
    node: str
    daemon: str
    body: str
    pid: str = ""
    function: str = ""
    level: str = ""
    utc: int | None = None
    offset: int | None = None
    mono: int | None = None
    boot_id: str = ""


def _head(pattern: str | list[str]) -> re.Pattern[str]:
    text = "".join(pattern)
    for name, part in _TABLES["parts"].items():
        text = text.replace(name, "".join(part))
    return re.compile(text, re.DOTALL)


_TEXT_FORMATS: Final = tuple((name, _head(pattern)) for name, pattern in _TABLES["heads"])
_LEVEL = re.compile(r"(?P<level>emerg|alert|crit|error|warning|notice|info|debug|trace)\s*:\s+")
_FUNCTION = re.compile(r"(?P<function>\w*_\w+|Log\w+):\s+")
_SUBSYSTEM = re.compile(r"(?:(?P<level>\w+)\s+)?\[(?P<function>\w+)\s*\] ")
_OBJECTS = ("{", "data: {", "\x1e{")
_DATED = ("rfc3339", "rfc5424", "full")


def head_of(line: str) -> Head | None:
    """The line's parts; None if it has no head that we know (a continuation, or another software's file)."""
    if line.startswith(_OBJECTS):
        return _journal(line[line.index("{") :])
    for name, pattern in _TEXT_FORMATS:
        match = pattern.match(line)
        if match is not None:
            return _text(name, match.groupdict())
    return None


def _text(name: str, parts: dict[str, str | None]) -> Head | None:
    fraction = parts["f"] or ""
    moment = _unix(parts, fraction) if name == "unix" else _local(name, parts, fraction)
    if moment is None:
        return None
    local, utc, offset = moment
    level, function, body = parts.get("level") or "", parts.get("function") or "", parts["body"] or ""
    daemon = OLD_NAMES.get(parts["daemon"] or "", parts["daemon"] or "")
    if name not in ("pacemaker", "corosync", "agent"):
        daemon, level, function, body = _message(daemon, body)
    node, pid = parts.get("node") or "", (parts.get("pid") or "").strip("-")
    resolution = 10 ** max(0, 6 - len(fraction))
    return Head(name, local, resolution, node, daemon, body, pid, function, level, utc, offset)


Moment = tuple[int, int | None, int | None]
"""(nominal local us, us UTC, offset in seconds)"""


def _unix(parts: dict[str, str | None], fraction: str) -> Moment:
    utc = int(parts["epoch"] or 0) * SECOND + _micros(fraction)
    return nominal(utc), utc, None


def _local(name: str, parts: dict[str, str | None], fraction: str) -> Moment | None:
    clock = _clock(parts, fraction)
    if clock is None:
        return None
    if name not in _DATED:
        day = _nominal_day(parts["month"] or "", int(parts["day"] or 0))
        return None if day is None else (day * DAY + clock, None, None)
    dated = _dated(parts, clock)
    if dated is None:
        return None
    local, offset = dated
    return nominal(local), None if offset is None else local - offset * SECOND, offset


def _message(daemon: str, body: str) -> tuple[str, str, str, str]:
    """Takes off what Pacemaker and Corosync put before their text for syslog: (daemon, level, function, text)."""
    level = function = ""
    if daemon == "corosync":
        if match := _SUBSYSTEM.match(body):
            level, function, body = match["level"] or "", match["function"], body[match.end() :]
    elif daemon.startswith("pacemaker"):
        if match := _LEVEL.match(body):
            level, body = match["level"], body[match.end() :]
        if match := _FUNCTION.match(body):
            function, body = match["function"], body[match.end() :]
    return daemon, level, function, body


def _clock(parts: dict[str, str | None], fraction: str) -> int | None:
    hour, minute, second = int(parts["h"] or 0), int(parts["m"] or 0), int(parts["s"] or 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    # a leap second is written as :60; the clocks that we compare with have counted it as the next second
    return hour * HOUR + minute * MINUTE + second * SECOND + _micros(fraction)


def _micros(fraction: str) -> int:
    return int((fraction + "000000")[:6])


def _nominal_day(month: str, day: int) -> int | None:
    month = _TABLES["months"].get(month, month)
    if month not in _MONTH_BEGINS or not 1 <= day <= _MONTH_DAYS[month]:
        return None
    return _MONTH_BEGINS[month] + day - 1


def _dated(parts: dict[str, str | None], clock: int) -> tuple[int, int | None] | None:
    """Local time as us since 1970, and its offset in seconds; None for a zone's name with several meanings."""
    try:
        day = date(int(parts["year"] or 0), int(parts["month"] or 0), int(parts["day"] or 0))
    except ValueError:
        return None
    zone = parts["zone"] or "Z"
    hours = _TABLES["zones"].get(zone)
    offset = hours * 3600 if hours is not None else None if zone.isalpha() and zone != "Z" else offset_of(zone)
    return (day.toordinal() - _EPOCH) * DAY + clock, offset


def offset_of(text: str) -> int:
    """Seconds east of UTC of `Z`, `+0800` or `+08:00`."""
    if text in ("Z", "z"):
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4] or 0) * 60
    return -seconds if text[0] == "-" else seconds


def nominal(local: int) -> int:
    """The local time (us since 1970) in the nominal year."""
    days, clock = divmod(local, DAY)
    day = date.fromordinal(days + _EPOCH)
    return (day.replace(year=NOMINAL_YEAR).toordinal() - date(NOMINAL_YEAR, 1, 1).toordinal()) * DAY + clock


def dated(local: int, year: int) -> int | None:
    """A nominal local time in a real year, us since 1970; None for 29 February of a year without one."""
    days, clock = divmod(local, DAY)
    day = date.fromordinal(days + date(NOMINAL_YEAR, 1, 1).toordinal())
    try:
        return (day.replace(year=year).toordinal() - _EPOCH) * DAY + clock
    except ValueError:
        return None


def _journal(line: str) -> Head | None:
    """One line of `journalctl -o json`: journald's own clock readings, both wall and monotonic."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or "__REALTIME_TIMESTAMP" not in record:
        return None
    utc = _number(record["__REALTIME_TIMESTAMP"])
    if utc is None:
        return None
    daemon = _string(record.get("SYSLOG_IDENTIFIER")) or _string(record.get("_COMM")) or "?"
    daemon, level, function, body = _message(OLD_NAMES.get(daemon, daemon), _string(record.get("MESSAGE")))
    return Head(
        "journal",
        nominal(utc),
        1,
        _string(record.get("_HOSTNAME")),
        daemon,
        body,
        _string(record.get("_PID")) or _string(record.get("SYSLOG_PID")),
        function,
        level or _priority(record.get("PRIORITY")),
        utc,
        None,
        _number(record.get("__MONOTONIC_TIMESTAMP")),
        _string(record.get("_BOOT_ID")),
    )


def _number(value: Any) -> int | None:
    text = str(value)
    # 2 ** 56 us is the year 4253: what is longer is no clock, and would not be a date either
    return int(text) if text.isascii() and text.isdigit() and int(text[:20]) < 1 << 56 and len(text) <= 20 else None


def _string(value: Any) -> str:
    """journald writes a text that is not UTF-8, or too long, as a list of bytes or as null."""
    if isinstance(value, list):
        return bytes(item for item in value if isinstance(item, int) and 0 <= item < 256).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _priority(value: Any) -> str:
    text = _string(value)
    return _PRIORITIES[int(text)] if text in ("0", "1", "2", "3", "4", "5", "6", "7") else ""
