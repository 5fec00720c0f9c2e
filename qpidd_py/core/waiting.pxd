from libc.stdint cimport int64_t, uint8_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.routes cimport Route

cdef uint64_t enqueue_later(Engine engine, Route route, const uint8_t* exrk, size_t route_size, const uint8_t* header,
                            size_t header_size, const uint8_t* body, size_t body_size) except 0
cdef int note_due(Queue queue, const uint8_t* record) except -1
cdef uint64_t release_due(Engine engine, Queue queue, int64_t* left) except 0
cdef int look_again(Queue queue) except -1
