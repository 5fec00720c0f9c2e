"""A client's history (`testkit/record.py`) as the events that `failover-report` reads (`spark_jobs/schema.py`).

    invoke, again    publish, resend            fact connected, disconnected    the same
    ok, nack         confirm, nack              end                             log_end
    receive, ack     deliver, ack               unknown, abort, changed         nothing: they are no events of AMQP

Of clients whose messages the report counts differently (`queues.py`) it gets the connections only: the brokers name all
clients, and without the log of one of them nothing is lost to it.  If the brokers report empty queues at the end, each
consumer gets a `drain_end`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from testkit import record

Event = Mapping[str, Any]
_KINDS: Final = {"ok": "confirm", "nack": "nack", "ack": "ack"}


def write(histories: Path, target: Path, drained: bool, cluster: str = "") -> None:
    """One file of lines for each client."""
    target.mkdir(parents=True, exist_ok=True)
    for client, events in groupby(record.read(histories), key=lambda event: str(event["client"])):
        with (target / f"client-{client}.jsonl").open("w", encoding="utf-8") as file:
            for event in converted(events, drained, cluster):
                file.write(json.dumps(event, separators=(",", ":")) + "\n")


def converted(history: Iterable[Event], drained: bool, cluster: str = "") -> Iterator[dict[str, Any]]:
    """The lines of one client, numbered.  Raises ValueError for a history without its `begin`."""
    events = iter(history)
    begin = next(events, None)
    if begin is None or begin["kind"] != "begin":
        raise ValueError(f"a history that begins with {begin}, wanted the kind 'begin'")
    if "apart" in begin:
        events = (event for event in events if event["kind"] in ("fact", "end"))
    common = {name: begin[name] for name in ("node", "boot_id")} | {"source": "client", "cluster": cluster}
    common |= {"proc": begin["client"], "client_id": begin["client"], "ts_res": 1}
    for seq, (at, row) in enumerate(_rows(events, str(begin["queue"]), drained), 1):
        yield {"seq": seq, "ts_wall": at - begin["t"] + begin["wall"], "ts_mono": at, **row, **common}


def _rows(events: Iterable[Event], queue: str, drained: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    consumes = False
    for event in events:
        consumes |= event["kind"] == "receive"
        if event["kind"] == "end" and consumes and drained:
            yield event["t"], {"kind": "drain_end", "queue": queue, "result": "ok"}
        row = _row(event, queue)
        if row:
            yield event["t"], row


def _row(event: Event, queue: str) -> dict[str, Any]:
    kind = event["kind"]
    if kind == "end":
        return {"kind": "log_end"}
    if kind == "fact":
        return _fact(str(event["text"]))
    about = {"queue": queue, "msg_id": event.get("id", "")}
    if kind == "invoke":
        return {"kind": "resend", "resend": True, **about} if event.get("again") else {"kind": "publish", **about}
    if kind == "receive":
        marks = {name: True for name, said in _MARKS.items() if event.get(said)}
        return {"kind": "deliver", **about, **marks}
    return {"kind": _KINDS[kind], **about} if kind in _KINDS else {}


_MARKS: Final = {"redelivered": "redelivered", "resend": "resent"}


def _fact(text: str) -> dict[str, Any]:
    """`connected PEER`, `disconnected PEER: REASON`; others are not used here."""
    word, _, rest = text.partition(" ")
    if word not in ("connected", "disconnected"):
        return {}
    peer, _, reason = rest.partition(": ")
    return {"kind": word, "peer": peer, **({"reason": reason} if reason else {})}
