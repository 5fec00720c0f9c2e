"""The history: what each client did and saw, one JSON line per event, independent of the brokers' logs.     Shell.

    begin     the client, its `queue` with its `rule` if it has one (`queues.py`; `removes`: it reads or purges it),
              `node` and `boot_id`, and the time as `wall` (µs since 1970)
    invoke    a message is about to be published; `again`: not for the first time
    ok        the broker has confirmed it
    nack      the broker has refused it, or returned it; `once`: it had not been sent before
    unknown   the connection broke before an answer
    abort     its transaction was never asked to commit, or was refused: it must never be seen
    receive   a consumer got it; `redelivered`: the broker said so; `resent`: the header x-resent says so;
              `changed`: its body is not what was sent
    ack       the consumer's acknowledgement was handed to the connection, or it needs none
    reject    the consumer rejected it
    empty     nothing was left when the consumer asked, at `asked` (µs), and then this broker confirmed something: it
              was the primary
    purge     is about to be asked for, of the client's queue;     purged    it was answered
    bind, unbind   are about to be asked for;     bound, unbound   it was answered, or a mandatory message has shown it
    fact      connected, disconnected and the like, with a `text`
    end       the history is complete up to here

Always there: t (µs of CLOCK_MONOTONIC), client, kind, id (of a message).  Messages of one transaction share a `tx`.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from ha.shell.events import boot_id

LARGE: Final = 2000
"""One body in 300 repeats its id so often, the others up to 40 times."""


WIDE: Final = "wide"
"""A client whose name says so sends bodies WIDER times as long."""
WIDER: Final = 40


def body_of(id: str) -> bytes:
    """What a message with this id carries: its id again and again, so that both tell of each other."""
    number = crc32(id.encode())
    times = WIDER if WIDE in id else 1
    return f"{id}/".encode() * (LARGE if number % 300 == 0 else times * (1 + number % 40))


def id_of(body: bytes) -> str:
    return body.partition(b"/")[0].decode(errors="replace")


class Recorder:
    """Writes the history of one client, line by line; its threads may share it."""

    def __init__(self, directory: Path, client: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.client = client
        self._file = (directory / f"{client}.jsonl").open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def begin(self, queue: str, **rule: Any) -> None:
        """The client uses this queue; `rule`, if a confirmed message may be removed from it (`queues.py`)."""
        wall, node = time.time_ns() // 1000, socket.gethostname()
        self._say("begin", queue=queue, wall=wall, node=node, boot_id=boot_id(), **rule)

    def event(self, kind: str, **more: Any) -> None:
        self._say(kind, **more)

    def message(self, kind: str, id: str, **more: Any) -> None:
        self._say(kind, id=id, **more)

    def received(self, id: str, body: bytes, redelivered: bool, resent: bool) -> None:
        more = {"changed": True} if body != body_of(id) else {}
        self.message("receive", id, redelivered=redelivered, resent=resent, **more)

    def fact(self, text: str) -> None:
        self._say("fact", text=text)

    def _say(self, kind: str, **more: Any) -> None:
        event = {"t": time.monotonic_ns() // 1000, "client": self.client, "kind": kind, **more}
        line = json.dumps(event, separators=(",", ":")) + "\n"
        with self._lock:
            self._file.write(line)

    def close(self) -> None:
        self._say("end")
        with self._lock:
            self._file.close()


def read(directory: Path, apart: bool = True) -> Iterator[dict[str, Any]]:
    """All events of all clients; within a client in order.  A torn last line is skipped.  Without `apart`: only of
    clients whose messages `failover-report` counts as we do (`queues.py`)."""
    for path in sorted(directory.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            events = (json.loads(line) for line in file if line.endswith("\n"))
            begin: dict[str, Any] = next(events, {})
            if begin and (apart or "apart" not in begin):
                yield begin
                yield from events
