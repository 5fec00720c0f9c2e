from qpidd_py.core.queue cimport Queue

cdef enum:
    HIGH = 5                    # the lowest of the high priorities
    RUN = 2                     # high messages that are handed out for a normal one

cdef int split(Queue queue) except -1
cdef Queue next_class(Queue queue)
cdef void note_taken(Queue queue, Queue level) noexcept
