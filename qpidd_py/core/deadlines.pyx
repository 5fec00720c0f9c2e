# cython: language_level=3
"""When to look at what: one deadline for each thing, the earliest first.

A look costs the logarithm of how many things there are, and nothing is looked at before its time.  A deadline that is
moved leaves its old entry in the heap; when most are stale the heap is made anew, so it is never larger than twice what
it holds.
"""
from heapq import heapify, heappop, heappush

cdef enum:
    FEW = 64                    # stale entries that do not matter


cdef class Deadlines:
    """Times are numbers of the caller's clock.  Things are hashed; equal things are one."""

    def __cinit__(self):
        self.when = {}
        self.heap = []

    def __len__(self):
        return len(self.when)

    cpdef int set(self, thing, when) except -1:
        """Its deadline from now on."""
        if len(self.heap) > 2 * len(self.when) + FEW:
            self.heap = [entry for entry in self.heap if self.when.get(entry[2]) == entry[0]]
            heapify(self.heap)
        self.number += 1
        heappush(self.heap, (when, self.number, thing))
        self.when[thing] = when
        return 0

    cpdef int drop(self, thing) except -1:
        """It has no deadline any more; it may have had none."""
        self.when.pop(thing, None)
        return 0

    cdef bint skip_stale(self) except -1:
        """False if there is no deadline."""
        while self.heap:
            when, _, thing = self.heap[0]
            if self.when.get(thing) == when:
                return True
            self.looks += 1
            heappop(self.heap)
        return False

    cpdef bint waits(self, now) except -1:
        """Has a deadline come?"""
        return self.skip_stale() and self.heap[0][0] <= now

    cpdef object pop(self, now):
        """A thing whose deadline has come, which has none from here on; None when there is none."""
        if not self.waits(now):
            return None
        self.looks += 1
        thing = heappop(self.heap)[2]
        del self.when[thing]
        return thing
