"""What a backup really holds, compared with what a primary calls safe: the ids in its queues against the records of the
log, without asking any broker for its position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qpidd_py.core import decode_ids
from tests.simulator import ledger
from tests.simulator.ledger import Ledger, Log
from tests.simulator.records import Ballot

if TYPE_CHECKING:
    from tests.simulator.process import BrokerProcess


class Shadow:
    """Remembers how far each backup has been compared with each log."""

    def __init__(self, records: Ledger) -> None:
        self._ledger = records
        self._compared: dict[tuple[Ballot, str, int], int] = {}

    def lacks(self, process: BrokerProcess, ballot: Ballot, safe: int) -> str:
        """What the log of this ballot has up to `safe` that the broker does not show; empty when there is nothing."""
        log = self._ledger.log_of(ballot)
        # It may have followed the primary before further than this one had: its own log may have a removal more.
        own = self._ledger.logs_up_to(process.engine.position)
        key = ballot, process.name, process.life
        since, self._compared[key] = self._compared.get(key, 0), safe
        for number, id, name in _arrivals(log, since, safe):
            there = _holds(process, number, id, id)
            if not there and not any(ledger.removed(each, number, id) for each in (log, *own)):
                return f"{name} of {ledger.name_of_queue(log, number)} is not on {process.name}"
        for number, low, high in _removals(log, since, safe):
            if _holds(process, number, low, high):
                return f"{process.name} still has what was removed from {ledger.name_of_queue(log, number)}"
        return ""


def _holds(process: BrokerProcess, number: int, low: int, high: int) -> bool:
    queue = process.engine.queues.get(number)
    return queue is not None and bool(decode_ids(queue.held(low, high)))


def _arrivals(log: Log, since: int, until: int) -> Iterator[tuple[int, int, str]]:
    for chapter, end in log:
        last = min(end, until)
        for id, number, name in reversed(chapter.order):
            if id <= since:
                break
            if id <= last:
                yield number, id, name
        if chapter.order and chapter.order[0][0] <= since:
            return


def _removals(log: Log, since: int, until: int) -> Iterator[tuple[int, int, int]]:
    for chapter, end in log:
        last = min(end, until)
        for number, removals in chapter.removals.items():
            for position, low, high in reversed(removals):
                if position <= since:
                    break
                if position <= last:
                    yield number, low, high
