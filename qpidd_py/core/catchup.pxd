from libc.stdint cimport uint8_t, uint32_t, uint64_t

from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ranges cimport Ranges

cdef class Catchup:
    cdef readonly Queue queue
    cdef list levels                        # still to be visited, the present one last
    cdef Queue level
    cdef Ranges held
    cdef uint64_t cut
    cdef object keys                        # None, or: the keys that the queue remembers are wanted, behind this message
    cdef uint64_t key                       # the next of them; UNLIMITED: none was sent yet
    cdef uint64_t sent                      # every id up to here has been looked at
    cdef size_t at                          # first range that may still matter
    cdef readonly uint64_t messages         # sent so far
    cdef readonly uint64_t octets
    cdef object again                       # called when what a slice waits for has been read
    cdef bint waits                         # for it
    cdef readonly bint rotten               # it cannot be read
    cdef bytes slice_level(self, size_t limit)
    cdef int fetch(self, uint64_t i) except -1
    cdef bint holds(self, uint64_t id) noexcept
