from libc.stdint cimport uint8_t, uint32_t

from qpidd_py.core.batch cimport Batch
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef Queue find_queue(Engine engine, uint32_t number)
cdef Batch apply_records(Engine engine, const uint8_t* source, size_t n, size_t start, bint side)
cdef int drop_ids(Engine engine, uint32_t number, bytes ids) except -1
