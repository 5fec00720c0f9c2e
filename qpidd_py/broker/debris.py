"""What deleted exchanges and queues leave in indexes, cleared away a little at a time.                            Pure.

A deletion takes one step for each exchange that is concerned, however many bindings it has: from then on the tables do
not have them, and what is `gone` is in no answer.  Their places in the indexes, and their memory, are given back here:
some with each change of the configuration, many with each tick.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from qpidd_py.broker.exchange import Exchange, Table
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.snapshot import Records

Destination = DeclaredQueue | Exchange
CHANGE: Final = 4
"""Bindings that one change clears away: more than it can leave behind, so nobody can be faster."""
TICK: Final = 1000
"""Bindings that one tick clears away, about 1 ms."""


class Debris:
    """The bindings that are left to be cleared away."""

    def __init__(self, records: Records, unlink: Callable[[Exchange, Destination], None]) -> None:
        """`unlink`: no binding leads from this exchange to this destination any more."""
        self._records = records
        self._unlink = unlink
        self._rest: deque[Iterator[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._rest)

    def add(self, source: Exchange, tables: dict[Destination, Table]) -> None:
        self._rest.append(self._clearing(source, tables))

    def clear(self, most: int) -> None:
        while self._rest and most > 0:
            most -= 1
            if next(self._rest[0], self) is self:
                self._rest.popleft()

    def _clearing(self, source: Exchange, tables: dict[Destination, Table]) -> Iterator[None]:
        while tables:
            destination, table = tables.popitem()
            while table:
                _, binding = table.popitem()
                source.forget(binding)
                self._records.drop(binding.position)
                yield
            self._unlink(source, destination)
            yield
