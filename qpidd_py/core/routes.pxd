from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef class Mark:                # of an exchange: the generation since which any of its routes may be another
    cdef uint64_t changed

cdef class Route:
    cdef readonly list queues
    cdef readonly object by_header
    cdef readonly object handler
    cdef readonly tuple via     # marks of the exchanges that were asked
    cdef uint32_t replicated    # how many of the queues are
    cdef bint limited           # some queue has a limit, or delays, or windows
    cdef dict gates             # queue -> the shadows with windows that it lies behind; None: none does
    cdef bint nowhere           # queues, but shadows only, see shadows.pyx
    cdef tuple numbering        # None: no exchange numbers its messages, see numbering.pyx
    cdef bint apart             # not all queues get the same record, see waiting.pyx and numbering.pyx
    cdef bint windows           # some queue remembers keys, see duplicates.pyx
    cdef bint timed             # some queue has a time to live
    cdef bint refusing          # a full queue was left out
    cdef object equal           # equal for equal routes, while it is kept
    cdef uint32_t uses          # how many methods have it
    cdef int32_t place          # in Publications.routes

cdef class Publication:         # what a basic.publish method frame asks for
    cdef Route route
    cdef bytes method           # payload of the frame
    cdef bint mandatory
    cdef uint32_t start         # exchange and routing key as they stand in the payload
    cdef uint32_t length
    cdef uint64_t generation

cdef struct Kept:
    uint64_t hash
    uint64_t generation         # at which the route was right
    uint32_t at                 # octets of the method
    uint32_t size               # 0: nothing
    uint32_t host               # number of the virtual host
    int32_t route               # in Publications.routes; -1: it was given up

cdef class Table:
    cdef Kept* slots
    cdef size_t mask, taken     # those given up are taken, too
    cdef uint8_t* octets
    cdef size_t used, room
    cdef Kept* find(self, uint64_t hash, uint32_t host, const uint8_t* p, uint32_t size) noexcept
    cdef Kept* free_slot(self, uint64_t hash) noexcept
    cdef Kept* add(self, uint64_t hash, uint32_t host, const uint8_t* p, uint32_t size) except? NULL
    cdef int grow(self) except -1

cdef class Publications:
    cdef Table young, old
    cdef list routes            # by place; None: free
    cdef list vacant            # places
    cdef dict known             # Route.equal -> Route
    cdef dict keys              # routing key -> generation since which its routes may be others
    cdef uint64_t floor         # routes of earlier generations are forgotten
    cdef dict headers           # virtual host, address, properties as they were sent -> Route, see `by_header`
    cdef size_t weight          # of these, see HEADERS
    cdef size_t looked          # where the next change looks for what is forgotten
    cdef Publication find(self, uint32_t host, const uint8_t* p, uint32_t size, uint64_t generation)
    cdef Publication keep(self, uint32_t host, bytes method, Route route, uint64_t generation)
    cdef Route by_header(self, bytes name)
    cdef int keep_by_header(self, bytes name, Route route) except -1
    cdef int forget_headers(self) except -1
    cdef int changed(self, what, uint64_t generation) except -1
    cdef bint holds(self, const Kept* kept, const uint8_t* method) except -1
    cdef int end_table(self) except -1
    cdef Route one_of(self, Route route)
    cdef int release(self, Kept* kept) except -1
    cdef int release_all(self, Table table) except -1
    cdef int look_for_forgotten(self) except -1
