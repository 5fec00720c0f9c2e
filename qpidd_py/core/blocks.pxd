cdef enum:
    MOST_AHEAD = 8              # blocks

cdef class Ahead:
    cdef void* own              # what the thread knows; NULL until it was started
    cdef size_t size
    cdef size_t most
    cdef size_t taken           # since `rest`, ready or not
    cdef void* take(self) noexcept
    cdef void rest(self, size_t most) noexcept
    cdef size_t held(self) noexcept
    cdef bint start(self) noexcept

cdef void* fresh(size_t size) noexcept nogil
cdef void give_back(void* p, size_t size) noexcept nogil
