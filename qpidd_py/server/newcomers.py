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
        self._sizes: dict[int, dict[str, None]] = {}
        """How many wait -> the addresses with so many: at the limit, each that comes asks which has most."""
        self._most = 0
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
        if len(self._waiting.get(address, ())) >= self._most:
            return False, None
        most = next(iter(self._sizes[self._most]))
        _, oldest = self._waiting[most].popleft()
        self._counted(most, self._most)
        return True, oldest

    def add(self, address: str, newcomer: T, now: float) -> None:
        waiting = self._waiting.setdefault(address, deque())
        waiting.append((now + self._time_limit, newcomer))
        self._counted(address, len(waiting) - 1)

    def late(self, now: float) -> Iterator[T]:
        """Those whose time is over, each once."""
        self._swept = False
        for address, waiting in list(self._waiting.items()):
            while waiting and (waiting[0][0] <= now or not waiting[0][1].negotiating):
                _, newcomer = waiting.popleft()
                self._counted(address, len(waiting) + 1)
                if newcomer.negotiating:
                    yield newcomer

    def _sweep(self) -> None:
        for address, waiting in list(self._waiting.items()):
            before = len(waiting)
            self._waiting[address] = deque(each for each in waiting if each[1].negotiating)
            self._counted(address, before)

    def _counted(self, address: str, before: int) -> None:
        """`before` waited from there; now as many as there are."""
        after = len(self._waiting[address])
        self._count += after - before
        if before:
            del self._sizes[before][address]
            if not self._sizes[before]:
                del self._sizes[before]
        if after:
            self._sizes.setdefault(after, {})[address] = None
        else:
            del self._waiting[address]
        self._most = max(self._most, after)
        while self._most and self._most not in self._sizes:
            self._most -= 1
