# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The log in memory: segments, and the batches in them.

What one turn of the loop changes is appended as records to one segment, and sealed as one `Batch`: a header with
length, last position and CRC-32C, then the records.  The same octets are the message store (queue entries point into
the segment) and the replication stream (links send them unchanged).

Rules.  A record never crosses segments.  Everything between two calls of `seal` is applied by a backup whole or not
at all; while `whole` is set nothing is sealed, and an open batch that outgrows its segment moves to a larger one
(transactions, dead letters).  A segment lives while a queue entry,
a batch or the writer refers to it; its memory is then recycled, because touching fresh memory costs as much as all
other user-space work.  A record of which only one would fit into a segment gets one of its own size, which is not recycled.
A segment that only queue entries refer to may leave memory meanwhile (see `paging`); its octets never
change once the writer has gone on to the next.

Layout (little endian).  Batch: magic u32, length u32, last position u64, generation u32, records u32, crc u32, kind u8,
flags u8, 2 spare.  Record: size u32, operation u8, flags u8, queues u16, position u64, then by operation:
  enqueue     queue u32 × queues, route length u16, 2 spare, header length u32,
              [arrival u64, expiry u64: milliseconds since 1970, with the flag "timed"], route, content header, body
  dequeue     queue u32, ranges u32, (low u64, high u64) × ranges
  delivered   queue u32, 4 spare, position u64
  config, membership   payload
  returned    queue u32, runs u32, (low u64, high u64, count u32, waits u32) × runs
  mark        nothing: it changes nothing, and its position can be waited for
