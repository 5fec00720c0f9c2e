"""What the client saw, as events: JSON lines for the incident analysis, and callbacks.

A line is one flat object; absent fields are left out.  Fields of every line: `cluster node source proc boot_id seq
ts_wall ts_mono ts_res kind client_id`; `seq` counts from 1 without gaps within one file series, times are in
microseconds (wall clock UTC and CLOCK_MONOTONIC).  `boot_id` names the life of this process' log.  Kinds: connect
connect_refused connected disconnected publish resend confirm nack return deliver ack reject blocked unblocked
drain_begin drain_end log_end.

**Runs.**  publish, resend, confirm, deliver and ack would be several lines a message.  Consecutive events of the same
kind, queue and flags whose message ids are `PREFIX:n`, `PREFIX:n+1`, ... become one line: `msg_id` is the first id,
`attrs.last` the last id and `attrs.count` how many; `ts_wall`/`ts_mono` are those of the first and
`attrs.last_ts_mono` that of the last.  Nothing is left out: a run names every message exactly.  A run ends when the
ids do not follow on, after RUN_MAX messages, after RUN_SECONDS (`flush_runs` is called by a timer), and before any line
of another kind is written, so that the file never shows a confirm before the disconnect that it followed.

Files: DIRECTORY/CLIENT-BOOT-NNNN.jsonl, with the suffix `.open` until closed; a new one after SEGMENT_BYTES.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

LOGGER = logging.getLogger("client_lib")
RUN_MAX = 1000
RUN_SECONDS = 0.1
SEGMENT_BYTES = 64 << 20

KINDS = frozenset(
    {"connect", "connect_refused", "connected", "disconnected", "publish", "resend", "confirm", "nack", "return"}
    | {"deliver", "ack", "reject", "blocked", "unblocked", "drain_begin", "drain_end", "log_end"}
)
RunKey = tuple[str, str, str, bool]


def split_id(message_id: str) -> tuple[str, int] | None:
    """The prefix and number of `PREFIX:n`, None for ids of another form (or with leading zeros)."""
    prefix, colon, digits = message_id.rpartition(":")
    if not colon or not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and digits != "0"):
        return None
    return prefix, int(digits)


@dataclass(slots=True)
class Run:
    """Messages PREFIX:first ... PREFIX:last."""

    kind: str
    queue: str
    prefix: str
    flag: bool
    first: int
    last: int
    wall: int
    mono: int
    last_mono: int

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"queue": self.queue, "msg_id": f"{self.prefix}:{self.first}"}
        if self.flag:
            fields["redelivered" if self.kind == "deliver" else "resend"] = True
        if self.last != self.first:
            fields["attrs"] = {
                "last": f"{self.prefix}:{self.last}",
                "count": str(self.last - self.first + 1),
                "last_ts_mono": str(self.last_mono),
            }
        return fields


class Runs:
    """Joins events to runs (pure; times are arguments, in microseconds)."""

    def __init__(self) -> None:
        self._open: dict[RunKey, Run] = {}

    def add(self, kind: str, queue: str, prefix: str, number: int, flag: bool, wall: int, mono: int) -> Run | None:
        """Returns the run that this event ended, if any."""
        key = (kind, queue, prefix, flag)
        run = self._open.get(key)
        if run is not None and number == run.last + 1 and number - run.first < RUN_MAX:
            run.last, run.last_mono = number, mono
            return None
        self._open[key] = Run(kind, queue, prefix, flag, number, number, wall, mono, mono)
        return run

    def take(self) -> list[Run]:
        """All open runs, in the order of their beginning."""
        runs = sorted(self._open.values(), key=lambda run: run.mono)
        self._open.clear()
        return runs


class EventLog:
    """Thread-safe.  Writes nothing and costs next to nothing when it has neither directory nor callback."""

    def __init__(
        self,
        client_id: str,
        directory: str | Path | None = None,
        callback: Callable[[Mapping[str, Any]], None] | None = None,
        cluster: str = "",
    ) -> None:
        self.enabled = directory is not None or callback is not None
        self.boot_id = uuid.uuid4().hex
        self._callback = callback
        self._lock = threading.Lock()
        self._runs = Runs()
        self._seq = 0
        self._closed = not self.enabled
        self._head = {
            "cluster": cluster,
            "node": socket.gethostname(),
            "source": "client",
            "proc": f"{client_id}[{os.getpid()}]",
            "boot_id": self.boot_id,
            "client_id": client_id,
            "ts_res": 1,
        }
        self._files = None if directory is None else _Segments(Path(directory), client_id, self.boot_id[:8])

    def fact(self, kind: str, **fields: Any) -> None:
        """One event that stands for itself; None values are left out, `attrs` values become strings."""
        if self._closed:
            return
        with self._lock:
            self._write_runs()
            self._write(kind, time.time_ns() // 1000, time.monotonic_ns() // 1000, fields, flush=True)

    def message(self, kind: str, queue: str, message_id: str | None, flag: bool = False) -> None:
        """One event about one message, joined to a run if its id allows."""
        if self._closed:
            return
        wall, mono = time.time_ns() // 1000, time.monotonic_ns() // 1000
        parts = split_id(message_id) if message_id else None
        with self._lock:
            if parts is None:
                name = "redelivered" if kind == "deliver" else "resend"
                self._write(kind, wall, mono, {"queue": queue, "msg_id": message_id, name: flag or None}, flush=False)
                return
            ended = self._runs.add(kind, queue, *parts, flag, wall, mono)
            if ended is not None:
                self._write(ended.kind, ended.wall, ended.mono, ended.fields(), flush=False)

    def flush_runs(self) -> None:
        """To be called every RUN_SECONDS."""
        if not self._closed:
            with self._lock:
                self._write_runs()
                if self._files is not None:
                    self._files.flush()

    def close(self, **fields: Any) -> None:
        """Writes `log_end` and closes the file."""
        if self._closed:
            return
        self.fact("log_end", **fields)
        with self._lock:
            self._closed = True
            if self._files is not None:
                self._files.close()

    def _write_runs(self) -> None:
        for run in self._runs.take():
            self._write(run.kind, run.wall, run.mono, run.fields(), flush=False)

    def _write(self, kind: str, wall: int, mono: int, fields: Mapping[str, Any], flush: bool) -> None:
        if self._closed:
            return
        self._seq += 1
        event = {"seq": self._seq, "ts_wall": wall, "ts_mono": mono, "kind": kind, **self._head}
        for name, value in fields.items():
            if value is not None:
                event[name] = {k: str(v) for k, v in value.items()} if name == "attrs" else value
        if self._files is not None:
            self._files.write(json.dumps(event, separators=(",", ":")), flush)
        if self._callback is not None:
            try:
                self._callback(event)
            except Exception:
                LOGGER.exception("on_event raised for %s", kind)


class _Segments:
    """The files of one log: the open one has the suffix `.open`."""

    def __init__(self, directory: Path, name: str, boot: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._stem = directory / f"{name.replace('/', '_')}-{boot}"
        self._number = 0
        self._size = 0
        self._file = self._next()

    def write(self, line: str, flush: bool) -> None:
        if self._size >= SEGMENT_BYTES:
            self.close()
            self._file = self._next()
        self._file.write(line + "\n")
        self._size += len(line) + 1
        if flush:
            self._file.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        path = Path(self._file.name)
        path.rename(path.with_suffix(""))

    def _next(self) -> TextIO:
        self._number += 1
        self._size = 0
        return Path(f"{self._stem}-{self._number:04d}.jsonl.open").open("x", encoding="utf-8")
