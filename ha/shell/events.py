"""Structured HA events as JSON lines: the input of the incident reports.

One flat object for each event.  Always present: node, source, proc, boot_id, seq (of this process, without gaps),
ts_wall (µs since 1970, UTC), ts_mono (µs of CLOCK_MONOTONIC), ts_res (µs), kind, term (the epoch).  Depending on the
kind: peer, queue, first_pos, last_pos, msg_id, client_id, conn_id, old, new, reason, result, attrs (a map of strings).

Kinds, in addition to those named after a change of this broker (state, promoted, backup_lost, ...):

    start           attrs: broker_id, address, version, and the options that bound the duration of a fail-over
    clock           peer, attrs.peer_wall: the peer's clock when it sent the reading (`clock_readings.py`)
    client_open     peer (HOST:PORT), client_id, conn_id as given by the client, attrs user, product, peer_wall (the
                    least that its clock shows now); or attrs.left_out: number of clients without a row
                    (`client_rows.py`)
    client_close    peer, client_id, conn_id, reason
    backup_late     peer, result begun (it leaves the in-sync set; reason, attrs delay_ms, others_ms) or ended
                    (`primary/late.py`)
    state_file      result failed (reason) or ended: the vote and the in-sync set cannot be stored (`disk.py`)
    promoted        last_pos, attrs members, base: the end of the log with which the epoch began, if it is whole
    expire, drop, dead_letter, purge     messages removed without being consumed, in runs of ids (`removals.py`)
    journal_read    at the start of a broker with a journal: result whole (all that it has acknowledged), partial (it
                    may lack something; reason), damaged (reason) or empty; last_pos, attrs messages, queues, frames,
                    octets, seconds, torn (yes: a write was cut off, and nothing of it had been acknowledged)
    identity_lost   peer, reason: the member at our address had another identity, as after a replaced disk
    twin            peer, reason, attrs broker_id, address, other, count: it has the identity of another living broker
    queue_dump      the content of a durable queue (`queue_dump.py`)

`proc` identifies one run of the process.  Segments are `NODE-BOOT-NNNN.jsonl` in `DATA_DIR/events`; the open one ends
in `.open` and is renamed when it is full or the process ends cleanly (then its last line is `log_end`).  Lines are
written at once and not synced: a crash of the process loses none.  If the disk fails, events are lost and the broker
goes on.  The oldest segments are deleted when all together exceed a limit.
Shell.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

SEGMENT_SIZE: Final = 8 << 20
"""Octets after which a new segment begins."""

_FIELDS: Final = (
    *("peer", "queue", "first_pos", "last_pos", "msg_id", "client_id", "conn_id"),
    *("old", "new", "reason", "result"),
)
_OPEN: Final = ".open"

log = logging.getLogger("ha")


def boot_id() -> str:
    """Id of this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def row(
    common: Mapping[str, Any], seq: int, wall: int, mono: int, kind: str, term: int, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """One event; times in µs.  Empty fields are left out."""
    event = {**common, "seq": seq, "ts_wall": wall, "ts_mono": mono, "ts_res": 1, "kind": kind, "term": term}
    event.update((name, fields[name]) for name in _FIELDS if fields.get(name) not in (None, ""))
    if fields.get("attrs"):
        event["attrs"] = {name: str(value) for name, value in fields["attrs"].items()}
    return event


class EventLog:
    """Writes the events of one process; without a directory it only counts them."""

    def __init__(
        self, directory: Path | None, node: str, term: Callable[[], int], cluster: str = "", limit: int = 0
    ) -> None:
        """`limit`: most octets of closed segments, beyond which the oldest are deleted; 0 = never."""
        self._directory = directory
        self._term = term
        self._limit = limit
        self._boot_id = boot_id()
        self._common = {
            "cluster": cluster,
            "node": node,
            "source": "broker",
            "proc": f"qpidd:{os.getpid()}:{uuid.uuid4().hex[:8]}",
            "boot_id": self._boot_id,
        }
        self._prefix = f"{re.sub(r'[^A-Za-z0-9.]+', '_', node)}-{self._boot_id[:8]}"
        self._seq = 0
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._size = 0
        self._failed = False
        self.lost = 0
        """Events that could not be written."""
        self.trouble = ""
        """Why, the last time."""
        if directory is not None:
            self._guarded(self._adopt_old)

    def write(self, kind: str, **fields: Any) -> None:
        """Write one event.  Disk errors are logged, not raised."""
        self._seq += 1
        wall, mono = time.time_ns() // 1000, time.monotonic_ns() // 1000
        event = row(self._common, self._seq, wall, mono, kind, self._term(), fields)
        if self._directory is not None:
            text = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
            line = text.encode("utf-8", "backslashreplace") + b"\n"  # half of a surrogate pair is no UTF-8
            self.lost += not self._guarded(lambda: self._append(line))

    def close(self) -> None:
        """Write `log_end` and close the segment."""
        self.write("log_end")
        self._guarded(self._end_segment)

    def _append(self, line: bytes) -> None:
        if self._file is None or self._size >= SEGMENT_SIZE:
            self._end_segment()
            self._begin_segment()
        assert self._file is not None
        written = self._file.write(line)
        if written != len(line):
            # The disk became full within a line: half a line would spoil the next one, too.
            self._file.truncate(self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._size += len(line)

    def _begin_segment(self) -> None:
        assert self._directory is not None
        self._directory.mkdir(0o700, parents=True, exist_ok=True)
        paths = self._directory.glob(f"{self._prefix}-????.jsonl*")
        numbers = [int(path.name.split(".jsonl")[0][-4:]) for path in paths]
        self._path = self._directory / f"{self._prefix}-{max(numbers, default=0) + 1:04}.jsonl{_OPEN}"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._size = 0
        if self._limit:
            self._make_room()

    def _make_room(self) -> None:
        assert self._directory is not None
        closed = [(path.stat(), path) for path in self._directory.glob("*.jsonl")]
        total = sum(found.st_size for found, _ in closed)
        for found, path in sorted(closed, key=lambda item: (item[0].st_mtime_ns, item[1])):
            if total <= self._limit:
                break
            path.unlink()
            total -= found.st_size

    def _end_segment(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None  # no longer open, even if closing fails
            file.close()
            self._path.rename(self._path.with_name(self._path.name.removesuffix(_OPEN)))

    def _adopt_old(self) -> None:
        """Rename segments that a crashed process left open."""
        assert self._directory is not None
        for path in self._directory.glob(f"*.jsonl{_OPEN}"):
            path.rename(path.with_name(path.name.removesuffix(_OPEN)))

    def _guarded(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except OSError as error:
            self.trouble = str(error)
            if not self._failed:
                log.warning("events are not written: %s", error)
            self._failed = True
            return False
        else:
            if self._failed:
                log.warning("events are written again; the gap in their numbers shows what is missing")
            self._failed = False
            return True
