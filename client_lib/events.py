"""Events of the client: JSON lines for the incident analysis, and callbacks.

A line is one flat object; absent fields are left out.  FIELDS has all columns and their types, ALWAYS the columns of
every line, KINDS the kinds of events.  Times are in microseconds: `ts_wall` since 1970 (UTC), `ts_mono` of
CLOCK_MONOTONIC; `ts_res` is their resolution.  `boot_id` is the machine's, new with each start of it: the monotonic
clocks of two processes can be compared when they share it.  `proc` names this log and no other; its `seq` counts from 1
without gaps, so a missing number is a lost line and the last line of a log that ended in order is `log_end`.

Kinds: connect (an attempt begins), connect_refused (it failed: `result`, `reason`), connected (`attrs.broker`: its
name; `attrs.peer_wall`: a lower bound of its clock at this moment, from the time it sent while connecting; after a
fail-over `attrs.outage_us`), disconnected, recovered (the last message that was sent again is confirmed:
`attrs.resent`, `attrs.outage_us` since the loss), publish, resend, confirm, nack, return, deliver (`resend`: the
message is marked as a possible second copy), ack, reject (without requeue), release (back to the queue), blocked and
unblocked (the broker asks to pause), drain_begin, drain_end, log_end.

Events about messages may share a line, which names them all: see `client_lib.event_runs`.  They are in the file at most
RUN_SECONDS after they happened, all other events at once; a process that is killed may lose the last RUN_SECONDS of its
message events, and has no `log_end`.  Files: see `client_lib.event_sink`.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from client_lib.event_runs import NOWHERE, Run, Runs, Where, flag_fields, split_id
from client_lib.event_sink import Target, open_sink

__all__ = ["ALWAYS", "FIELDS", "KINDS", "RUN_SECONDS", "EventLog", "Where"]

LOGGER = logging.getLogger("client_lib")
RUN_SECONDS = 0.1

KINDS: Final = frozenset({
    "connect", "connect_refused", "connected", "disconnected", "recovered",
    "publish", "resend", "confirm", "nack", "return", "deliver", "ack", "reject", "release",
    "blocked", "unblocked", "drain_begin", "drain_end", "log_end",
})  # fmt: skip

FIELDS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("cluster", "node", "source", "proc", "boot_id"), str),
    **dict.fromkeys(("seq", "ts_wall", "ts_mono", "ts_res"), int),
    "kind": str,
    "term": int,
    "queue": str,
    **dict.fromkeys(("first_pos", "last_pos"), int),
    **dict.fromkeys(("peer", "client_id", "conn_id", "channel", "msg_id", "old", "new", "reason", "result"), str),
    **dict.fromkeys(("resend", "redelivered", "planned"), bool),
    "attrs": dict,
}
"""The columns that a broker or client may fill; `attrs` maps text to text."""

ALWAYS: Final = frozenset(
    {"cluster", "node", "source", "proc", "boot_id", "seq", "ts_wall", "ts_mono", "ts_res", "kind", "client_id"}
)

Callback = Callable[[Mapping[str, Any]], None]
_encode = json.JSONEncoder(separators=(",", ":")).encode


def boot_id() -> str:
    """Of this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _now() -> tuple[int, int]:
    """Monotonic and wall clock, in microseconds."""
    return time.monotonic_ns() // 1000, time.time_ns() // 1000


