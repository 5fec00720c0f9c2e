from qpidd_py.core.engine cimport Engine

cdef int end_turn(Engine engine, bint linger) except -1
cdef int shed(Engine engine) except -1
