from qpidd_py.core.routes cimport Route

cdef Route route_without(Route route, list known)
cdef list shadows_of(Route route, list full)