class EventLog:
    """Thread-safe; no call raises for an error of the disk or of a callback.  Without target and callback, events about
    messages cost almost nothing.

    Callbacks get the events in the order of `seq` and one at a time, in the thread of the event, without a lock of the
    library: they may use the connection, and must be quick."""

    def __init__(
        self, client_id: str, target: Target | None = None, callback: Callback | None = None, cluster: str = ""
    ) -> None:
        token = uuid.uuid4().hex[:8]
        self.enabled = target is not None or callback is not None
        """True if events about messages are recorded."""
        self._lock = threading.Lock()
        self._runs = Runs()
        self._seq = 0
        self._closed = False
        self._head = {
            "cluster": cluster,
            "node": socket.gethostname(),
            "source": "client",
            "proc": f"{client_id}:{os.getpid()}:{token}",
            "boot_id": boot_id(),
            "client_id": client_id,
            "ts_res": 1,
        }
        self._sink = None if target is None else open_sink(target, f"{client_id}-{token}")
        self._callback = callback
        self._listeners: tuple[Callback, ...] = ()
        self._undelivered: deque[tuple[Callback, Mapping[str, Any]]] = deque()
        self._delivering = False

    @property
    def dropped(self) -> int:
        """Lines that could not be written."""
        return self._sink.dropped if self._sink is not None else 0

    def listen(self, callback: Callback) -> None:
        """Calls back with each event that is not about a message, from now on."""
        with self._lock:
            self._listeners += (callback,)

    def fact(self, kind: str, **fields: Any) -> None:
        """One event that stands for itself; None values are left out, `attrs` values become text."""
        if self._closed or not (self.enabled or self._listeners):
            return
        with self._lock:
            self._fact(kind, fields)
        self._deliver()

    def message(self, kind: str, queue: str, message_id: str | None, flags: int = 0, where: Where = NOWHERE) -> None:
        """One event about one message; `flags`: REDELIVERED and RESENT of a delivery, else 1 if it was sent again."""
        if not self.enabled or self._closed:
            return
        with self._lock:
            mono = time.monotonic_ns() // 1000
            if not self._runs.go_on(kind, queue, message_id, flags, mono, where):
                self._message(kind, queue, message_id, flags, where, mono, time.time_ns() // 1000)
        if self._undelivered:
            self._deliver()

    def messages(
        self, kind: str, queue: str, ids: Sequence[str | None], flags: int = 0, where: Where = NOWHERE
    ) -> None:
        """The same for several that happened together: cheaper."""
        if not self.enabled or self._closed:
            return
        with self._lock:
            mono, wall = _now()
            index = 0
            while index < len(ids):
                run = self._message(kind, queue, ids[index], flags, where, mono, wall)
                index = index + 1 if run is None else run.follow(ids, index + 1, mono)
        if self._undelivered:
            self._deliver()

    def flush_runs(self) -> None:
        """Writes open runs; call every RUN_SECONDS."""
        if not self.enabled or self._closed:
            return
        with self._lock:
            self._write_runs(self._runs.take())
            self._flush()
        self._deliver()

    def close(self, **fields: Any) -> None:
        """Writes `log_end` and closes the file; what comes later is ignored."""
        with self._lock:
            if self._closed:
                return
            attrs = {**(fields.pop("attrs", None) or {}), **({"dropped": self.dropped} if self.dropped else {})}
            self._fact("log_end", {**fields, "attrs": attrs or None})
            self._closed = True
            if self._sink is not None:
                self._sink.close()
        self._deliver()

    def forked(self) -> None:
        """In the child after fork(2): the file is the parent's, and another thread may have held the lock."""
        self._lock, self._closed, self._sink = threading.Lock(), True, None

    # -- with the lock held

    def _fact(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._write_runs(self._runs.take())
        self._write(kind, *_now(), fields)
        self._flush()

    def _message(
        self, kind: str, queue: str, message_id: str | None, flags: int, where: Where, mono: int, wall: int
    ) -> Run | None:
        """The run that it is in; None if its line is written already."""
        parts = split_id(message_id) if message_id else None
        if parts is not None:
            run, ended = self._runs.add(kind, queue, *parts, flags, mono, wall, where)
            self._write_runs(ended)
            return run
        self._write_runs(self._runs.take())
        fields = {"queue": queue, "msg_id": message_id, **flag_fields(kind, flags), **where.fields()}
        self._write(kind, mono, wall, fields)
        return None

    def _write_runs(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._write(run.kind, run.mono, run.wall, run.fields())

    def _write(self, kind: str, mono: int, wall: int, fields: Mapping[str, Any]) -> None:
        if self._closed:
            return
        self._seq += 1
        event = {"seq": self._seq, "ts_wall": wall, "ts_mono": mono, "kind": kind, **self._head}
        event.update((name, _value(name, value)) for name, value in fields.items() if value is not None)
        if self._sink is not None:
            self._sink.add(_encode(event).encode() + b"\n")
        if self._callback is not None:
            self._undelivered.append((self._callback, event))
        if self._listeners and "msg_id" not in event:
            self._undelivered += [(listener, event) for listener in self._listeners]

    def _flush(self) -> None:
        if self._sink is not None:
            self._sink.flush()

    # -- without

    def _deliver(self) -> None:
        """The first thread delivers for all, which keeps the order; a callback that calls this returns at once."""
        while self._undelivered:
            with self._lock:
                if self._delivering or not self._undelivered:
                    return
                self._delivering, (callback, event) = True, self._undelivered.popleft()
            try:
                callback(event)
            except Exception:
                LOGGER.exception("%r raised for the event %s", callback, event["kind"])
            finally:
                self._delivering = False


def _value(name: str, value: Any) -> Any:
    """The value in the type of its column; a value of another type becomes text, so that the line can still be
    loaded."""
    if name == "attrs":
        return {str(key): str(text) for key, text in value.items()}
    return value if isinstance(value, FIELDS.get(name, str)) else str(value)
