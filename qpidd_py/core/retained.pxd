from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.routes cimport Route

cdef bint lands(Engine engine, Queue queue, Route route, size_t octets) except -1
cdef int retain(Engine engine, tuple note) except -1
cdef int one_more(Engine engine, Queue queue) except -1
cdef int try_again(Engine engine) except -1
cdef bint holds_many(Engine engine, Queue queue) except -1
