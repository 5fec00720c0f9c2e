from libc.stdint cimport uint8_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.routes cimport Route
from qpidd_py.core.window cimport Window

cdef Route entering(Engine engine, Route route, const uint8_t* header, size_t size, uint64_t* safe)
cdef int make_room(Route route) except -1
cdef int remember(Queue queue, const uint8_t* record) except -1
cdef bytes write_seen(Queue queue, uint64_t* index, uint64_t after, uint64_t cut, size_t limit)
cdef int apply_seen(Queue queue, const uint8_t* record) except -1
