from libc.stdint cimport int64_t

from qpidd_py.core.queue cimport Queue

cdef enum:
    HIGH = 5                    # the lowest of the high priorities
    RUN = 2                     # high messages that are handed out for a normal one

cdef int split(Queue queue) except -1
cdef Queue next_class(Queue queue)
cdef void count_above(Queue level, int64_t ready, int64_t unacked, int64_t octets, int64_t body) noexcept
