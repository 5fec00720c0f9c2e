from libc.stdint cimport uint32_t, uint64_t

cdef class Route:
    cdef readonly list queues
    cdef readonly object by_header
    cdef readonly object handler
    cdef uint32_t replicated    # how many of the queues are
    cdef bint limited           # some queue has a limit
    cdef bint timed             # some queue has a time to live
    cdef bint refusing          # a full queue was left out

cdef class Publication:         # what a basic.publish method frame asks for, kept by its octets
    cdef Route route
    cdef bytes method           # payload of the frame
    cdef bint mandatory
    cdef uint32_t start         # exchange and routing key as they stand in the payload
    cdef uint32_t length
    cdef uint64_t generation

cdef class Publications:
    cdef dict young, old
    cdef list stale             # of dictionaries
    cdef uint64_t generation
    cdef Publication find(self, bytes method, uint64_t generation)
    cdef int keep(self, Publication publication) except -1
    cdef int forget(self, uint64_t generation) except -1
    cdef int free_some(self) except -1
