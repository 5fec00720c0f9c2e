from libc.stdint cimport uint32_t, uint64_t, int64_t

cdef struct Wait:               # a run of publishes of one sender with confirms still held back
    uint64_t first              # position of the first; those of the others follow without a gap
    uint64_t until              # position that has to be safe: the last one's, or (unlogged) what the decision rests on
    uint64_t tag                # its publish tag
    uint64_t released           # bit i: publish i no longer waits (a client acknowledged it, or it never had to)
    uint64_t told               # bit i: was confirmed on its own
    void* sender                # borrowed; NULL when the sender is gone or has been told
    uint64_t next               # the sender's next run, as index + 1; 0 = none
    uint32_t count              # 1 to 64
    bint unlogged               # the message went into no replicated queue
    bint refused                # a nack was sent; not to be confirmed by itself

cdef class Sender:
    cdef readonly uint64_t confirmed        # highest tag confirmed with all before it
    cdef readonly uint64_t confirm_to       # to be said at the end of the turn
    cdef bint confirm_due
    cdef uint64_t first_wait, last_wait     # index + 1; 0 = none

cdef class Confirms:
    cdef Wait* waits
    cdef uint64_t mask, head, tail
    cdef list due                           # senders with `confirm_to` to be written
    cpdef bint add(self, Sender sender, uint64_t tag, uint64_t until, uint64_t first, bint unlogged,
                   bint refused) except -1
    cpdef bint confirm(self, Sender sender, uint64_t tag) noexcept
    cpdef bint acknowledge(self, uint64_t id) noexcept
    cpdef bint release_to(self, uint64_t safe) noexcept
    cpdef list take_due(self)
    cpdef list acknowledged(self)
    cpdef void forget(self, Sender sender) noexcept
    cpdef list forget_all(self)
    cdef inline bint waits_for_any(self) noexcept:
        return self.head < self.tail
    cdef inline Wait* at(self, uint64_t index) noexcept:
        return &self.waits[index & self.mask]
    cdef int grow(self) except -1
    cdef int64_t find(self, uint64_t id) noexcept
    cdef bint advance(self, Sender sender) noexcept
