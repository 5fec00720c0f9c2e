from libc.stdint cimport uint8_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef int make_classes(Engine engine, list queues, const uint8_t* header, size_t size) except -1
cdef int came(Engine engine, Queue queue, const uint8_t* record) except -1
cdef int settled(Engine engine, Queue queue, uint64_t id, bint ready) except -1
cdef int taken_over(Engine engine, Queue queue) except -1
