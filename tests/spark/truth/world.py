"""A small world of machines with clocks: what happens in true time becomes log files as those machines write them.

Times are seconds of true time since `START`.  A clock may be off, drift, be set, and stand in another zone.  The files
are those of brokers and clients (JSON lines) and of Pacemaker and Corosync (text); afterwards they may be torn,
rotated, split, shuffled or thinned (`files.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

START = 1_780_315_200_000_000
"""us: 2026-06-01 12:00:00 UTC"""
Files = dict[str, list[bytes]]


@dataclass
class Clock:
    """`offset` and `steps` in s, drift in parts per million; `zone`: hours that its text logs are ahead of UTC."""

    offset: float = 0.0
    ppm: float = 0.0
    steps: tuple[tuple[float, float], ...] = ()
    zone: float = 0.0
    booted: float = -50_000.0

    def wall(self, at: float, start: int) -> int:
        """us"""
        set_by = sum(by for since, by in self.steps if at >= since)
        return start + round((at + self.offset + self.ppm * at / 1e6 + set_by) * 1e6)

    def mono(self, at: float) -> int:
        return round((at - self.booted) * 1e6)


@dataclass
class World:
    start: int = START
    clocks: dict[str, Clock] = field(default_factory=lambda: defaultdict(Clock))
    lives: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    terms: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _lines: list[tuple[float, int, str, Any]] = field(default_factory=list)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def broker(self, node: str, at: float, kind: str, **fields: Any) -> None:
        """A line of a broker's event log.  A `start` begins a new process."""
        if kind == "start":
            self.lives[node] += 1
        if "term" in fields:
            self.terms[node] = fields["term"]
        event = {"source": "broker", "node": node, "term": self.terms[node], "kind": kind, **fields}
        event["proc"] = f"qpidd:{100 + self.lives[node]}:{node}{self.lives[node]}"
        self._add(at, f"{node}/events/{node}-0001.jsonl", event)

    def manager(self, at: float, kind: str, **fields: Any) -> None:
        """A line of qpid-cluster, which runs on node3."""
        event = {"source": "qpid-cluster", "node": "node3", "kind": kind, "proc": "qpid-cluster:9:m", **fields}
        self._add(at, "events/supervisor-0001.jsonl", event)

    def client(self, name: str, at: float, kind: str, **fields: Any) -> None:
        event = {"source": "client", "node": f"host-{name}", "client_id": name, "kind": kind, "proc": f"{name}:7:x"}
        self._add(at, f"clients/{name}-0001.jsonl", {**event, **fields})

    def pacemaker(self, node: str, at: float, daemon: str, text: str) -> None:
        """`text` with what stands behind ` | `."""
        name = daemon if daemon == "pacemakerd" else f"pacemaker-{daemon}"
        head = f"{node} {name:<20}[{100 + len(daemon)}] (made) \tnotice: "
        self._add(at, f"{node}/pacemaker.log", (node, "{} " + head + text))

    def corosync(self, node: str, at: float, part: str, text: str) -> None:
        self._add(at, f"{node}/corosync.log", (node, "{} [26] " + f"{node} corosync notice  [{part:<6}] {text}"))

    def _add(self, at: float, file: str, what: Any) -> None:
        self._lines.append((at, len(self._lines), file, what))

    # ---- what is written ---------------------------------------------------------------------------------------------

    def files(self) -> Files:
        """Name -> lines, in the order in which they were written."""
        found: Files = {}
        counted: dict[str, int] = defaultdict(int)
        for at, _, file, what in sorted(self._lines, key=lambda line: line[:2]):
            line = self._json(at, what, counted) if isinstance(what, dict) else self._text(at, *what)
            found.setdefault(file, []).append(line.encode() + b"\n")
        return found

    def _json(self, at: float, event: dict[str, Any], counted: dict[str, int]) -> str:
        clock, proc = self.clocks[event["node"]], event["proc"]
        counted[proc] += 1
        event = {
            "cluster": "made",
            "boot_id": f"boot-{event['node']}",
            **event,
            "seq": counted[proc],
            "ts_wall": clock.wall(at, self.start),
            "ts_mono": clock.mono(at),
            "ts_res": 1,
        }
        return json.dumps({name: value for name, value in event.items() if value is not None})

    def _text(self, at: float, node: str, line: str) -> str:
        clock = self.clocks[node]
        local = clock.wall(at, self.start) + round(clock.zone * 3_600_000_000)
        moment = datetime.fromtimestamp(local // 1000 / 1000, UTC)
        return line.format(moment.strftime("%b %d %H:%M:%S.") + f"{local // 1000 % 1000:03}")

    def true(self, us: int) -> float:
        """s since START of a time on a right clock."""
        return (us - self.start) / 1e6
