"""Connections that are not logged in yet: how many there may be, and for how long.                              Pure.

At the limit the address that has most of them pays: a further one from there is refused; one from elsewhere is taken
and the oldest from there is closed.  So no host keeps others out by opening connections and saying nothing.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

PART: Final = 10
"""After a sweep that frees less than this part of the limit, the next one waits for a tick."""


class Newcomer(Protocol):
    """A connection."""

    @property
    def negotiating(self) -> bool:
        """False once it is open, or has ended."""


T = TypeVar("T", bound=Newcomer)


class Newcomers(Generic[T]):
    """All that are not logged in."""

    def __init__(self, limit: int, time_limit: float) -> None:
        """`limit`: 0 = none; `time_limit` in seconds."""
        self.retune(limit, time_limit)
        self._waiting: dict[str, deque[tuple[float, T]]] = {}
        self._count = 0
        self._swept = False

    def retune(self, limit: int, time_limit: float) -> None:
        self._limit = limit
        self._time_limit = time_limit

    def __len__(self) -> int:
        return self._count

    def room(self, address: str) -> tuple[bool, T | None]:
        """Whether one from `address` may come, and which other one has to go for it."""
        if not self._limit or self._count < self._limit:
            return True, None
        if not self._swept:
            self._sweep()
            self._swept = self._count > self._limit - self._limit // PART
            return self.room(address)
        most = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting.get(address, ())) >= len(self._waiting[most]):
            return False, None
        _, oldest = self._waiting[most].popleft()
        self._count -= 1
        return True, oldest

    def add(self, address: str, newcomer: T, now: float) -> None:
        self._waiting.setdefault(address, deque()).append((now + self._time_limit, newcomer))
        self._count += 1

    def late(self, now: float) -> Iterator[T]:
        """Those whose time is over, each once."""
        self._swept = False
        for address, waiting in list(self._waiting.items()):
            while waiting and (waiting[0][0] <= now or not waiting[0][1].negotiating):
                _, newcomer = waiting.popleft()
                self._count -= 1
                if newcomer.negotiating:
                    yield newcomer
            if not waiting:
                del self._waiting[address]

    def _sweep(self) -> None:
        for address, waiting in list(self._waiting.items()):
            self._waiting[address] = deque(each for each in waiting if each[1].negotiating)
            if not self._waiting[address]:
                del self._waiting[address]
        self._count = sum(map(len, self._waiting.values()))
