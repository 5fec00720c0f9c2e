# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""When the messages of a queue are due: a heap of 16 octets for each, see `waiting.pyx`.  Knows no queue."""
from libc.stdlib cimport free

from qpidd_py.core.memory cimport mem_resized


cdef class Delays:
    """When the messages of one queue are due."""

    def __cinit__(self, delay_of):
        self.delay_of = delay_of
        self.unreadable = []

    def __dealloc__(self):
        free(self.items)

    def __len__(self):
        return self.count

    cdef int room_for(self, size_t more) except -1:
        """The next `more` messages need no memory; a MemoryError changes nothing."""
        cdef size_t capacity = max(self.capacity, <size_t>8)
        cdef Due* items
        while capacity < self.count + more:
            capacity *= 2
        if capacity > self.capacity:
            items = <Due*>mem_resized(self.items, capacity * sizeof(Due))
            if items == NULL:
                raise MemoryError(f"no memory for {capacity} delayed messages")
            self.items, self.capacity = items, capacity
        return 0

    cdef int push(self, uint64_t when, uint64_t id) except -1:
        cdef size_t at = self.count
        self.room_for(1)
        while at and later(&self.items[(at - 1) // 2], when, id):
            self.items[at] = self.items[(at - 1) // 2]
            at = (at - 1) // 2
        self.items[at].when, self.items[at].id = when, id
        self.count += 1
        return 0

    cdef void pop(self) noexcept:
        cdef size_t at = 0, below
        cdef Due last
        self.count -= 1
        last = self.items[self.count]
        while 2 * at + 1 < self.count:
            below = 2 * at + 1
            if below + 1 < self.count and later(&self.items[below], self.items[below + 1].when, self.items[below + 1].id):
                below += 1
            if not later(&last, self.items[below].when, self.items[below].id):
                break
            self.items[at] = self.items[below]
            at = below
        self.items[at] = last


cdef inline bint later(const Due* due, uint64_t when, uint64_t id) noexcept:
    return due.when > when or (due.when == when and due.id > id)
