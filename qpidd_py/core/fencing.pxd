from libc.stdint cimport uint64_t

from qpidd_py.core.channel cimport Consumer
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef bint token_stands(Engine engine, Queue queue, Consumer consumer) except -1
cdef uint64_t token_of(Consumer consumer) noexcept
