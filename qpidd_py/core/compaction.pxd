from qpidd_py.core.engine cimport Engine

cdef int compact(Engine engine) except -1
cdef int trim_rings(Engine engine) except -1
