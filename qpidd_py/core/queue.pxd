from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int64_t

from qpidd_py.core.batch cimport LogWriter, Segment

cdef enum:                      # states of an entry
    READY = 0
    UNACKED = 1
    GONE = 2

cdef enum:                      # flags of an entry
    ENTRY_REDELIVERED = 1
    ENTRY_SHARED = 2            # its record is in several queues

cdef struct Entry:              # a waiting message: where its record lies
    void* segment               # a counted reference to a Segment; NULL when gone
    uint64_t id                 # the position of the operation that enqueued it
    uint32_t offset
    uint8_t state
    uint8_t flags
    uint16_t deliveries

cdef struct Ring:               # entries in order of id; absolute indexes, head <= index < tail
    Entry* entries
    uint64_t mask
    uint64_t head
    uint64_t tail

cdef struct Range:              # message ids low..high, inclusive
    uint64_t low
    uint64_t high

cdef struct Ranges:
    Range* items
    size_t count
    size_t capacity

cdef int ranges_add(Ranges* r, uint64_t low, uint64_t high) except -1
cdef int ranges_decode(Ranges* r, const uint8_t* p, size_t n) except -1
cdef bytes ranges_encode(const Ranges* r)
cdef int ring_init(Ring* r) except -1
cdef void ring_free(Ring* r) noexcept
cdef inline Entry* ring_at(Ring* r, uint64_t index) noexcept nogil:
    return &r.entries[index & r.mask]
cdef int64_t ring_find(Ring* r, uint64_t id) noexcept nogil
cdef uint64_t ring_after(Ring* r, uint64_t id) noexcept nogil

cdef class Queue:
    cdef readonly uint32_t number
    cdef readonly str name
    cdef readonly bint replicated
    cdef readonly bint deleted
    cdef readonly uint64_t ready
    cdef readonly uint64_t unacked
    cdef readonly uint64_t bytes            # octets of the records waiting
    cdef readonly uint64_t enqueued         # messages ever
    cdef readonly uint64_t dequeued
    cdef public object owner                # the broker's record of this queue
    cdef Ring main
    cdef Ring side                          # what a joining backup receives behind the live stream's back
    cdef bint joining
    cdef uint64_t next                      # first index never handed out
    cdef Ranges returned                    # sorted indexes (low only) of requeued entries below next
    cdef Ranges gone                        # ids dequeued in this turn, not yet in the log
    cdef uint64_t gone_index
    cdef uint64_t delivered                 # highest id handed out
    cdef uint64_t delivered_logged
    cdef bint dirty                         # waits for the pump
    cdef bint delivery_noted
    cdef bint touched                       # has entries in `gone`
    cdef list consumers
    cdef size_t turn                        # whose turn it is
    cdef int push(self, Segment segment, uint32_t offset, uint32_t size, uint64_t id, uint8_t flags) except -1
    cdef int grow(self) except -1
    cdef int64_t peek_ready(self) noexcept nogil
    cdef void take(self, uint64_t index) noexcept
    cdef int64_t locate(self, uint64_t id, uint64_t hint) noexcept nogil
    cdef int requeue(self, uint64_t index) except -1
    cdef int dequeue(self, uint64_t index) except -1
    cdef void release(self, Entry* e) noexcept
    cdef int remove_range(self, uint64_t low, uint64_t high) except -1
    cdef void squeeze(self) noexcept
    cdef void remove_from(self, Ring* ring, uint64_t low, uint64_t high) noexcept
    cdef uint64_t drop_ready(self) except? 0
    cdef bint _returned(self, uint64_t index) noexcept
    cdef int clear(self) except -1
    cdef int reset(self) except -1
    cdef int push_side(self, Segment segment, uint32_t offset, uint32_t size, uint64_t id, uint8_t flags) except -1
    cdef int merge(self) except -1
    cdef uint64_t sweep(self, LogWriter writer, uint64_t start, uint64_t most) except? 0
    cdef Ranges ids(self) except *
