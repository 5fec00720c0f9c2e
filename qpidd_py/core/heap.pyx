# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbers of which the smallest comes first.

What is put in from the smallest to the largest, as when a channel gives back all that it holds, costs no comparison but
one: an array in order is a heap already.  Anything else costs the logarithm of how many there are.
"""
from libc.stdlib cimport free
from libc.string cimport memmove

from qpidd_py.core.memory cimport mem_resized

cdef enum:
    LARGE = 8192                # numbers whose memory is given back when none is left


cdef int heap_push(Heap* h, uint64_t number) except -1:
    """A MemoryError changes nothing."""
    cdef uint64_t* base
    cdef size_t at = h.count
    if h.start + h.count == h.capacity:
        make_room(h)
    base = h.items + h.start
    h.mixed = h.mixed or (at > 0 and number < base[at - 1])
    while h.mixed and at and base[(at - 1) // 2] > number:
        base[at] = base[(at - 1) // 2]
        at = (at - 1) // 2
        h.moves += 1
    base[at] = number
    h.moves += 1
    h.count += 1
    return 0


cdef int make_room(Heap* h) except -1:
    cdef size_t capacity = h.capacity * 2 if h.capacity else 8
    cdef uint64_t* items
    if h.start * 2 > h.capacity:
        memmove(h.items, h.items + h.start, h.count * sizeof(uint64_t))
        h.moves += h.count
        h.start = 0
        return 0
    items = <uint64_t*>mem_resized(h.items, capacity * sizeof(uint64_t))
    if items == NULL:
        raise MemoryError(f"no memory for {capacity} messages that came back")
    h.items = items
    h.capacity = capacity
    return 0


cdef void heap_pop(Heap* h) noexcept:
    """The smallest leaves; there is one."""
    h.count -= 1
    h.moves += 1
    if not h.count:
        h.start = 0
        h.mixed = False
        if h.capacity > LARGE:
            free(h.items)
            h.items = NULL
            h.capacity = 0
    elif h.mixed:
        sift_down(h, h.items[h.start + h.count])
    else:
        h.start += 1


cdef void sift_down(Heap* h, uint64_t number) noexcept:
    """`number` takes the place of the smallest."""
    cdef uint64_t* base = h.items + h.start
    cdef size_t at = 0, below
    while 2 * at + 1 < h.count:
        below = 2 * at + 1
        if below + 1 < h.count and base[below + 1] < base[below]:
            below += 1
        if base[below] >= number:
            break
        base[at] = base[below]
        at = below
        h.moves += 1
    base[at] = number
