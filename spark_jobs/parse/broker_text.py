"""The text log of a broker (`log-to-file`, standard error, or its lines in syslog) and of the local supervisor (pure).

    2026-11-21 09:17:25 [HA] notice: c0a3b9db(ready) ready -> recovering: promoted      or with µs, a prefix, a function
    2026-11-21 09:17:25.398 promoted: node1 is promoted, 17.2 ms after: the primary node2 died      of qpid-cluster

Only what the event segments say as well becomes an event, in the same words: a report is possible when the segments
are gone, with less of it and to the second.  A broker's times are local ones of its machine (`Context.zone`), the
supervisor's are UTC.  The lines do not name the node: `Context.node`, else what the file is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import PurePosixPath
from typing import Final

from spark_jobs.data import table
from spark_jobs.parse.context import Context, torn
from spark_jobs.schema import KINDS, Event

STATES: Final = ("standalone", "joining", "catchup", "ready", "recovering", "active")
_STATE: Final = "|".join(STATES)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{3}|\d{6}))?(?= )")
_SPEAKER: Final = re.compile(rf"\b([0-9a-f]{{8}})\(({_STATE})\) ")
_SYSTEM: Final = re.compile(r"(?:^|\s|: )(Broker running on|stopping:) (.+)$")
_REFUSED: Final = re.compile(r"\bSIG[A-Z]+ is refused: (.+); a second signal within ")
_SUPERVISOR: Final = re.compile(r" ([a-z_]+): (.+)$")

_TABLES: Final = table(__package__, "broker_text")
_HA: Final = tuple((re.compile("".join(pattern)), kind, dict(*more)) for kind, pattern, *more in _TABLES["ha"])
_USUAL: Final = frozenset({"/", "var", "log", "logs", "lib", "qpidd"})


def parse_file(name: str, lines: Iterable[bytes], context: Context) -> Iterator[Event]:
    """The facts of one file, in its order."""
    node = context.node or node_of(name)
    common: Event = {"source": "text", "cluster": context.cluster, "node": node}
    for line_no, line in enumerate(lines, 1):
        context.tally.lines += 1
        text = line.decode(errors="replace").rstrip("\r\n")
        event: Event | None
        if not line.endswith(b"\n"):
            context.tally.torn += 1
            event = torn(name, line_no, line, common)
        else:
            event = _event(text, context)
        if event is None:
            context.tally.unknown += bool(text.strip())
            continue
        context.tally.events += 1
        yield {**common, **event, "file": name, "line_no": line_no, "raw": text}


def fact(message: str) -> Event | None:
    """What a broker's line says behind its time, wherever it was logged to: kind, columns and attrs; None if nothing
    that the event segments would say."""
    speaker = _SPEAKER.search(message)
    if speaker is None:
        return _system(message)
    for pattern, kind, fixed in _HA:
        match = pattern.match(message, speaker.end())
        if match is not None:
            event = _filled(kind, match)
            event.update(fixed)
            attrs = event.get("attrs", {})
            event["attrs"] = {**attrs, "broker": speaker[1], "state": speaker[2]}
            return event
    return None


def note(message: str) -> Event | None:
    """What a line of the supervisor says behind its time."""
    match = _SUPERVISOR.match(message)
    if match is None or match[1] not in KINDS.get("qpid-cluster", ()):
        return None
    named = re.match(_TABLES["notes"].get(match[1], ""), match[2])
    event: Event = _filled(match[1], named) if named is not None else {"kind": match[1]}
    attrs = {**event.get("attrs", {}), "text": match[2]}
    return {**event, "source": "qpid-cluster", "attrs": attrs}


def _event(text: str, context: Context) -> Event | None:
    time = TIME.search(text)
    if time is None:
        return None
    behind = text[time.end() :]
    event = fact(behind) or note(behind)
    if event is None:
        return None
    zone = UTC if event.get("source") == "qpid-cluster" else context.zone or UTC
    moment = _moment(time[1], time[2] or "", zone)
    if moment is None:
        return None
    return {**event, "ts_wall": moment, "ts_res": {3: 1000, 6: 1}.get(len(time[2] or ""), 1_000_000)}


def _moment(seconds: str, fraction: str, zone: tzinfo) -> int | None:
    """µs since 1970; None for a date that there is not."""
    try:
        local = datetime.strptime(seconds, "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    since = local.replace(tzinfo=zone) - _EPOCH
    return since // timedelta(microseconds=1) + int(fraction.ljust(6, "0") or 0)


def _system(message: str) -> Event | None:
    refused = _REFUSED.search(message)
    if refused is not None:
        return {"kind": "stop_request", "result": "refused", "reason": refused[1]}
    match = _SYSTEM.search(message)
    if match is None or ("[" in message[: match.start()] and "[System]" not in message):
        return None
    if match[1] == "stopping:":
        return {"kind": "stop", "reason": match[2]}
    return {"kind": "start", "attrs": {"address": match[2]}}


def _filled(kind: str, match: re.Match[str]) -> Event:
    event: Event = {"kind": kind}
    for column, value in match.groupdict().items():
        if column.startswith("attrs_"):
            event.setdefault("attrs", {})[column.removeprefix("attrs_")] = value
        elif column == "last_pos":
            epoch, _, sequence = value.partition(".")
            event[column] = int(epoch) << 48 | int(sequence)
        else:
            event[column] = int(value) if column == "term" else value
    return event


def node_of(name: str) -> str:
    """`node1.log` → node1; of `HOST/var/log/qpidd.log` the folder that is not a usual place of logs; empty if none."""
    path = PurePosixPath(name)
    stem = path.name.split(".")[0]
    if not stem.startswith(("qpidd", "log", "stderr")):
        return stem
    return next((folder for folder in reversed(path.parts[:-1]) if folder not in _USUAL), "")
