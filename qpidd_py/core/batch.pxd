from libc.stdint cimport uint8_t, uint32_t, uint64_t

from qpidd_py.core.blocks cimport Ahead
from qpidd_py.core.wire cimport le16

cdef enum:
    DEFAULT_SEGMENT = (2 << 20) + (64 << 10)    # octets; two messages of 1 MiB fit in, with what belongs to them

cdef enum:                      # header of a frame on a replication link; a batch is one such frame
    LINK_HEADER = 32
    LINK_MAGIC = 0x31445051     # "QPD1"

cdef enum:                      # kinds of frames on a replication link
    KIND_BATCH = 1
    KIND_SLICE = 4

cdef enum:                      # operations
    OP_ENQUEUE = 1
    OP_DEQUEUE = 2
    OP_CONFIG = 3
    OP_MEMBERSHIP = 4
    OP_DELIVERED = 5
    OP_MARK = 6
    OP_RETURNED = 7
    OP_REMEMBERED = 8           # of a difference only, see duplicates.pyx

cdef enum:
    RECORD_HEADER = 16          # size u32, operation u8, flags u8, queues u16, position u64
    FLAG_PERSISTENT = 1
    FLAG_TIMED = 2              # arrival and expiry follow the fixed part
    FLAG_WHOLE = 4              # one of several records that happen together (a transaction, a dead letter)


cdef class Segment
cdef class Page

cdef class Pool:
    cdef list free
    cdef Ahead ahead                        # None: every block is touched when it is needed
    cdef readonly size_t segment_size
    cdef readonly size_t allocated          # octets in segments now alive
    cdef public size_t sparse               # octets that a sweep must win
    cdef readonly uint64_t swept            # octets that sweeps have copied
    cdef public size_t keep                 # octets of free segments that are kept for reuse
    cdef size_t spare                       # fewest free segments since `trim_idle`
    cdef uint8_t* input                     # a buffer for frames that come in many parts; of one connection at a time
    cdef size_t input_capacity              # 0: it is lent, or there is none
    cdef bint input_lent                    # since `trim_idle`
    cdef uint8_t* lend_input(self) noexcept
    cdef void keep_input(self, uint8_t* p, size_t capacity) noexcept
    cdef void* youngest                     # the segments in memory, linked; those that were read back for a
    cdef void* oldest                       # consumer are the oldest
    cdef object paging                      # a weak reference to the Paging, if there is one
    cdef list vacant                        # places of the page file that are not needed any more
    cdef readonly size_t paged              # octets of records that are in the page file only
    cdef readonly size_t rotten             # octets of those that cannot be read back (`Segment.rotten`)
    cdef readonly size_t leaving            # octets of segments that are being written
    cdef readonly uint64_t written          # octets ever written to the page file, and read back
    cdef readonly uint64_t loaded
    cdef readonly uint64_t at_once          # segments ever read back while everybody waited
    cdef void link(self, Segment segment, bint oldest) noexcept
    cdef void unlink(self, Segment segment) noexcept
    cdef size_t mark_sparse(self, Segment current, Segment other) except? 0
    cdef uint8_t* take(self, size_t size) except NULL
    cdef void* fresh_or_reserved(self, size_t size) noexcept
    cpdef size_t held(self) noexcept
    cpdef size_t touched(self) noexcept
    cdef void trim_idle(self) noexcept
    cdef void give(self, uint8_t* data, size_t size) noexcept

cdef class Segment:
    cdef Pool pool
    cdef uint8_t* data
    cdef readonly size_t capacity
    cdef readonly size_t used
    cdef readonly size_t live               # octets of records that a queue still refers to
    cdef bint sparse                        # mostly dead: a sweep copies what lives elsewhere
    cdef uint64_t low                       # no queue has an entry for it below or above these ids
    cdef uint64_t high
    cdef uint32_t pins                      # batches in it that may still be read
    cdef bint leaving                       # is being written to the page file
    cdef bint rotten                        # the page file has other octets than were written, or cannot be read there
    cdef object place                       # where the page file has it; None: nowhere
    cdef uint32_t crc                       # of what is there
    cdef void* older
    cdef void* younger
    cdef int load(self) except -1
    cdef int adopt(self, Page page, bint oldest) except -1
    cdef inline void note_id(self, uint64_t id) noexcept:
        self.low = min(self.low, id)
        self.high = max(self.high, id)
    cdef void evict(self) noexcept
    cdef int spoil(self) except -1

cdef class Page:
    cdef Segment segment
    cdef uint8_t* data                      # memory for what is read; NULL when the segment has it, or is written
    cdef readonly size_t octets
    cdef public object place
    cdef uint32_t crc
    cdef list waiters                       # who waits for it, see `Paging.want`
    cdef int begin_read(self) except -1

cdef class Batch:
    cdef Segment segment
    cdef size_t offset
    cdef size_t length
    cdef readonly uint64_t first
    cdef readonly uint64_t last
    cdef inline void lie_in(self, Segment segment, size_t offset, size_t length) noexcept:
        self.segment, self.offset, self.length = segment, offset, length
        segment.pins += 1
    cdef inline const uint8_t* data(self) noexcept:
        return self.segment.data + self.offset

cdef class LogWriter:
    cdef Pool pool
    cdef bint framed
    cdef Segment segment
    cdef size_t start                       # where the open batch begins
    cdef uint32_t records
    cdef uint64_t first
    cdef uint64_t last
    cdef list sealed
    cdef bint whole                         # what is appended now belongs to one batch
    cdef int move_open(self, size_t need) except -1
    cdef uint8_t* reserve(self, size_t size, uint64_t position) except NULL
    cdef int ensure(self, size_t size) except -1
    cdef void take_back(self, size_t size, uint64_t last) noexcept
    cdef int seal(self) except -1
    cdef list take(self)
    cdef size_t adopt(self, const uint8_t* p, size_t n) except? 0

cdef inline const uint8_t* route_of(const uint8_t* record) noexcept nogil:
    """Where exchange and routing key of an enqueue record stand."""
    return record + RECORD_HEADER + 4 * <size_t>le16(record + 6) + (24 if record[5] & FLAG_TIMED else 8)

cdef inline const uint8_t* lengths_of(const uint8_t* record) noexcept nogil:
    """Where the lengths (route u16, 2 spare, content header u32) stand."""
    return record + RECORD_HEADER + 4 * <size_t>le16(record + 6)

cdef int seal_link_frame(uint8_t* p, size_t length, uint64_t position, uint32_t records, uint8_t kind) noexcept
cdef int check_link_frame(const uint8_t* p, size_t length) noexcept
cdef int check_record(const uint8_t* p, size_t left) noexcept
