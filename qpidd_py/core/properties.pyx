# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The properties that storing a message depends on, without decoding the rest: delivery-mode, expiration, user-id."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from qpidd_py.core.queue cimport UNLIMITED
from qpidd_py.core.wire cimport be16, be32


cdef void peek_properties(const uint8_t* p, size_t n, Peeked* found) noexcept:
    """Of a content header of n octets, which `bad_header` has not refused."""
    cdef uint16_t flags = be16(p + 12)
    cdef size_t at = 14, end
    cdef int bit
    found.persistent = found.bad = False
    found.expiration = UNLIMITED
    if not flags & 0x1100 or flags & 1:
        return
    for bit in range(15, 7, -1):
        if not flags & (1 << bit):
            continue
        if at >= n:
            return
        if bit == 13:
            if at + 4 > n:
                return
            at += 4 + <size_t>be32(p + at)
        elif bit == 12 or bit == 11:
            if bit == 12:
                found.persistent = p[at] == 2
            at += 1
        elif bit > 8:
            at += 1 + <size_t>p[at]
        else:
            end = at + 1 + p[at]
            found.bad = end > n or end == at + 1 or end - at > 20
            found.expiration = 0
            at += 1
            while at < end and not found.bad:
                found.bad = not 48 <= p[at] <= 57
                found.expiration = found.expiration * 10 + (p[at] - 48)
                at += 1


cdef bint bad_expiration(const uint8_t* p, size_t n) noexcept:
    cdef Peeked found
    peek_properties(p, n, &found)
    return found.bad


cdef bint other_user(const uint8_t* p, size_t n, bytes user) noexcept:
    """True if the header's user-id is not `user`, or cannot be found."""
    cdef uint16_t flags = be16(p + 12)
    cdef size_t at = 14, size = PyBytes_GET_SIZE(user)
    cdef int bit
    for bit in range(15, 4, -1):
        if not flags & (1 << bit):
            continue
        if at >= n or (bit == 13 and at + 4 > n):
            return True
        if bit == 13:
            at += 4 + <size_t>be32(p + at)
        elif bit == 12 or bit == 11:
            at += 1
        elif bit == 6:
            at += 8
        else:
            at += 1 + <size_t>p[at]
    return at + 1 + size > n or p[at] != size or memcmp(p + at + 1, PyBytes_AS_STRING(user), size) != 0
