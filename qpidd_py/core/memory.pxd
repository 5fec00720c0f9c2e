from libc.stdint cimport uint64_t

cdef void* mem_new(size_t n) noexcept nogil
cdef void* mem_zeroed(size_t count, size_t size) noexcept nogil
cdef void* mem_resized(void* p, size_t n) noexcept nogil
cdef bint planned_failure() noexcept nogil
cdef bint is_scarce() noexcept nogil
cdef bint use_reserve() noexcept nogil
cdef uint64_t reserve_used() noexcept nogil
