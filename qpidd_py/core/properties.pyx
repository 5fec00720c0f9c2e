# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The properties that storing a message depends on, without decoding the rest: delivery-mode, expiration, user-id, and
whether the header says more than exchange and routing key about where the message goes (CC, BCC, a direct reply).

And whether a consumer can read all of them: a length that does not fit would stop each one that gets the message.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp

from qpidd_py.core.queue cimport UNLIMITED
from qpidd_py.core.wire cimport be16, be32

cdef enum:
    LONGEST = 315360000000      # milliseconds, as in broker/arguments.py
    MAX_DEPTH = 32              # of tables and arrays in one another, as in amqp/fields.py


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
            at += 1
            if end <= n and end - at > 1 and p[at] == 43:   # a plus, which RabbitMQ takes
                at += 1
            found.bad = end > n or end == at or end - at > 19
            found.expiration = 0
            while at < end and not found.bad:
                found.bad = not 48 <= p[at] <= 57
                found.expiration = found.expiration * 10 + (p[at] - 48)
                at += 1
            found.bad = found.bad or found.expiration > LONGEST


cdef bint bad_properties(const uint8_t* p, size_t n, bint* asks) noexcept:
    """Of a content header: flags that are not of this class, or properties whose lengths are not what is there.  `asks`
    becomes true if they say more about where the message goes (see `addressed`)."""
    cdef uint16_t flags = be16(p + 12)
    cdef size_t at = 14, size
    cdef int bit
    if flags & 3:
        return True
    for bit in range(15, 1, -1):
        if not flags & (1 << bit):
            continue
        if at >= n:
            return True
        if bit == 13:
            if at + 4 > n:
                return True
            size = be32(p + at)
            at += 4
            if size > n - at or bad_headers(p + at, size, asks):
                return True
        elif bit == 12 or bit == 11:
            size = 1
        elif bit == 6:
            size = 8
        else:
            size = 1 + <size_t>p[at]
            if bit == 9 and size == 22 and n - at >= 22 and memcmp(p + at + 1, b"amq.rabbitmq.reply-to", 21) == 0:
                asks[0] = True
        at += size
    return at != n


cdef bint bad_headers(const uint8_t* p, size_t n, bint* asks) noexcept:
    """As `bad_table`, of the message's headers: are CC or BCC among them?"""
    cdef size_t at = 0, size
    while at < n:
        size = p[at]
        if size == 2 and at + 2 < n and memcmp(p + at + 1, b"CC", 2) == 0 or (
                size == 3 and at + 3 < n and memcmp(p + at + 1, b"BCC", 3) == 0):
            asks[0] = True
        at += 1 + size
        size = field_size(p + at, n - at, 0) if at < n else 0
        if size == 0:
            return True
        at += size
    return False


cdef bint bad_table(const uint8_t* p, size_t n, int depth) noexcept:
    """The inside of a field table (specification 4.2.5.5): names and values."""
    cdef size_t at = 0, size
    while at < n:
        at += 1 + <size_t>p[at]
        size = field_size(p + at, n - at, depth) if at < n else 0
        if size == 0:
            return True
        at += size
    return False


cdef bint bad_array(const uint8_t* p, size_t n, int depth) noexcept:
    cdef size_t at = 0, size
    while at < n:
        size = field_size(p + at, n - at, depth)
        if size == 0:
            return True
        at += size
    return False


cdef size_t field_size(const uint8_t* p, size_t n, int depth) noexcept:
    """Octets of a value with its type letter, which is there; 0 if it is none, or not complete in n octets."""
    cdef uint8_t kind = p[0]
    cdef size_t size
    if kind == b"S" or kind == b"x" or kind == b"F" or kind == b"A":
        if n < 5 or be32(p + 1) > n - 5:
            return 0
        size = be32(p + 1)
        if kind == b"F" and (depth == MAX_DEPTH or bad_table(p + 5, size, depth + 1)):
            return 0
        if kind == b"A" and (depth == MAX_DEPTH or bad_array(p + 5, size, depth + 1)):
            return 0
        return 5 + size
    if kind == b"V":
        return 1
    if kind == b"t" or kind == b"b" or kind == b"B":
        size = 2
    elif kind == b"s" or kind == b"u":
        size = 3
    elif kind == b"I" or kind == b"i" or kind == b"f":
        size = 5
    elif kind == b"D":
        size = 6
    elif kind == b"l" or kind == b"L" or kind == b"d" or kind == b"T":
        size = 9
    else:
        return 0
    return size if size <= n else 0


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


cdef bint addressed(const uint8_t* p, size_t n) noexcept:
    """True if there is a header CC or BCC, or `reply-to` asks for a direct reply.  Of a content header of n octets, which
    `bad_header` has not refused."""
    cdef bint asks = False
    if be16(p + 12) & 0x2200:
        bad_properties(p, n, &asks)
    return asks


cdef bytes header_value(bytes header, bytes name):
    """Of a message's headers, in a content header that `bad_header` has not refused: the octets of a text, a number in
    digits, or else the field with its type; None without it."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(header)
    cdef uint16_t flags = be16(p + 12)
    cdef size_t at = 14, end, size, length = PyBytes_GET_SIZE(name)
    if not flags & 0x2000:
        return None
    for bit in (0x8000, 0x4000):
        if flags & bit:
            at += 1 + <size_t>p[at]
    end = at + 4 + be32(p + at)
    at += 4
    while at < end:
        size = p[at]
        if size == length and memcmp(p + at + 1, PyBytes_AS_STRING(name), length) == 0:
            return text_of(p + at + 1 + size, end - at - 1 - size)
        at += 1 + size
        at += field_size(p + at, end - at, 0)
    return None


cdef bytes text_of(const uint8_t* p, size_t n):
    """Of a field value."""
    cdef uint8_t kind = p[0]
    cdef size_t size = field_size(p, n, 0)
    if kind == b"S" or kind == b"x":
        return PyBytes_FromStringAndSize(<const char*>p + 5, size - 5)
    if kind in b"bBsuIilL":
        return b"%d" % int.from_bytes(p[1:size], "big", signed=kind in b"bsIlL")
    return PyBytes_FromStringAndSize(<const char*>p, size)
