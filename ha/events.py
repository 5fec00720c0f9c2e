"""Structured HA events as JSON lines: the input of the incident reports.

One flat object for each fact.  Always there: node, source, proc, boot_id, seq (of this process, without gaps), ts_wall
(µs since 1970, UTC), ts_mono (µs of CLOCK_MONOTONIC), ts_res (µs), kind, term (the epoch).  As the fact needs:
peer, queue, first_pos, last_pos, old, new, reason, result, attrs (a map of strings).

Segments are `NODE-BOOT-NNNN.jsonl` in `DATA_DIR/events`; the one that is being written ends in `.open` and is renamed
when it is full or the process ends cleanly (then its last line is `log_end`).  Lines are written when they happen and
not synced: a crash of the process loses none.  A failing disk costs events, never the broker.            Shell.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

SEGMENT_SIZE: Final = 8 << 20
"""Octets after which a new segment is begun."""

_FIELDS: Final = ("peer", "queue", "first_pos", "last_pos", "old", "new", "reason", "result")
_OPEN: Final = ".open"

log = logging.getLogger("ha")


def boot_id() -> str:
    """Of this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


class EventLog:
    """Writes the events of one process; without a directory it only counts them."""

    def __init__(self, directory: Path | None, node: str, term: Callable[[], int], cluster: str = "") -> None:
        self._directory = directory
        self._term = term
        self._boot_id = boot_id()
        self._common = {
            "cluster": cluster,
            "node": node,
            "source": "broker",
            "proc": f"qpidd:{os.getpid()}",
            "boot_id": self._boot_id,
        }
        self._prefix = f"{re.sub(r'[^A-Za-z0-9.]+', '_', node)}-{self._boot_id[:8]}"
        self._seq = 0
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._size = 0
        self._failed = False
        if directory is not None:
            self._guarded(self._adopt_old)

    def write(self, kind: str, **fields: Any) -> None:
        """Never raises for what the disk does."""
        self._seq += 1
        event: dict[str, Any] = {
            **self._common,
            "seq": self._seq,
            "ts_wall": time.time_ns() // 1000,
            "ts_mono": time.monotonic_ns() // 1000,
            "ts_res": 1,
            "kind": kind,
            "term": self._term(),
        }
        event.update((name, fields[name]) for name in _FIELDS if fields.get(name) not in (None, ""))
        if fields.get("attrs"):
            event["attrs"] = {name: str(value) for name, value in fields["attrs"].items()}
        if self._directory is not None:
            line = json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
            self._guarded(lambda: self._append(line))

    def close(self) -> None:
        """The clean end."""
        self.write("log_end")
        self._guarded(self._end_segment)

    def _append(self, line: bytes) -> None:
        if self._file is None or self._size >= SEGMENT_SIZE:
            self._end_segment()
            self._begin_segment()
        assert self._file is not None
        self._file.write(line)
        self._size += len(line)

    def _begin_segment(self) -> None:
        assert self._directory is not None
        self._directory.mkdir(parents=True, exist_ok=True)
        paths = self._directory.glob(f"{self._prefix}-????.jsonl*")
        numbers = [int(path.name.split(".jsonl")[0][-4:]) for path in paths]
        self._path = self._directory / f"{self._prefix}-{max(numbers, default=0) + 1:04}.jsonl{_OPEN}"
        self._file = self._path.open("ab", buffering=0)
        self._size = 0

    def _end_segment(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.rename(self._path.with_name(self._path.name.removesuffix(_OPEN)))

    def _adopt_old(self) -> None:
        """What a crashed process left open is complete now."""
        assert self._directory is not None
        for path in self._directory.glob(f"*.jsonl{_OPEN}"):
            path.rename(path.with_name(path.name.removesuffix(_OPEN)))

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            if not self._failed:
                log.warning("events are not written: %s", error)
            self._failed = True
