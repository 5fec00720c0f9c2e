from libc.stdint cimport uint8_t, uint16_t, uint64_t

from qpidd_py.core.wire cimport be16

cdef struct Peeked:
    bint persistent
    bint bad                    # an expiration that is not a number, or is too long
    uint64_t expiration         # milliseconds; UNLIMITED without one

cdef void peek_properties(const uint8_t* p, size_t n, Peeked* found) noexcept
cdef bint bad_expiration(const uint8_t* p, size_t n) noexcept
cdef size_t field_size(const uint8_t* p, size_t n, int depth) noexcept
cdef bytes header_value(bytes header, bytes name)
cdef bint addressed(const uint8_t* p, size_t n) noexcept
cdef bint other_user(const uint8_t* p, size_t n, bytes user) noexcept

cdef bint bad_properties(const uint8_t* p, size_t n, bint* asks) noexcept

cdef inline bint bad_header(const uint8_t* p, size_t n, bint* asks) noexcept:
    """True unless all lengths of a content header of n octets fit.  It is class 60, weight, body size u64, property
    flags and the properties (specification 4.2.6.1).  `asks`: as of `bad_properties`; false before."""
    return n < 14 or be16(p) != 60 or be16(p + 2) != 0 or (n != 14 or be16(p + 12) != 0) and bad_properties(p, n, asks)