"""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from qpidd_py.core.blocks cimport Ahead, fresh, give_back
from qpidd_py.core.memory cimport planned_failure, use_reserve
from qpidd_py.core.wire cimport le16, le32, le64, putle16, putle32, putle64

from qpidd_py.errors import LinkError, PageError

cdef extern from "crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c_add(uint32_t crc, const uint8_t* p, size_t n)

cdef extern from "<malloc.h>" nogil:
    int malloc_trim(size_t pad)

crc32c_init()

cdef size_t POOLED = 256 << 20          # octets of free segments kept for reuse, while they are reused
cdef size_t KEPT_INPUT = 8 << 20        # octets of a buffer for large frames that is kept for the next one
cdef size_t SPARSE = 8                  # segments whose memory a sweep must win

HEADER_SIZE = LINK_HEADER
OPERATIONS = {OP_ENQUEUE: "enqueue", OP_DEQUEUE: "dequeue", OP_CONFIG: "config",
              OP_MEMBERSHIP: "membership", OP_DELIVERED: "delivered", OP_MARK: "mark",
              OP_RETURNED: "returned", OP_REMEMBERED: "remembered"}


def crc32c(bytes data, uint32_t crc=0):
    """CRC-32C of `data`, continuing from `crc`."""
    return crc32c_add(crc, <const uint8_t*>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


# Pool, Segment and Batch cannot be part of a reference cycle, so they need no garbage collection. It would also do
# harm: the collector would clear a segment's `pool` before __dealloc__ gives the memory back to it.

@cython.final
@cython.no_gc
cdef class Pool:
    """Memory of segments, recycled."""

    def __cinit__(self, size_t segment_size=DEFAULT_SEGMENT):
        self.free = []
        self.vacant = []
        self.keep = POOLED
        self.segment_size = segment_size
        self.sparse = SPARSE * segment_size
        self.allocated = 0

    def __dealloc__(self):
        for address in self.free:
            give_back(<void*><size_t>address, self.segment_size)
        free(self.input)

    cdef uint8_t* lend_input(self) noexcept:
        """The buffer for large frames; there is one, and `input_capacity` tells whether it is here."""
        cdef uint8_t* p = self.input
        self.input, self.input_capacity, self.input_lent = NULL, 0, True
        return p

    cdef void keep_input(self, uint8_t* p, size_t capacity) noexcept:
        if self.input_capacity < capacity <= KEPT_INPUT:
            free(self.input)
            self.input, self.input_capacity, self.input_lent = p, capacity, True
        else:
            free(p)

    cdef size_t mark_sparse(self, Segment current, Segment other) except? 0:
        """Marks the segments of which less than a quarter lives, when together they waste enough; octets to win.  One that
        is being written to the page file may be gone before a sweep of many ticks has come to it."""
        cdef Segment segment
        cdef size_t wasted = 0
        cdef void* at = self.youngest
        found = []
        while at != NULL:
            segment = <Segment>at
            at = segment.older
            if (segment.live * 4 < segment.used and not segment.leaving
                    and segment is not current and segment is not other):
                wasted += segment.capacity - segment.live
                found.append(segment)
        if wasted < self.sparse or wasted * 4 < self.allocated:
            return 0
        for segment in found:
            segment.sparse = True
        return wasted

    cdef uint8_t* take(self, size_t size) except NULL:
        cdef void* p
        if size == self.segment_size and self.free:
            p = <void*><size_t>self.free.pop()
            self.spare = min(self.spare, <size_t>len(self.free))
        else:
            p = NULL if planned_failure() else self.fresh_or_reserved(size)
        if p == NULL:
            raise MemoryError(f"no memory for a log segment of {size} octets")
        self.allocated += size
        return <uint8_t*>p

    cdef void* fresh_or_reserved(self, size_t size) noexcept:
        cdef void* p = self.ahead.take() if size == self.segment_size and self.ahead is not None else NULL
        if p != NULL:
            return p
        p = fresh(size)
        if p == NULL and self.free:
            self.trim()
            p = fresh(size)
        return fresh(size) if p == NULL and use_reserve() else p

    cpdef size_t held(self) noexcept:
        """Octets of segments and of memory kept for them."""
        return (self.allocated + <size_t>len(self.free) * self.segment_size + self.input_capacity + self.touched())

    cpdef size_t touched(self) noexcept:
        """Octets that were touched ahead and are not used yet."""
        return self.ahead.held() if self.ahead is not None else 0

    def look_ahead(self):
        """From now on a thread touches memory before queues that grow need it."""
        self.ahead = Ahead.__new__(Ahead, self.segment_size)

    def trim(self):
        """Gives memory that is not used back to the system; may take some milliseconds."""
        while self.free:
            give_back(<void*><size_t>self.free.pop(), self.segment_size)
        self.spare = 0
        if self.ahead is not None:
            self.ahead.rest(0)
        free(self.lend_input())
        malloc_trim(0)

    cdef void trim_idle(self) noexcept:
        """Gives back a quarter of the free segments, and the buffer, that were not needed since the last call."""
        cdef size_t n
        if self.ahead is not None:
            self.ahead.rest(self.keep // self.segment_size // 2)
        if not self.input_lent:
            free(self.lend_input())
        self.input_lent = False
        for n in range((self.spare + 3) // 4):
            give_back(<void*><size_t>self.free.pop(), self.segment_size)
        self.spare = <size_t>len(self.free)

    cdef void give(self, uint8_t* data, size_t size) noexcept:
        self.allocated -= size
        if size == self.segment_size and len(self.free) * size < self.keep:
            self.free.append(<size_t>data)
        else:
            give_back(data, size)

    cdef void link(self, Segment segment, bint oldest) noexcept:
        cdef void* other = self.oldest if oldest else self.youngest
        segment.older, segment.younger = (NULL, other) if oldest else (other, NULL)
        if other == NULL:
            self.oldest = self.youngest = <void*>segment
        elif oldest:
            (<Segment>other).older = self.oldest = <void*>segment
        else:
            (<Segment>other).younger = self.youngest = <void*>segment

    cdef void unlink(self, Segment segment) noexcept:
        if segment.older != NULL:
            (<Segment>segment.older).younger = segment.younger
        else:
            self.oldest = segment.younger
        if segment.younger != NULL:
            (<Segment>segment.younger).older = segment.older
        else:
            self.youngest = segment.older


@cython.final
@cython.no_gc
cdef class Segment:
    """A block of memory that records are appended to."""

    def __cinit__(self, Pool pool, size_t capacity):
        self.pool = pool
        self.capacity = capacity
        self.data = pool.take(capacity)
        self.low = <uint64_t>-1
        pool.link(self, False)

    def __dealloc__(self):
        if self.data != NULL:
            self.pool.unlink(self)
            self.pool.give(self.data, self.capacity)
        else:
            self.pool.paged -= self.used
            if self.rotten:
                self.pool.rotten -= self.used
        if self.place is not None:
            self.pool.vacant.append(self.place)

    cdef void evict(self) noexcept:
        """The page file has it: its memory is given back."""
        self.pool.unlink(self)
        self.pool.give(self.data, self.capacity)
        self.data = NULL
        self.pool.paged += self.used

    cdef int spoil(self) except -1:
        """It cannot be read back: what its messages are is lost here, and that they are is not."""
        if not self.rotten:
            self.rotten = True
            self.pool.rotten += self.used
            self.pool.paging().count(self)
        return 0

    cdef int load(self) except -1:
        """Reads it back, now.  Raises PageError."""
        if self.rotten:
            raise PageError(f"the page file cannot be read at {self.place}")
        self.pool.at_once += 1
        cdef Page page = Page.__new__(Page)
        page.segment = self
        page.begin_read()
        try:
            self.pool.paging().read(page.place, page)
        except OSError as error:
            self.spoil()
            raise PageError(f"the page file cannot be read: {error}") from error
        return self.adopt(page, False)

    cdef int adopt(self, Page page, bint oldest) except -1:
        """Takes what was read.  Raises PageError."""
        if self.data != NULL:
            return 0
        if not page.crc:
            page.checksum()
        if page.crc != self.crc:
            self.spoil()
            raise PageError(f"the page file has other octets at {self.place} than were written: "
                            f"checksum {page.crc:08x} instead of {self.crc:08x}")
        self.data, page.data = page.data, NULL
        self.pool.paged -= self.used
        self.pool.loaded += self.used
        self.pool.link(self, oldest)
        return 0


@cython.final
@cython.no_gc_clear
cdef class Page:
    """A segment on its way to the page file or back: a buffer of its octets.  Another thread may use it."""

    def __dealloc__(self):
        if self.data != NULL:
            self.segment.pool.give(self.data, self.segment.capacity)

    cdef int begin_read(self) except -1:
        self.octets = self.segment.used
        self.place = self.segment.place
        self.data = self.segment.pool.take(self.segment.capacity)
        return 0

    def checksum(self):
        """Computes it, without holding the interpreter: of octets before they are written, or after they were read."""
        cdef const uint8_t* p = self.data if self.data != NULL else self.segment.data
        cdef uint32_t crc
        with nogil:
            crc = crc32c_add(0, p, self.octets)
        self.crc = crc if crc else 1

    def __len__(self):
        return self.octets

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.data != NULL:
            PyBuffer_FillInfo(buffer, self, self.data, <Py_ssize_t>self.octets, 0, flags)
        else:
            PyBuffer_FillInfo(buffer, self, self.segment.data, <Py_ssize_t>self.octets, 1, flags)


@cython.final
@cython.no_gc
cdef class Batch:
    """A sealed piece of the log; a read-only buffer of header and records."""

    def __dealloc__(self):
        if self.segment is not None:
            self.segment.pins -= 1

    def __len__(self):
        return self.length

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.data(), <Py_ssize_t>self.length, 1, flags)

    def __repr__(self):
        return f"<Batch {self.first}..{self.last}, {self.length} octets>"


cdef class LogWriter:
    """Appends records; `framed` writers make batches of them, the others only keep them (local messages)."""

    def __cinit__(self, Pool pool, bint framed):
        self.pool = pool
        self.framed = framed
        self.sealed = []
        self.segment = Segment(pool, pool.segment_size)
        self.start = 0

    cdef int ensure(self, size_t size) except -1:
        """Makes the next `size` octets of records part of one batch."""
        cdef size_t need = size + LINK_HEADER
        if self.records == 0:
            self.start = self.segment.used
        if self.segment.used + need > self.segment.capacity:
            if self.whole and self.records:
                return self.move_open(need)
            self.seal()
            self.segment = Segment(self.pool, need if 2 * need > self.pool.segment_size else self.pool.segment_size)
            self.start = 0
        return 0

    cdef int move_open(self, size_t need) except -1:
        """The open batch goes on in a larger segment; queue entries keep to the old one, where its records stay."""
        cdef Segment old = self.segment
        cdef size_t length = old.used - self.start, room = 2 * (length + need)
        self.segment = Segment(self.pool, room if room > self.pool.segment_size else self.pool.segment_size)
        memcpy(self.segment.data, old.data + self.start, length)
        self.segment.used = length
        self.start = 0
        return 0

    cdef uint8_t* reserve(self, size_t size, uint64_t position) except NULL:
        """Room for one record of `size` octets with `position`; the caller fills it at once.  A MemoryError changes
        nothing."""
        cdef uint8_t* p
        self.ensure(size)
        if self.records == 0:
            self.start = self.segment.used
            self.first = position
            if self.framed:
                self.segment.used += LINK_HEADER
        p = self.segment.data + self.segment.used
        self.segment.used += size
        self.records += 1
        self.last = position
        return p

    cdef void take_back(self, size_t size, uint64_t last) noexcept:
        """Undoes the last `reserve`; `last`: the position before."""
        self.records -= 1
        self.segment.used = self.segment.used - size if self.records else self.start
        self.last = last

    cdef int seal(self) except -1:
        cdef Batch batch
        if self.records and self.framed:
            batch = Batch.__new__(Batch)
            batch.lie_in(self.segment, self.start, self.segment.used - self.start)
            batch.first = self.first
            batch.last = self.last
            seal_link_frame(self.segment.data + self.start, batch.length, self.last, self.records, KIND_BATCH)
            self.sealed.append(batch)
        self.records = 0
        self.start = self.segment.used
        return 0

    cdef size_t adopt(self, const uint8_t* p, size_t n) except? 0:
        """Copies records (or a whole batch) made elsewhere; returns their offset in `self.segment`."""
        cdef size_t at
        self.ensure(n)
        at = self.segment.used
        memcpy(self.segment.data + at, p, n)
        self.segment.used += n
        self.start = self.segment.used
        return at

    cdef list take(self):
        """The batches sealed since the last call, oldest first."""
        self.seal()
        batches = self.sealed
        if batches:
            self.sealed = []
        return batches


cdef int seal_link_frame(uint8_t* p, size_t length, uint64_t position, uint32_t records, uint8_t kind) noexcept:
    """Writes the header of `length` octets (header included) at `p`, with the checksum over all of them."""
    memset(p, 0, LINK_HEADER)
    putle32(p, LINK_MAGIC)
    putle32(p + 4, <uint32_t>(length - LINK_HEADER))
    putle64(p + 8, position)
    putle32(p + 20, records)
    p[28] = kind
    putle32(p + 24, crc32c_add(0, p, length))
    return 0


cdef int check_link_frame(const uint8_t* p, size_t length) noexcept:
    """True when the checksum of the frame of `length` octets at `p` is right (its field counts as zero)."""
    cdef uint32_t crc = crc32c_add(0, p, 24)
    crc = crc32c_add(crc, b"\0\0\0\0", 4)
    return crc32c_add(crc, p + 28, length - 28) == le32(p + 24)


cdef inline int check_route(const uint8_t* p, size_t n) noexcept:
    """True when `n` octets at `p` are two short strings: exchange and routing key."""
    return n >= 2 and n >= 2 + <size_t>p[0] and n == 2 + <size_t>p[0] + p[1 + p[0]]


cdef int check_record(const uint8_t* p, size_t left) noexcept:
    """True when the record at `p` lies within `left` octets and its inner lengths within the record."""
    cdef size_t size, fixed, route
    if left < RECORD_HEADER:
        return False
    size = le32(p)
    if size > left or size < RECORD_HEADER:
        return False
    if p[4] == OP_ENQUEUE:
        fixed = RECORD_HEADER + 4 * <size_t>le16(p + 6) + (24 if p[5] & FLAG_TIMED else 8)
        if size < fixed + 2:
            return False
        route = le16(lengths_of(p))
        return (size - fixed >= route + <size_t>le32(lengths_of(p) + 4) and le32(lengths_of(p) + 4) >= 14
                and check_route(p + fixed, route))
    if p[4] == OP_DEQUEUE:
        return size >= RECORD_HEADER + 8 and size - RECORD_HEADER - 8 == 16 * <size_t>le32(p + RECORD_HEADER + 4)
    if p[4] == OP_RETURNED:
        return size >= RECORD_HEADER + 8 and size - RECORD_HEADER - 8 == 24 * <size_t>le32(p + RECORD_HEADER + 4)
    if p[4] == OP_REMEMBERED:
        return size >= RECORD_HEADER + 16 and size - RECORD_HEADER - 16 == 32 * <size_t>le32(p + RECORD_HEADER + 4)
    if p[4] == OP_DELIVERED:
        return size == RECORD_HEADER + 16
    if p[4] == OP_MARK:
        return size == RECORD_HEADER
    return p[4] == OP_CONFIG or p[4] == OP_MEMBERSHIP


def link_frame(int kind, uint64_t position, bytes body, int records=0):
    """One frame of the replication link, header and checksum included."""
    cdef size_t length = LINK_HEADER + <size_t>PyBytes_GET_SIZE(body)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, length)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(frame)
    memcpy(p + LINK_HEADER, PyBytes_AS_STRING(body), length - LINK_HEADER)
    seal_link_frame(p, length, position, records, kind)
    return frame


def frame_length(const uint8_t[::1] data, size_t at=0):
    """Octets of the frame at `at`, header included; 0 if there is no whole frame whose checksum is right."""
    cdef size_t n = <size_t>data.shape[0]
    if at >= n or n - at < LINK_HEADER:
        return 0
    cdef const uint8_t* p = &data[at]
    if le32(p) != LINK_MAGIC or n - at - LINK_HEADER < le32(p + 4):
        return 0
    cdef size_t length = LINK_HEADER + le32(p + 4)
    return length if check_link_frame(p, length) else 0


def records(bytes data):
    """The records of a run of records (a batch without its header) as (operation, flags, position, queues, payload).

    `payload` of an enqueue is (route, content header, body).  Raises LinkError for lengths that do not fit."""
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t n = <size_t>PyBytes_GET_SIZE(data), at = 0
    found = []
    while at < n:
        if not check_record(base + at, n - at):
            raise LinkError(f"record at octet {at} of {n} has lengths that do not fit")
        found.append(_record(base + at))
        at += le32(base + at)
    return found


cdef tuple _record(const uint8_t* p):
    cdef uint32_t size = le32(p), i
    cdef uint16_t queues = le16(p + 6) if p[4] == OP_ENQUEUE else (0 if p[4] in (OP_CONFIG, OP_MEMBERSHIP, OP_MARK) else 1)
    numbers = [le32(p + RECORD_HEADER + 4 * i) for i in range(queues)]
    if p[4] == OP_ENQUEUE:
        payload = _content(p, size)
    elif p[4] == OP_DEQUEUE:
        payload = [(le64(p + RECORD_HEADER + 8 + 16 * i), le64(p + RECORD_HEADER + 16 + 16 * i))
                   for i in range(le32(p + RECORD_HEADER + 4))]
    elif p[4] == OP_RETURNED:
        p += RECORD_HEADER
        payload = [(le64(p + 8 + 24 * i), le64(p + 16 + 24 * i), le32(p + 24 + 24 * i), bool(le16(p + 28 + 24 * i)),
                    le16(p + 30 + 24 * i)) for i in range(le32(p + 4))]
        p -= RECORD_HEADER
    elif p[4] == OP_REMEMBERED:
        p += RECORD_HEADER
        payload = [(le64(p + 32 + 32 * i), PyBytes_FromStringAndSize(<const char*>p + 16 + 32 * i, 16))
                   for i in range(le32(p + 4))]
        p -= RECORD_HEADER
    elif p[4] == OP_DELIVERED:
        payload = le64(p + RECORD_HEADER + 8)
    else:
        payload = PyBytes_FromStringAndSize(<const char*>p + RECORD_HEADER, size - RECORD_HEADER)
    return OPERATIONS[p[4]], p[5], le64(p + 8), numbers, payload


cdef tuple _content(const uint8_t* p, uint32_t size):
    cdef const uint8_t* q = lengths_of(p)
    cdef size_t route = le16(q), header = le32(q + 4), start = route_of(p) - p
    return (PyBytes_FromStringAndSize(<const char*>p + start, route),
            PyBytes_FromStringAndSize(<const char*>p + start + route, header),
            PyBytes_FromStringAndSize(<const char*>p + start + route + header, size - start - route - header))
