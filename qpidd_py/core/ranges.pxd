from libc.stdint cimport uint8_t, uint64_t

cdef struct Range:              # message ids low..high, inclusive
    uint64_t low
    uint64_t high

cdef struct Ranges:
    Range* items
    size_t count
    size_t capacity

cdef int ranges_room(Ranges* r, size_t more) except -1
cdef int ranges_add(Ranges* r, uint64_t low, uint64_t high) except -1
cdef int add_or_free(Ranges* r, uint64_t low, uint64_t high) except -1
cdef int ranges_decode(Ranges* r, const uint8_t* p, size_t n) except -1
cdef bytes ranges_encode(const Ranges* r)
