# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Many messages as few lines: runs of the ids that their publishers gave them (message-id `PREFIX:n`).

A message whose number follows on the last one of its prefix extends that run, whatever came in between; each id of
another form is a run of one.  Beyond `most` runs, and for messages without an id, only their number and positions are
kept.  Exact: a run PREFIX:first..last stands for all these numbers, each once.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t
from libc.string cimport memcmp

from qpidd_py.core.wire cimport be16, be32

cdef enum:
    HAS_MESSAGE_ID = 0x0080
    DIGITS_MAX = 18             # more do not fit 64 bits


cdef size_t message_id(const uint8_t* p, size_t n, const uint8_t** id) noexcept nogil:
    """Octets of the property message-id in a content header of n octets; 0 if there is none that can be read."""
    cdef uint16_t flags
    cdef size_t at = 14
    cdef int bit
    if n < 14:
        return 0
    flags = be16(p + 12)
    if not flags & HAS_MESSAGE_ID or flags & 1:
        return 0
    for bit in range(15, 7, -1):
        if not flags & (1 << bit):
            continue
        if at >= n or (bit == 13 and at + 4 > n):
            return 0
        if bit == 13:
            at += 4 + <size_t>be32(p + at)
        elif bit == 12 or bit == 11:
            at += 1
        else:
            at += 1 + <size_t>p[at]
    if at >= n or at + 1 + p[at] > n:
        return 0
    id[0] = p + at + 1
    return p[at]


cdef size_t prefix_of(const uint8_t* id, size_t n, uint64_t* number) noexcept nogil:
    """Octets before the colon of PREFIX:n, and n; 0 for another form (or leading zeros)."""
    cdef size_t digits = 0, i
    while digits < n and 48 <= id[n - 1 - digits] <= 57:
        digits += 1
    if digits == 0 or digits > DIGITS_MAX or digits + 1 >= n or id[n - 1 - digits] != 58:
        return 0
    if digits > 1 and id[n - digits] == 48:
        return 0
    number[0] = 0
    for i in range(n - digits, n):
        number[0] = number[0] * 10 + (id[i] - 48)
    return n - digits - 1


cdef class Run:
    cdef void cover(self, uint64_t position) noexcept:
        if not self.count or position < self.first_pos:
            self.first_pos = position
        if position > self.last_pos:
            self.last_pos = position
        self.count += 1

    cdef str name(self, uint64_t number):
        text = self.prefix.decode("utf-8", "replace")
        return f"{text}:{number}" if self.numbered else text


cdef class IdRuns:
    """See the head of this module."""

    def __init__(self, size_t most):
        self.most = most
        self.runs = []
        self.open = {}
        self.others = Run()

    cdef int add(self, const uint8_t* header, size_t size, uint64_t position) except -1:
        """`header`: payload of the content header."""
        cdef const uint8_t* id = NULL
        cdef uint64_t number = 0
        cdef size_t length = message_id(header, size, &id), prefix
        cdef Run run = self.recent
        if not length:
            self.others.cover(position)
            return 0
        prefix = prefix_of(id, length, &number)
        if not prefix:
            return self.begin(PyBytes_FromStringAndSize(<const char*>id, length), False, 0, position)
        if run is None or <size_t>PyBytes_GET_SIZE(run.prefix) != prefix or \
                memcmp(PyBytes_AS_STRING(run.prefix), id, prefix):
            name = PyBytes_FromStringAndSize(<const char*>id, prefix)
            run = <Run>self.open.get(name)
        else:
            name = run.prefix
        if run is None or number != run.last + 1:
            return self.begin(name, True, number, position)
        run.last = number
        run.cover(position)
        self.recent = run
        return 0

    cdef int begin(self, bytes prefix, bint numbered, uint64_t number, uint64_t position) except -1:
        cdef Run run
        if len(self.runs) >= self.most:
            self.others.cover(position)
            return 0
        run = Run()
        run.prefix, run.numbered = prefix, numbered
        run.first = run.last = number
        run.cover(position)
        self.runs.append(run)
        if numbered:
            self.open[prefix] = self.recent = run
        return 0

    @property
    def named(self):
        """(first id, last id, messages, lowest position, highest position) of each run."""
        cdef Run run
        return [(run.name(run.first), run.name(run.last), run.count, run.first_pos, run.last_pos) for run in self.runs]

    @property
    def unnamed(self):
        """(messages, lowest position, highest position) of those without a name here."""
        return self.others.count, self.others.first_pos, self.others.last_pos


def runs_of(headers, size_t most):
    """Of (position, payload of the content header); for tests."""
    cdef IdRuns found = IdRuns(most)
    cdef bytes header
    for position, header in headers:
        found.add(<const uint8_t*>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header), position)
    return found
