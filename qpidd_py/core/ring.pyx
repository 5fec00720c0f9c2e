# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A ring of entries in order of message id, each of which points to a record in a log segment.

The entries of a large ring lie in blocks.  When it grows, blocks are added and none moves: so no message makes the others
wait until millions of entries are copied.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport free
from libc.string cimport memcpy

from qpidd_py.core.memory cimport mem_new, mem_resized, mem_zeroed
from qpidd_py.core.wire cimport be16, be32, le64

from qpidd_py.errors import PageError


cdef void ring_free(Ring* r) noexcept:
    cdef Entry* e
    while r.head < r.tail:
        e = ring_at(r, r.head)
        if e.segment != NULL:
            Py_DECREF(<Segment>e.segment)
            e.segment = NULL
        r.head += 1
    ring_clear(r)


cdef void ring_clear(Ring* r) noexcept:
    """Gives back the memory of a ring that is empty."""
    cdef uint64_t n, blocks = count_blocks(r.mask)
    if r.blocks == NULL:
        return
    for n in range(count_chunks(blocks)):
        free(r.blocks[blocks + n])
    free(r.blocks)
    r.blocks, r.mask = NULL, 0


cdef uint64_t count_blocks(uint64_t mask) noexcept:
    return (mask >> SHIFT) + 1


cdef uint64_t count_chunks(uint64_t blocks) noexcept:
    """Allocations: the first one, and one for each time that their number was doubled."""
    cdef uint64_t chunks = 1
    while blocks > 1:
        blocks >>= 1
        chunks += 1
    return chunks


cdef int ring_double(Ring* r) except -1:
    """Twice the room; indexes stay the same.  A MemoryError changes nothing."""
    cdef uint64_t old = room_of(r)
    if old == 0:
        return ring_make(r, RING)
    if not (enlarge(r, old) if old < BLOCK else add_blocks(r, old >> SHIFT)):
        raise MemoryError(f"no memory for an index of {2 * old} messages")
    r.mask = 2 * old - 1
    return 0


cdef int ring_make(Ring* r, uint64_t room) except -1:
    """The memory of an empty ring that has none; `room` is a power of two.  A MemoryError changes nothing."""
    cdef uint64_t k, n = count_blocks(room - 1), chunks = count_chunks(n)
    cdef Entry** blocks = <Entry**>mem_zeroed(n + chunks, sizeof(Entry*))
    cdef Entry* entries = <Entry*>mem_new(room * sizeof(Entry))
    if blocks == NULL or entries == NULL:
        free(blocks)
        free(entries)
        raise MemoryError(f"no memory for an index of {room} messages")
    for k in range(n):
        blocks[k] = entries + (k << SHIFT)
    blocks[n] = entries
    r.blocks, r.mask = blocks, room - 1
    return 0


cdef bint enlarge(Ring* r, uint64_t old) noexcept:
    """Of one block."""
    cdef uint64_t i
    cdef Entry* entries = <Entry*>mem_resized(r.blocks[0], 2 * old * sizeof(Entry))
    if entries == NULL:
        return False
    for i in range(r.head, r.tail):
        if i & old:
            entries[i & (2 * old - 1)] = entries[i & r.mask]
    r.blocks[0] = r.blocks[1] = entries
    return True


cdef bint add_blocks(Ring* r, uint64_t n) noexcept:
    """As many again; only entries of a block that holds both ends are copied."""
    cdef uint64_t k, i, first = r.head >> SHIFT, chunks = count_chunks(n)
    cdef Entry** blocks = <Entry**>mem_new((2 * n + chunks + 1) * sizeof(Entry*))
    cdef Entry* entries = <Entry*>mem_new((n << SHIFT) * sizeof(Entry))
    if blocks == NULL or entries == NULL:
        free(blocks)
        free(entries)
        return False
    for k in range(n):
        blocks[(first + k) & (2 * n - 1)] = r.blocks[(first + k) & (n - 1)]
        blocks[(first + n + k) & (2 * n - 1)] = entries + (k << SHIFT)
    for i in range((first + n) << SHIFT, r.tail):
        entries[i & (BLOCK - 1)] = r.blocks[first & (n - 1)][i & (BLOCK - 1)]
    memcpy(blocks + 2 * n, r.blocks + n, chunks * sizeof(Entry*))
    blocks[2 * n + chunks] = entries
    free(r.blocks)
    r.blocks = blocks
    return True


cdef void ring_shrink(Ring* r, uint64_t room) noexcept:
    """Room for `room` entries, a power of two, if that is less; indexes stay the same.  Without memory nothing changes."""
    cdef Ring less = Ring(NULL, 0, 0, 0)
    cdef uint64_t i
    if room >= room_of(r):
        return
    try:
        ring_make(&less, room)
    except MemoryError:
        return
    for i in range(r.head, r.tail):
        ring_at(&less, i)[0] = ring_at(r, i)[0]
    ring_clear(r)
    r.blocks, r.mask = less.blocks, less.mask


