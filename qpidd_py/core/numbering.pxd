from libc.stdint cimport uint8_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.routes cimport Route

cdef uint64_t enqueue_numbered(Engine engine, Route route, const uint8_t* exrk, size_t route_size,
                               const uint8_t* header, size_t header_size, const uint8_t* body,
                               size_t body_size) except 0
cdef dict count(Engine engine, Route route, size_t octets)
cdef size_t room_of(Route route, size_t octets) except -1
