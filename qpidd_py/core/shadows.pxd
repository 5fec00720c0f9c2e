from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.routes cimport Route

cdef Route route_without(Route route, list known)
cdef list shadows_of(Route route, list full)
cdef bint copy_first(Engine engine, Queue queue, route) except -1
