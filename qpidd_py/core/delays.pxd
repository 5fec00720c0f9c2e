from libc.stdint cimport uint64_t

cdef struct Due:
    uint64_t when               # milliseconds since 1970
    uint64_t id

cdef class Delays:
    cdef public object delay_of             # delay_of(content header): milliseconds from now
    cdef Due* items                         # a heap, the earliest first
    cdef size_t count, capacity
    cdef list unreadable                    # (when, id) of messages that were due and could not be read
    cdef int room_for(self, size_t more) except -1
    cdef int push(self, uint64_t when, uint64_t id) except -1
    cdef void pop(self) noexcept
