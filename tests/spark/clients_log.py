"""Event logs of clients in bulk, with one message that is lost: what is too big for a driver."""

from __future__ import annotations

import json
from typing import Any

from tests.spark.truth.world import START

STEP = 1000
"""µs between two messages."""
LOST = 7
"""Number of the message that no client gets."""


class _Log:
    def __init__(self, cluster: str, client: str) -> None:
        self.lines: list[str] = []
        self._same = {"cluster": cluster, "source": "client", "client_id": client, "proc": f"{client}-1", "node": "h1"}

    def say(self, at: int, kind: str, **more: Any) -> None:
        times = {"ts_wall": START + at, "ts_mono": 10**9 + at, "ts_res": 1}
        event = {**self._same, "seq": len(self.lines) + 1, "kind": kind, **times, **more}
        self.lines.append(json.dumps(event, separators=(",", ":")))

    @property
    def data(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()


def segments(cluster: str, messages: int) -> dict[str, bytes]:
    """Name → segment: p1 sends nine messages of ten, p2 the tenth; c1 takes them all."""
    logs = {name: _Log(cluster, name) for name in ("p1", "p2", "c1")}
    for number in range(1, messages + 1):
        at, sender = number * STEP, "p2" if number % 10 == 0 else "p1"
        named = {"msg_id": f"{sender}:{number}", "queue": "q"}
        logs[sender].say(at, "publish", **named)
        logs[sender].say(at + 300, "confirm", **named)
        if number != LOST:
            logs["c1"].say(at + 400, "deliver", **named)
            logs["c1"].say(at + 500, "ack", **named)
    end = (messages + 1) * STEP
    logs["c1"].say(end, "drain_end", queue="q", result="ok")
    for log in logs.values():
        log.say(end + 1, "log_end")
    return {f"{name}-0001.jsonl": log.data for name, log in logs.items()}
