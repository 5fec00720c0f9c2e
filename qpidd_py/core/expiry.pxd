from libc.stdint cimport uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport UNLIMITED, Queue

cdef int look_at(Engine engine, Queue queue, uint64_t when) except -1
cdef int expire_some(Engine engine) except -1
cdef int expire_queue(Engine engine, Queue queue) except -1

cdef inline uint64_t after(uint64_t time, uint64_t more) noexcept:
    """UNLIMITED when one of them is."""
    return UNLIMITED if time == UNLIMITED or more == UNLIMITED else time + more