cdef void ring_pack(Ring* r) noexcept:
    """Squeezes out what is gone: indexes do not stay the same."""
    cdef uint64_t i, to = r.head
    for i in range(r.head, r.tail):
        if ring_at(r, i).state != GONE:
            if to != i:
                ring_at(r, to)[0] = ring_at(r, i)[0]
            to += 1
    r.tail = to


cdef int ring_merge(Ring* r, Ring* other) except -1:
    """The entries of `other` come into `r`, in order of their ids.  Those of the shorter ring come into the longer one, from
    its end: what is older than all of them stays where it is.  A MemoryError changes nothing."""
    cdef Ring* longer = other if other.tail - other.head > r.tail - r.head else r
    cdef Ring* shorter = r if longer == other else other
    cdef uint64_t a = longer.tail, b = shorter.tail, to = a + b - shorter.head
    cdef Entry* x
    while room_of(longer) < to - longer.head:
        ring_double(longer)
    longer.tail = to
    while b > shorter.head:
        x = ring_at(shorter, b - 1)
        if a > longer.head and ring_at(longer, a - 1).id > x.id:
            a -= 1
            x = ring_at(longer, a)
        else:
            b -= 1
        to -= 1
        ring_at(longer, to)[0] = x[0]
    ring_clear(shorter)
    r[0] = longer[0]
    other[0] = Ring(NULL, 0, 0, 0)
    return 0


cdef uint64_t ring_after(Ring* r, uint64_t id) noexcept nogil:
    """The first index whose id is greater than `id`; tail if there is none."""
    cdef uint64_t low = r.head, high = r.tail, middle
    while low < high:
        middle = low + (high - low) // 2
        if ring_at(r, middle).id <= id:
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t ring_find(Ring* r, uint64_t id) noexcept nogil:
    """The index of `id`, or -1."""
    cdef uint64_t index = ring_after(r, id)
    if index > r.head and ring_at(r, index - 1).id == id:
        return <int64_t>(index - 1)
    return -1


cdef uint64_t arrival_of(const Entry* e) except? 0:
    """Milliseconds since 1970, 0 where it was not noted."""
    return le64(lengths_of(record_of(e)) + 8) if e.flags & ENTRY_TIMED else 0


cdef uint8_t priority_of(const uint8_t* record) noexcept:
    """The property priority; 0 without one."""
    return priority_in(route_of(record) + le16(lengths_of(record)), le32(lengths_of(record) + 4))


cdef uint8_t priority_in(const uint8_t* p, size_t n) noexcept:
    """As `priority_of`, of a content header, which was checked when it arrived (14 octets at least)."""
    cdef size_t at = 14
    cdef uint16_t flags
    if n < 14:
        return 0
    flags = be16(p + 12)
    if not flags & 0x0800 or flags & 1:
        return 0
    if flags & 0x8000:
        at += 1 + <size_t>(p[at] if at < n else 0)
    if flags & 0x4000:
        at += 1 + <size_t>(p[at] if at < n else 0)
    if flags & 0x2000:
        if at + 4 > n:
            return 0
        at += 4 + <size_t>be32(p + at)
    if flags & 0x1000:
        at += 1
    return p[at] if at < n else 0


cdef tuple content_of(const Entry* e, size_t cut=<size_t>-1):
    """`cut`: most octets of the body."""
    cdef const uint8_t* p = record_of(e)
    cdef const uint8_t* route = route_of(p)
    cdef size_t header = le32(lengths_of(p) + 4), exchange = route[0]
    cdef const uint8_t* content = route + le16(lengths_of(p))
    return (PyBytes_FromStringAndSize(<const char*>route + 1, exchange),
            PyBytes_FromStringAndSize(<const char*>route + 2 + exchange, route[1 + exchange]),
            PyBytes_FromStringAndSize(<const char*>content, header),
            PyBytes_FromStringAndSize(<const char*>content + header, min(cut, body_of(p))))


cdef int name_entry(IdRuns runs, const Entry* e, bint read) except -1:
    """`read`: also a message that has left memory gets its name, unless that cannot be read.  The number of segments that were read back."""
    cdef bint away = (<Segment>e.segment).data == NULL
    cdef const uint8_t* p
    if away and (not read or (<Segment>e.segment).rotten):
        return runs.add(NULL, 0, e.id)
    try:
        p = record_of(e)
    except PageError:
        return runs.add(NULL, 0, e.id)
    runs.add(route_of(p) + le16(lengths_of(p)), le32(lengths_of(p) + 4), e.id)
    return away
