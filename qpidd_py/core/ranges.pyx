# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sets of message ids as sorted runs, and their encoding on the replication link."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free

from qpidd_py.core.memory cimport mem_new, mem_resized

from qpidd_py.errors import LinkError


cdef int ranges_room(Ranges* r, size_t more) except -1:
    """The next `more` ranges can be added; a MemoryError changes nothing."""
    cdef size_t capacity = r.capacity if r.capacity else 8
    cdef Range* items
    if r.count + more <= r.capacity:
        return 0
    while capacity < r.count + more:
        capacity *= 2
    items = <Range*>mem_resized(r.items, capacity * sizeof(Range))
    if items == NULL:
        raise MemoryError(f"no memory for {capacity} ranges of messages")
    r.items = items
    r.capacity = capacity
    return 0


cdef int ranges_add(Ranges* r, uint64_t low, uint64_t high) except -1:
    if r.count == r.capacity:
        ranges_room(r, 1)
    r.items[r.count].low = low
    r.items[r.count].high = high
    r.count += 1
    return 0


cdef int add_or_free(Ranges* r, uint64_t low, uint64_t high) except -1:
    """Frees the ranges if there is no memory for one more."""
    try:
        return ranges_add(r, low, high)
    except MemoryError:
        free(r.items)
        raise


cdef inline size_t put_varint(uint8_t* p, uint64_t v) noexcept:
    cdef size_t n = 0
    while v >= 0x80:
        p[n] = <uint8_t>(v | 0x80)
        v >>= 7
        n += 1
    p[n] = <uint8_t>v
    return n + 1


cdef bytes ranges_encode(const Ranges* r):
    """Runs as (distance from the end of the last run, length - 1), each a varint: two octets for most singletons."""
    cdef uint8_t* buffer = <uint8_t*>mem_new(r.count * 20 + 1)
    cdef size_t n = 0, i
    cdef uint64_t end = 0
    if buffer == NULL:
        raise MemoryError
    for i in range(r.count):
        n += put_varint(buffer + n, r.items[i].low - end)
        n += put_varint(buffer + n, r.items[i].high - r.items[i].low)
        end = r.items[i].high
    try:
        return PyBytes_FromStringAndSize(<char*>buffer, n)
    finally:
        free(buffer)


cdef int get_varint(const uint8_t* p, size_t n, uint64_t* value) except -1:
    cdef size_t i
    cdef uint64_t v = 0
    for i in range(n if n < 10 else 10):
        v |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            value[0] = v
            return <int>i + 1
    raise LinkError("id set is cut off inside a number")


cdef int ranges_decode(Ranges* r, const uint8_t* p, size_t n) except -1:
    cdef size_t at = 0
    cdef uint64_t low, length, end = 0
    r.count = 0
    while at < n:
        at += get_varint(p + at, n - at, &low)
        at += get_varint(p + at, n - at, &length)
        low += end
        if (end and low <= end) or low + length < low:
            raise LinkError(f"id set goes back from {end} to {low}")
        end = low + length
        ranges_add(r, low, end)
    return 0


def encode_ids(ranges):
    """Sorted, disjoint (low, high) pairs as an encoded id set."""
    cdef Ranges r = Ranges(NULL, 0, 0)
    try:
        for low, high in ranges:
            ranges_add(&r, low, high)
        return ranges_encode(&r)
    finally:
        free(r.items)


def decode_ids(bytes data):
    """The (low, high) pairs of an encoded id set; LinkError when it is not one."""
    cdef Ranges r = Ranges(NULL, 0, 0)
    try:
        ranges_decode(&r, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return [(r.items[i].low, r.items[i].high) for i in range(r.count)]
    finally:
        free(r.items)
