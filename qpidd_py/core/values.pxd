from libc.stdint cimport int64_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef class LastValues:          # of a queue that keeps the last message of each value of a header
    cdef readonly str key
    cdef bytes name
    cdef dict newest            # value -> id of the newest message that has it
    cdef dict values            # id -> value
    cdef bint stale             # there are messages that are not noted: those behind `seen`
    cdef uint64_t seen

cdef int keep_last(Engine engine, Queue queue) except -1
cdef int look_anew(Engine engine, Queue queue) except -1
cdef int go_on_looking(Engine engine) except -1
cdef int value_back(Engine engine, Queue queue, uint64_t id) except -1
