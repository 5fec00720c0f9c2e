"""A page file in memory for an engine of a test: what leaves, and when it is back, is up to the test."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from qpidd_py.core import Engine, Page, Paging
from qpidd_py.errors import PageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

ALL = 1 << 40


class MemoryPages:
    def __init__(self, engine: Engine, instant: bool = False) -> None:
        """`instant`: what is wanted is there."""
        self.engine = engine
        self.paging = Paging(engine, self.fill)
        self.octets: dict[tuple[int, ...], bytearray] = {}
        self._places = count()
        self._writing: list[Page] = []
        self._reading: list[Page] = []
        self.left = self.read = 0
        self.on_rot: Callable[[], None] | None = None
        """Called when a page was found rotten, before who waits for it; None: PageError is raised."""
        if instant:
            self.paging.on_wanted = self._all_at_once

    def fill(self, place: tuple[int, ...], buffer: Buffer) -> None:
        memoryview(buffer)[:] = self.octets[place]
        self.read += 1

    def out(self, octets: int = ALL, young: int = 0) -> None:
        """Segments begin to leave."""
        self.vacate()
        for page in self.paging.leave(octets, young):
            page.place = (next(self._places),)
            self._writing.append(page)

    def written(self, number: int = ALL) -> None:
        for page in self._writing[:number]:
            page.checksum()
            self.octets[page.place] = bytearray(page)
            self.paging.left(page)
            self.left += 1
        del self._writing[:number]

    def refused(self) -> None:
        for page in self._writing:
            self.paging.stay(page)
        self._writing.clear()

    def everything(self) -> None:
        """What may leave is gone."""
        self.out()
        self.written()

    def vacate(self) -> None:
        for place in self.paging.vacated():
            del self.octets[place]

    def begin_reads(self) -> None:
        while (page := self.paging.next_read()) is not None:
            self.fill(page.place, page)
            self._reading.append(page)

    def damage(self, number: int) -> int:
        """Of what is being read, so many pages at most: other octets than were written.  How many."""
        for page in self._reading[:number]:
            memoryview(page)[-5] ^= 1
        return len(self._reading[:number])

    def arrive(self, number: int = ALL) -> bool:
        """What is wanted comes back; False if nothing was."""
        self.begin_reads()
        arrived = self._reading[:number]
        del self._reading[:number]
        for page in arrived:
            try:
                self.paging.arrived(page)
            except PageError:
                if self.on_rot is None:
                    raise
                self.paging.spoilt(page)
                self.on_rot()
                self.paging.look_again()
        return bool(arrived)

    def _all_at_once(self) -> None:
        self.arrive()

    def at_random(self, rng: Random) -> None:
        """Something happens, or nothing."""
        what = rng.randrange(8)
        if what == 0:
            self.out(rng.choice((1, 5000, ALL)), rng.choice((0, 0, 3)))
        elif what == 1:
            self.written(rng.choice((1, ALL)))
        elif what == 2:
            self.refused()
        elif what == 3:
            self.everything()
        elif what == 4:
            self.begin_reads()
        elif what == 5:
            self.arrive(1)
