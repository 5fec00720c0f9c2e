from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int64_t

from qpidd_py.core.batch cimport Segment, lengths_of, route_of
from qpidd_py.core.runs cimport IdRuns
from qpidd_py.core.wire cimport le16, le32

cdef enum:                      # states of an entry
    READY = 0
    UNACKED = 1
    GONE = 2

cdef enum:                      # flags of an entry
    ENTRY_REDELIVERED = 1
    ENTRY_SHARED = 2            # its record is in several queues
    ENTRY_TIMED = 4             # FLAG_TIMED and FLAG_WHOLE of its record
    ENTRY_WHOLE = 8
    ENTRY_RETURNED = 16         # see returns.pyx
    ENTRY_WAITS = 32

cdef struct Entry:              # a waiting message: where its record lies
    void* segment               # a counted reference to a Segment; NULL when gone
    uint64_t id                 # the position of the operation that enqueued it
    uint32_t offset
    uint32_t size               # octets of the record
    uint32_t body               # octets of the body
    uint8_t state
    uint8_t flags
    uint16_t deliveries         # that came back, where the queue counts them

cdef enum:
    RING = 16                   # entries of the smallest ring
    SHIFT = 12
    BLOCK = 1 << SHIFT          # entries of a block of a larger ring
    ROOMY = 1 << 10             # entries of one whose memory is given back when its queue is empty and idle

cdef struct Ring:               # entries in order of id; absolute indexes, head <= index < tail; all 0 is an empty one
    Entry** blocks              # each block; after them what was allocated for them, at most `count_chunks`
    uint64_t mask
    uint64_t head
    uint64_t tail

cdef void ring_free(Ring* r) noexcept
cdef int ring_double(Ring* r) except -1
cdef void ring_clear(Ring* r) noexcept
cdef void ring_shrink(Ring* r, uint64_t room) noexcept
cdef void ring_pack(Ring* r) noexcept
cdef int ring_merge(Ring* r, Ring* other) except -1
cdef tuple content_of(const Entry* e, size_t cut=*)
cdef uint64_t arrival_of(const Entry* e) except? 0
cdef uint8_t priority_of(const uint8_t* record) noexcept
cdef uint8_t priority_in(const uint8_t* p, size_t n) noexcept
cdef int name_entry(IdRuns runs, const Entry* e, bint read) except -1
cdef int64_t ring_find(Ring* r, uint64_t id) noexcept nogil
cdef uint64_t ring_after(Ring* r, uint64_t id) noexcept nogil

cdef inline uint64_t room_of(Ring* r) noexcept nogil:
    return r.mask + 1 if r.blocks != NULL else 0

cdef inline bint ring_full(Ring* r) noexcept nogil:
    return r.tail - r.head > r.mask or r.blocks == NULL

cdef inline Entry* ring_at(Ring* r, uint64_t index) noexcept nogil:
    index &= r.mask
    return &r.blocks[index >> SHIFT][index & (BLOCK - 1)]

cdef inline void ring_trim(Ring* r) noexcept:
    """What is gone at the front leaves the ring."""
    while r.head < r.tail and ring_at(r, r.head).state == GONE:
        r.head += 1

cdef inline const uint8_t* record_of(const Entry* e) except NULL:
    """Valid until the end of the turn.  Reads the segment back if it has left memory."""
    if (<Segment>e.segment).data == NULL:
        (<Segment>e.segment).load()
    return (<Segment>e.segment).data + e.offset

cdef inline uint32_t body_of(const uint8_t* record) noexcept:
    return <uint32_t>(le32(record) - (route_of(record) - record) - le16(lengths_of(record)) - le32(lengths_of(record) + 4))
