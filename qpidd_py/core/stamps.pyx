# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Headers that the broker adds when it delivers a message: how often it came back (`returns.pyx`), and the token of the
consumer that gets it (`fencing.pyx`); and when it sends one on that an earlier primary may have sent on (`letters.pyx`)."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcmp, memcpy, memmove

from qpidd_py.core.properties cimport field_size
from qpidd_py.core.wire cimport FRAME_OVERHEAD, be16, be32, put16, put32, put64

cdef const char* RESENT = b"\x08x-resentt\x01"              # length, name, type and value
cdef const char* DELIVERY_COUNT = b"\x10x-delivery-countl"   # length, name and type
cdef const char* ACQUIRED_COUNT = b"\x10x-acquired-countl"
cdef const char* FENCING_TOKEN = b"\x0fx-fencing-tokenl"


cdef size_t write_stamped(uint8_t* to, const uint8_t* header, size_t size, const char* name, uint64_t value) noexcept:
    """A content header (which `bad_header` has not refused) with this field, instead of one that is there; its octets.
    The header may lie STAMP_ROOM behind `to`."""
    cdef uint16_t flags = be16(header + 12)
    cdef size_t at = fields_at(header), table = 0, before, skipped = 0, named = 2 + <size_t>name[0]
    memmove(to, header, at)
    put16(to + 12, flags | 0x2000)
    to += at
    if flags & 0x2000:
        table = be32(header + at)
        at += 4
    before = find_field(header + at, table, name, &skipped)
    put32(to, <uint32_t>(table - skipped + named + 8))
    memmove(to + 4, header + at, before)
    memmove(to + 4 + before, header + at + before + skipped, table - before - skipped)
    to += 4 + table - skipped
    memcpy(to, name, named)
    put64(to + named, value)
    at += table
    memmove(to + named + 8, header + at, size - at)
    return size - skipped + named + 8 + (0 if flags & 0x2000 else 4)


cdef bytes with_resent(bytes header, size_t frame_max):
    """A content header (which `bad_header` has not refused) that says x-resent; without it if that would not fit a frame."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(header)
    cdef uint16_t flags = be16(p + 12)
    cdef size_t at = fields_at(p), begin = at + (4 if flags & 0x2000 else 0), table = begin - at, before, skipped = 0
    cdef bytes fields, made
    table = be32(p + at) if table else 0
    before = find_field(p + begin, table, RESENT, &skipped)
    fields = header[begin:begin + before] + header[begin + before + skipped:begin + table] + <bytes>RESENT
    made = b"".join((header[:12], (flags | 0x2000).to_bytes(2, "big"), header[14:at], len(fields).to_bytes(4, "big"), fields,
                     header[begin + table:]))
    return made if <size_t>PyBytes_GET_SIZE(made) + FRAME_OVERHEAD <= frame_max else header


cdef size_t fields_at(const uint8_t* header) noexcept:
    """Where a content header has the table of its fields, or would have it."""
    cdef uint16_t flags = be16(header + 12)
    cdef size_t at = 14
    if flags & 0x8000:
        at += 1 + <size_t>header[at]
    if flags & 0x4000:
        at += 1 + <size_t>header[at]
    return at


cdef size_t find_field(const uint8_t* p, size_t n, const char* name, size_t* octets) noexcept:
    """Where the inside of a table has the field, and of how many octets; n and 0 if it has none."""
    cdef size_t at = 0, size
    while at < n:
        size = 1 + <size_t>p[at]
        size += field_size(p + at + size, n - at - size, 0)
        if p[at] == <uint8_t>name[0] and memcmp(p + at, name, 1 + <size_t>name[0]) == 0:
            octets[0] = size
            return at
        at += size
    return n
