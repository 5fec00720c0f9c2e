from libc.stdint cimport uint8_t, uint64_t

cdef class Run:                             # messages of one queue, by the ids of their publisher
    cdef bytes prefix                       # of PREFIX:n, or the whole id if it has another form
    cdef bint numbered
    cdef uint64_t first, last               # n
    cdef uint64_t count
    cdef uint64_t first_pos, last_pos       # lowest and highest position in the log
    cdef void cover(self, uint64_t position) noexcept
    cdef str name(self, uint64_t number)

cdef class IdRuns:
    cdef list runs
    cdef dict open                          # prefix -> the run that the next number would extend
    cdef Run recent
    cdef Run others                         # without a name here
    cdef size_t most
    cdef int begin(self, bytes prefix, bint numbered, uint64_t number, uint64_t position) except -1
    cdef int add(self, const uint8_t* header, size_t size, uint64_t position) except -1
