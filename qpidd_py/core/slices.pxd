from libc.stdint cimport uint64_t

cdef enum:
    LOOK = 64                   # units of work between two looks

cdef class Slice:
    cdef public uint64_t most               # looks of a slice, for tests and the simulator; 0: no limit
    cdef public int look                    # LOOK, or less in the simulator
    cdef readonly uint64_t looks            # of this slice
    cdef int units                          # of work until the next look
    cdef bint endless, ended
    cdef void begin(self, bint endless) noexcept
    cdef bint late(self) noexcept
    cdef bint over(self) noexcept
    cdef inline bint spent(self, int units) noexcept:
        """So much was done; whether the slice is over."""
        self.units -= units
        return self.units <= 0 and self.over()
