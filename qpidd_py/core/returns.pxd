from libc.stdint cimport uint8_t, uint16_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ring cimport Entry

cdef bint comes_back(Engine engine, Queue queue, uint64_t index, bint counted) except -1
cdef bint spent(Queue queue, uint64_t index) noexcept
cdef int handed_out(Engine engine, Queue queue, Entry* e, uint64_t index) noexcept
cdef int log_departures(Engine engine) except -1
cdef int apply_counts(Queue queue, const uint8_t* p) except -1
cdef size_t counts_size(Queue queue, uint64_t first, uint64_t last) noexcept
cdef void write_counts(Queue queue, uint64_t first, uint64_t last, uint64_t position, uint8_t* p) noexcept
