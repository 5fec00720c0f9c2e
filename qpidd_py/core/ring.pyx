# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A ring of entries in order of message id, each of which points to a record in a log segment."""
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport free

from qpidd_py.core.memory cimport mem_zeroed


cdef void ring_free(Ring* r) noexcept:
    cdef Entry* e
    if r.entries == NULL:
        return
    while r.head < r.tail:
        e = ring_at(r, r.head)
        if e.segment != NULL:
            Py_DECREF(<Segment>e.segment)
            e.segment = NULL
        r.head += 1
    free(r.entries)
    r.entries = NULL


cdef int ring_resize(Ring* r, uint64_t capacity) except -1:
    """Moves the entries to a ring of `capacity` (a power of two, large enough); indexes stay the same.  A MemoryError
    changes nothing."""
    cdef Entry* entries = <Entry*>mem_zeroed(capacity, sizeof(Entry))
    cdef uint64_t i
    if entries == NULL:
        raise MemoryError(f"no memory for an index of {capacity} messages")
    for i in range(r.head, r.tail):
        entries[i & (capacity - 1)] = r.entries[i & r.mask]
    free(r.entries)
    r.entries = entries
    r.mask = capacity - 1
    return 0


cdef uint64_t ring_after(Ring* r, uint64_t id) noexcept nogil:
    """The first index whose id is greater than `id`; tail if there is none."""
    cdef uint64_t low = r.head, high = r.tail, middle
    while low < high:
        middle = low + (high - low) // 2
        if ring_at(r, middle).id <= id:
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t ring_find(Ring* r, uint64_t id) noexcept nogil:
    """The index of `id`, or -1."""
    cdef uint64_t index = ring_after(r, id)
    if index > r.head and ring_at(r, index - 1).id == id:
        return <int64_t>(index - 1)
    return -1
