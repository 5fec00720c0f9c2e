cdef class Deadlines:
    cdef dict when                  # thing -> its deadline
    cdef list heap                  # (deadline, a number that grows, thing); those that `when` does not have are stale
    cdef readonly size_t looks      # at entries of the heap, ever: what the work is counted by
    cdef size_t number
    cpdef int set(self, thing, when) except -1
    cpdef int drop(self, thing) except -1
    cdef bint skip_stale(self) except -1
    cpdef bint waits(self, now) except -1
    cpdef object pop(self, now)
