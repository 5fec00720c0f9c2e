# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages of exchanges that number them (`qpid.msg_sequence`).

Theory.  The operation that gives a number stands in the log before the message that has it, in the same batch.  So who
has the message has the number: a new primary goes on behind it, and no number is given twice.  The confirm waits for the
log only: a consumer's acknowledgement proves the message, not that the number is safe (`Channel.publish`).

The header of the message is written anew, without what the client has put there.  Queues that get the message with
other numbers, since it has passed several such exchanges, get a record each.  A message that no queue takes is counted.
A header that would not fit a frame goes without the number.  A backup counts for exchanges of its own only.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from qpidd_py.core.batch cimport RECORD_HEADER
from qpidd_py.core.kinds cimport make_classes
from qpidd_py.core.properties cimport field_size
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.stamps cimport fields_at
from qpidd_py.core.wire cimport FRAME_OVERHEAD, be16, be32, put16, put32, put64

cdef enum:
    ADDED = 31                  # octets by which the header grows, at most
    OPERATION = 512             # octets of one that gives a number, at most
    PER_RECORD = RECORD_HEADER + 64 + ADDED

cdef const char* NAME = b"\x11qpid.msg_sequencel"       # length, name and type
cdef size_t NAMED = 19


cdef uint64_t enqueue_numbered(Engine engine, Route route, const uint8_t* exrk, size_t route_size,
                               const uint8_t* header, size_t header_size, const uint8_t* body,
                               size_t body_size) except 0:
    """As `Engine.enqueue`, of a route by way of exchanges that number.  After a MemoryError a number may be used up."""
    cdef dict of_queue = route.numbering[1], parts = {}, numbers
    cdef uint64_t position = 0
    cdef Queue queue
    cdef bytes kept
    make_classes(engine, route.queues, header, header_size)
    for queue in route.queues:
        queue.room_for(1)
        parts.setdefault(of_queue.get(queue), []).append(queue)
    numbers = count(engine, route, room_of(route, route_size + header_size + body_size))
    for which, queues in parts.items():
        kept = (<const char*>header)[:header_size]
        if which is not None:
            kept = with_number(header, header_size, numbers.get(which, 0), engine.frame_max)
        position = engine.enqueue(Route(queues), exrk, route_size, <const uint8_t*>PyBytes_AS_STRING(kept),
                                  PyBytes_GET_SIZE(kept), body, body_size)
    return position


cdef dict count(Engine engine, Route route, size_t octets):
    """The exchanges that a message passes give it their next numbers: {numbers of an exchange: the one that it gave}.
    These operations, and `octets` of records behind them, are in one batch."""
    cdef list given = []
    for numbers in route.numbering[0]:
        if not (engine.passive and numbers.replicated):
            payload = numbers.operation()
            given.append((numbers, payload))
            octets += RECORD_HEADER + <size_t>len(payload)
    engine.log.ensure(octets)
    for numbers, payload in given:
        numbers.note(numbers.last + 1, engine.sequence + 1 if payload else 0, payload)
        if payload:
            engine.log_config(payload)
    return {numbers: numbers.last for numbers, _ in given}


cdef size_t room_of(Route route, size_t octets) except -1:
    """What a message of so many octets takes in the log, at most; 0 if it is not numbered."""
    if route.numbering is None:
        return 0
    return ((<size_t>len(route.numbering[0]) + 1) * (octets + PER_RECORD + OPERATION)
            + 4 * <size_t>len(route.queues))


cdef bytes with_number(const uint8_t* header, size_t size, uint64_t number, size_t frame_max):
    """A content header (which `bad_header` has not refused) with this number, 0: none, and without any other."""
    cdef uint16_t flags = be16(header + 12)
    cdef size_t at = fields_at(header), table = 0, n
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size + ADDED)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(made)
    cdef uint8_t* to = start
    cdef uint8_t* length
    memcpy(to, header, at)
    put16(to + 12, flags | 0x2000)
    length = to + at
    to = length + 4
    if flags & 0x2000:
        table = be32(header + at)
        at += 4
    to += copy_others(to, header + at, table)
    at += table
    n = (to - start) + NAMED + 8 + size - at
    if number and n + FRAME_OVERHEAD <= frame_max:
        memcpy(to, NAME, NAMED)
        put64(to + NAMED, number)
        to += NAMED + 8
    put32(length, <uint32_t>(to - length - 4))
    memcpy(to, header + at, size - at)
    return made[:to - start + size - at]


cdef size_t copy_others(uint8_t* to, const uint8_t* table, size_t n) noexcept:
    """The fields of other names, of the inside of a table; their octets."""
    cdef size_t at = 0, size, copied = 0
    while at < n:
        size = 1 + <size_t>table[at]
        size += field_size(table + at + size, n - at - size, 0)
        if table[at] != <uint8_t>NAME[0] or memcmp(table + at, NAME, NAMED - 1) != 0:
            memcpy(to + copied, table + at, size)
            copied += size
        at += size
    return copied
