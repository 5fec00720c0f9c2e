"""Power losses: several brokers ended without a clean stop, all were down at one moment, and they came back (pure).

What a broker's disk brought back is in its row `journal_read`.  The last sign of life of each is only what its log has:
the process may have gone on in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spark_jobs.schema import Event
from spark_jobs.solve.signs import Facts, attr, sequence

FEWEST: Final = 2


@dataclass(frozen=True)
class Return:
    """One broker: what it wrote last, its next start, and what its journal had (None: no row says)."""

    node: str
    last: Event
    start: Event
    journal: Event | None


@dataclass(frozen=True)
class Loss:
    """Brokers that were down at one moment; by the time of their start."""

    returns: tuple[Return, ...]

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(each.node for each in self.returns)

    @property
    def journals(self) -> Mapping[str, Event]:
        return {each.node: each.journal for each in self.returns if each.journal is not None}


def find(facts: Facts) -> list[Loss]:
    """By time.  Only such with a journal: without one, what was in memory is gone, which other rules say."""
    found: list[Loss] = []
    group: list[Return] = []
    for back in sorted(_returns(facts), key=lambda each: int(each.start["ts_est"])):
        # All of the group were down when the first of them came back.
        if group and back.last["ts_lo"] > group[0].start["ts_hi"]:
            found += _loss(group)
            group = []
        group.append(back)
    return [*found, *_loss(group)]


def _loss(group: Sequence[Return]) -> list[Loss]:
    several = len({each.node for each in group}) >= FEWEST
    return [Loss(tuple(group))] if several and any(each.journal for each in group) else []


def _returns(facts: Facts) -> Iterable[Return]:
    for node, rows in facts.own.items():
        segments = [row for row in rows if row.get("source") == "broker"]
        for before, start in pairwise(segments):
            if (
                start["kind"] == "start"
                and before.get("proc") != start.get("proc")
                and before["kind"] not in ("stop", "log_end")
            ):
                life = (row for row in segments if row.get("proc") == start.get("proc"))
                yield Return(node, before, start, next((row for row in life if row["kind"] == "journal_read"), None))


def described(journal: Event) -> str:
    """What one disk brought back."""
    result, reason = journal.get("result"), journal.get("reason")
    if result == "damaged":
        return f"its journal is damaged, and nothing of it counts: {reason}"
    if result == "empty":
        return "its journal was empty"
    what = f"{attr(journal, 'messages')} messages in {attr(journal, 'queues')} queues, up to {position(journal)}"
    torn = "; a write was cut off, and nothing of it had been acknowledged" if attr(journal, "torn") == "yes" else ""
    whole = "all that it had acknowledged" if result == "whole" else f"it may lack something ({reason})"
    return f"{what}: {whole}, read in {attr(journal, 'seconds')} s{torn}"


def position(event: Event) -> str:
    """EPOCH.SEQUENCE."""
    return f"{(event.get('last_pos') or 0) >> 48}.{sequence(event) or 0}"
