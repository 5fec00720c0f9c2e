"""What a cluster's logs say: lines of pacemaker.log and corosync.log as facts on one time line.  Pure.

Formats: Pacemaker 2.1 with a log file (`TIME node daemon[pid] (function) level: message | details`), Corosync 3.1 with
`to_logfile` and `timestamp: hires`.  Neither has a year or a zone; both have milliseconds of a clock that ticks every
4 ms.  All nodes of the lab share one clock, so times of different nodes may be compared.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

_TIME: Final = r"(?P<day>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)\.(?P<ms>\d{3})"
HEADERS: Final = (
    re.compile(
        rf"^{_TIME} (?P<node>\S+) (?P<daemon>pacemaker\S*?)\s*\[\d+\] \([^)]*\)\s+(?P<level>\w+):\s(?P<message>.*)$"
    ),
    re.compile(
        rf"^{_TIME} \[\d+\] (?P<node>\S+) (?P<daemon>corosync) (?P<level>\w+)\s+\[\w+\s*\] (?P<message>.*)$"
    ),
)  # fmt: skip

PATTERNS: Final = tuple(
    (kind, daemon, re.compile(body))
    for kind, daemon, body in (
        ("link_down", "corosync", r"link: host: (?P<peer>\d+) link: \d+ is down"),
        ("token_lost", "corosync", r"A processor failed, forming new configuration"),
        ("membership", "corosync", r"A new membership \((?P<ring>[^)]+)\) was formed\. Members(?P<change>.*)"),
        ("peer_lost", "pacemaker-controld", r"Node (?P<peer>\S+) state is now lost"),
        ("quorum", "pacemaker-controld", r"Quorum (?P<state>acquired|lost)\b"),
        ("state", "pacemaker-controld", r"State transition (?P<old>S_\w+) -> (?P<new>S_\w+) \| input=(?P<input>\w+)"),
        ("aborted", "pacemaker-controld", r"Transition (?P<number>\d+) aborted(?: by (?P<by>.*?))?: (?P<why>[^|]*)"),
        ("unexpected", "pacemaker-controld",
         r"Transition -?\d+ action -?\d+ \((?P<op>\S+) on (?P<target>\S+)\): expected '(?P<want>[^']+)' "
         r"but got '(?P<result>[^']+)'"),
        ("will_fence", "pacemaker-schedulerd", r"(?:Cluster node |Node )?(?P<target>\S+) will be fenced: (?P<why>.*)"),
        ("planned", "pacemaker-schedulerd",
         r"Actions: (?P<verb>Fence \(\w+\)|Promote|Demote|Recover|Restart|Stop|Start|Move)\s+(?P<what>.*)"),
        ("decided", "pacemaker-schedulerd", r"Calculated transition (?P<number>\d+)"),
        ("graph", "pacemaker-controld", r"Processing graph (?P<number>\d+) \(ref=(?P<ref>\S+)\)"),
        ("finished", "pacemaker-controld", r"Transition (?P<number>\d+) \(Complete=.*\): (?P<status>\w+)"),
        ("requested", "pacemaker-controld",
         r"Requesting local execution of (?P<task>\S+) operation for (?P<resource>\S+) on (?P<target>\S+) \|"),
        ("result", "pacemaker-controld",
         r"Result of (?P<task>\S+) operation for (?P<resource>\S+) on (?P<target>\S+): (?P<result>[^|]*?) \|"),
        ("fence_asked", "pacemaker-controld", r"Requesting fencing \((?P<action>\w+)\) of node (?P<target>\S+)"),
        ("fenced", "pacemaker-fenced",
         r"Operation '(?P<action>\w+)' targeting (?P<target>\S+) by (?P<by>\S+) for \S+?: (?P<result>\w+)"),
        ("attribute", "pacemaker-attrd",
         r"Setting (?P<name>\S+)\[(?P<target>\S+?)\](?: in \S+)?: (?P<old>.+?) -> (?P<new>.+?) (?:\| )?from"),
        ("throttled", "pacemaker-controld", r"New throttle mode: (?P<mode>\w+) load"),
        ("daemon_died", "pacemakerd", r"(?P<daemon>pacemaker-\w+)\[\d+\] (?:exited with|is unresponsive|terminated)"),
        ("started", "pacemakerd", r"Starting Pacemaker (?P<version>\S+)"),
    )
)  # fmt: skip
"""(kind, beginning of the daemon's name, the whole message); the first that fits counts."""


@dataclass(frozen=True)
class Entry:
    """One fact; `at` in seconds since 1970."""

    at: float
    node: str
    kind: str
    text: str
    values: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name) or ""


@lru_cache(maxsize=4096)
def _seconds(day: str, year: int) -> float:
    return time.mktime(time.strptime(f"{year} {day}", "%Y %b %d %H:%M:%S"))


def parse(line: str, year: int) -> Entry | None:
    """None for what is no line of these logs; kind "" for one that says nothing we look for."""
    head = next(filter(None, (header.match(line) for header in HEADERS)), None)
    if head is None:
        return None
    at = _seconds(head["day"], year) + int(head["ms"]) / 1000
    for kind, daemon, pattern in PATTERNS:
        if head["daemon"].startswith(daemon) and (body := pattern.match(head["message"])):
            found = {name: value for name, value in body.groupdict().items() if value is not None}
            return Entry(at, head["node"], kind, head["message"], found)
    return Entry(at, head["node"], "", f"{head['daemon']} {head['level']}: {head['message']}")


def read(lines: Iterable[str], year: int, since: float = 0.0) -> Iterator[Entry]:
    """The facts of one log; how a controller throttles itself also from before, since it stays so."""
    for line in lines:
        entry = parse(line.rstrip("\n"), year)
        if entry is not None and (entry.at >= since or entry.kind == "throttled"):
            yield entry


def merged(logs: Iterable[Iterable[Entry]]) -> list[Entry]:
    """All logs in the order of time; what a log has in one order stays so."""
    return sorted((entry for log in logs for entry in log), key=lambda entry: entry.at)


NOISE: Final = frozenset({"", "link_down", "graph", "throttled"})


def story(entries: Iterable[Entry], zero: float) -> list[str]:
    """For people: what happened, in milliseconds after `zero`; the same fact of several nodes only once."""
    lines: list[str] = []
    last: dict[tuple[str, str], float] = {}
    for entry in entries:
        key = entry.kind, entry.text.partition(" |")[0]
        if entry.kind in NOISE or entry.at - last.get(key, -9.0) < 0.5:
            continue
        last[key] = entry.at
        lines.append(f"{(entry.at - zero) * 1000:+8.0f} ms  {entry.node:<6} {key[1]}")
    return lines
