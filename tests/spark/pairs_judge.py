"""Observations that `clocks.pairs_query` finds in logs of any size, found in Python: its judge, and for tests that have
rows and no tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark_jobs.clocks import pairs
from spark_jobs.clocks.pairs import READING_DIGITS, Link, Observation, stamp_error, thinned
from spark_jobs.schema import Event

_MESSAGES: Final = (("publish", "publish", "enqueue"), ("confirm", "confirm_sent", "confirm"))


def observations(events: Iterable[Event], of: Sequence[Link] | None = None) -> list[Observation]:
    """Everything that rows say about clocks."""
    rows = sorted((event for event in events if pairs.timed(event)), key=pairs.place)
    names = pairs.aliases(rows)
    found = [item for event in rows for item in _told(event, names)]
    messages = [link for three in _MESSAGES for link in _same_message(rows, *three)]
    found += [pairs.observed(link) for link in messages if link.sent["node"] != link.received["node"]]
    return thinned([*found, *pairs.observations(rows, of)])


def _told(event: Event, names: Mapping[str, str]) -> Iterator[Observation]:
    """Rows that carry the sender's own reading."""
    attrs = event.get("attrs") or {}
    sent = _reading(attrs.get("peer_wall", ""))
    if event["kind"] not in ("clock", "connected", "client_open") or sent is None:
        return
    # An address that moves with the primary identifies no node.
    name = event.get("client_id") if event["kind"] == "client_open" else attrs.get("broker") or event.get("peer")
    sender = names.get(name or "")
    if sender is not None and sender != event["node"]:
        yield Observation(sender, event["node"], sent, event["ts_wall"] - sent, stamp_error(event), str(event["kind"]))


def _reading(text: str) -> int | None:
    """us; None if it is none, or none that a bigint holds."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= READING_DIGITS else None


def _same_message(rows: Iterable[Event], kind: str, send: str, receive: str) -> Iterator[Link]:
    ends: dict[tuple[Any, ...], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
    for event in rows:
        if event["kind"] in (send, receive) and event.get("msg_id"):
            ends[event.get("queue"), event["msg_id"]][event["kind"] == receive].append(event)
    for sends, receipts in ends.values():
        if len(sends) == len(receipts) == 1:
            yield Link(kind, sends[0], receipts[0])
