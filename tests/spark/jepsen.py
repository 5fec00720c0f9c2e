"""Jepsen's `total-queue`: its histories as our rows, and its formulas over multisets, word for word.

jepsen/src/jepsen/checker.clj and test/jepsen/checker_test.clj, at c4c7473.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
Op = tuple[str, str, str]
"""(invoke | ok, enqueue | dequeue, value); what an `invoke` of a dequeue brings is not known yet: empty."""

EMPTY: list[Op] = []
SANE: list[Op] = [
    ("invoke", "enqueue", "1"),
    ("invoke", "enqueue", "2"),
    ("ok", "enqueue", "2"),
    ("invoke", "dequeue", ""),
    ("ok", "dequeue", "1"),
    ("invoke", "dequeue", ""),
    ("ok", "dequeue", "2"),
]
PATHOLOGICAL: list[Op] = [
    ("invoke", "enqueue", "hung"),
    ("invoke", "enqueue", "enqueued"),
    ("ok", "enqueue", "enqueued"),
    ("invoke", "enqueue", "dup"),
    ("ok", "enqueue", "dup"),
    ("invoke", "dequeue", ""),
    ("invoke", "dequeue", ""),
    ("ok", "dequeue", "wtf"),
    ("invoke", "dequeue", ""),
    ("ok", "dequeue", "dup"),
    ("invoke", "dequeue", ""),
    ("ok", "dequeue", "dup"),
]
VECTORS: dict[str, tuple[list[Op], dict[str, Any]]] = {
    "empty": (EMPTY, {"valid": True}),
    "sane": (SANE, {"valid": True, "attempts": 2, "confirmed": 1, "ok": 2, "recovered": {"1": 1}}),
    "pathological": (
        PATHOLOGICAL,
        {
            "valid": False,
            "attempts": 3,
            "confirmed": 2,
            "ok": 1,
            "lost": {"enqueued": 1},
            "unexpected": {"wtf": 1},
            "duplicated": {"dup": 1},
        },
    ),
}
"""name -> (history, what Jepsen's own test expects; what is not named is 0 or empty)."""


def total_queue(history: Iterable[Op]) -> dict[str, Any]:
    """The checker, with multisets as in the original."""
    listed = list(history)
    attempts = Counter(value for type_, f, value in listed if (type_, f) == ("invoke", "enqueue"))
    enqueues = Counter(value for type_, f, value in listed if (type_, f) == ("ok", "enqueue"))
    dequeues = Counter(value for type_, f, value in listed if (type_, f) == ("ok", "dequeue"))
    ok = dequeues & attempts
    unexpected = Counter({value: count for value, count in dequeues.items() if value not in attempts})
    duplicated = dequeues - attempts - unexpected
    lost, recovered = enqueues - dequeues, ok - enqueues
    found: dict[str, Any] = {"valid": not lost and not unexpected}
    found |= {"attempts": attempts.total(), "confirmed": enqueues.total(), "ok": ok.total()}
    parts = {"lost": lost, "unexpected": unexpected, "duplicated": duplicated, "recovered": recovered}
    return {name: value for name, value in (found | {name: dict(of) for name, of in parts.items()}).items() if value}


def rows(history: Sequence[Op], cluster: str = "") -> list[Row]:
    """The logs of one producer and one consumer, both complete, the queue drained.  A dequeue is a delivery that was
    acknowledged."""
    logs: dict[str, list[Row]] = {"p": [], "c": []}

    def say(client: str, at: int, kind: str, value: str | None = None, **more: Any) -> None:
        row: Row = {"source": "client", "kind": kind, "client_id": client, "proc": client, "queue": "q"}
        row |= {"cluster": cluster, "node": "h", "ts_wall": at, "ts_mono": at, "seq": len(logs[client]) + 1}
        if value is not None:
            row |= {"producer": f"id-{value}", "pub_first": 0, "pub_last": 0, "msg_id": f"id-{value}"}
        logs[client].append(row | more)

    for at, (type_, f, value) in enumerate(history):
        if f == "enqueue":
            say("p", at, "publish" if type_ == "invoke" else "confirm", value)
        elif type_ == "ok":
            say("c", at, "deliver", value)
            say("c", at, "ack", value)
    if history:
        say("c", len(history), "drain_end", result="ok")
        say("c", len(history), "log_end", queue=None)
        say("p", len(history), "log_end", queue=None)
    return [*logs["p"], *logs["c"]]
