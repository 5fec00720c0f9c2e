# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Publishes that were sent again do not enter a queue twice (`x-message-deduplication`).

Theory.  A queue with a window (`window.pyx`; of an exchange: `shadows.pyx`) remembers the keys of the messages that
entered it, whether they are still there or not.  What enters is an enqueue in the log, so the window is a function of
the log: a backup notes each record as its primary did, and nothing is logged for it.  A joining backup and a carry of
the journal get the entries themselves (OP_REMEMBERED), those behind what they hold.

A publish with a remembered key is left out of that queue, and is confirmed when the message that had the key is safe:
not before, since a fail-over might lose that one and its key, and the publisher would not send it a third time.  A
message that was refused (a full queue, a transaction) has no record, so its key is not remembered.

Only publishes of clients are looked at.  What the broker itself puts into a queue (a dead letter that returns, a move, a
restored message) enters always: it is the only copy; its key is remembered.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t
from libc.string cimport memset

from qpidd_py.core.batch cimport FLAG_TIMED, OP_REMEMBERED, RECORD_HEADER, lengths_of, route_of
from qpidd_py.core.shadows cimport route_without
from qpidd_py.core.stamps cimport find_field
from qpidd_py.core.wire cimport be16, be32, le16, le32, le64, putle16, putle32, putle64
from qpidd_py.core.window cimport LEFT, Key, Seen

from qpidd_py.errors import LinkError

cdef enum:
    FIXED = RECORD_HEADER + 16  # queue u32, entries u32, after u64 (GOES_ON: the entries of the record before go on)
    SEEN = 32                   # hash, id u64, when u32, spare u32

cdef uint64_t GOES_ON = <uint64_t>-1


# ---------------------------------------------------------------- on a primary

cdef Route entering(Engine engine, Route route, const uint8_t* header, size_t size, uint64_t* safe):
    """The route less the queues that remember the message's key, counted as duplicates unless `safe` is NULL; `safe`: what
    the confirm has to wait for because of them.  The others have room for the key."""
    cdef Queue queue
    cdef uint64_t id
    known = []
    for queue in route.queues:
        id = remembered(engine, queue, header, size)
        if id:
            known.append(queue)
            if safe != NULL:
                safe[0] = max(safe[0], id if queue.replicated else engine.changed)
                queue.window.duplicates += 1
    if known:
        route = route_without(route, known)
    make_room(route)
    return route


cdef uint64_t remembered(Engine engine, Queue queue, const uint8_t* header, size_t size) noexcept:
    """The id of the message that entered with the same key; 0 if there is none, or no key."""
    cdef Window window = queue.window
    cdef size_t n = 0
    cdef const uint8_t* key = NULL
    if window is not None:
        key = key_of(header, size, window.header, &n)
    return window.find(window.hashed(key, n), engine.now) if key != NULL else 0


cdef int make_room(Route route) except -1:
    cdef Queue queue
    for queue in route.queues:
        if queue.window is not None:
            queue.window.room_for(1)
    return 0


# ---------------------------------------------------------------- on both

cdef int remember(Queue queue, const uint8_t* record) except -1:
    """A message has entered a queue with a window, live; on a primary there is room for its key."""
    cdef Window window = queue.window if queue.window.live is None else queue.window.live
    cdef const uint8_t* lengths = lengths_of(record)
    cdef const uint8_t* key
    cdef size_t n = 0
    key = key_of(route_of(record) + le16(lengths), le32(lengths + 4), window.header, &n)
    if key != NULL:
        window.note(window.hashed(key, n), le64(record + 8), le64(lengths + 8) if record[5] & FLAG_TIMED else 0)
    return 0


cdef const uint8_t* key_of(const uint8_t* p, size_t n, bytes name, size_t* size) noexcept:
    """The key in a content header of n octets which `bad_header` has not refused: the value of the header `name` (length
    and octets) with its type, or without a name the message-id; NULL if there is none."""
    cdef int flags = be16(p + 12), bit
    cdef size_t at = 14, table
    for bit in range(15, 6, -1):
        if not flags & (1 << bit):
            continue
        if at >= n:
            return NULL
        if bit == 13:
            table = be32(p + at) if at + 4 <= n else n
            at += 4
            if at + table > n:
                return NULL
            if name is not None:
                return value_of(p + at, table, name, size)
            at += table
        elif bit == 12 or bit == 11:
            at += 1
        elif bit > 7:
            at += 1 + <size_t>p[at]
        elif name is None and p[at] and at + 1 + p[at] <= n:
            size[0] = p[at]
            return p + at + 1
    return NULL


cdef const uint8_t* value_of(const uint8_t* table, size_t n, bytes name, size_t* size) noexcept:
    cdef size_t at = find_field(table, n, PyBytes_AS_STRING(name), size)
    if at == n or size[0] <= len(name) + 1:         # nothing, or a value of no octets
        return NULL
    size[0] -= len(name)
    return table + at + len(name)


# ---------------------------------------------------------------- a joining backup, and a journal

cdef bytes write_seen(Queue queue, uint64_t* index, uint64_t after, uint64_t cut, size_t limit):
    """A record of entries from `index` on (moved behind them; UNLIMITED: it is the first record, and tells `after`) of
    messages up to `cut`; of about `limit` octets.  Empty when there are no more."""
    cdef Window window = queue.window
    cdef bint first = index[0] == <uint64_t>-1
    cdef uint64_t i = max(window.head, window.index_after(after) if first else index[0])
    cdef uint64_t end = min(window.index_after(cut), i + max(limit // SEEN, <size_t>1))
    cdef size_t n = 0
    cdef uint8_t* p
    cdef uint64_t k
    for k in range(i, end):
        n += window.at(k).next != LEFT
    index[0] = max(i, end)
    if not first and i >= end:
        return b""
    record = PyBytes_FromStringAndSize(NULL, FIXED + SEEN * n)
    p = <uint8_t*>PyBytes_AS_STRING(record)
    memset(p, 0, FIXED + SEEN * n)
    putle32(p, <uint32_t>(FIXED + SEEN * n))
    p[4] = OP_REMEMBERED
    putle16(p + 6, 1)
    putle64(p + 8, cut)
    putle32(p + RECORD_HEADER, queue.number)
    putle32(p + RECORD_HEADER + 4, <uint32_t>n)
    putle64(p + RECORD_HEADER + 8, after if first else GOES_ON)
    p += FIXED
    for k in range(i, end):
        if window.at(k).next != LEFT:
            write_one(p, window.at(k))
            p += SEEN
    return record


cdef void write_one(uint8_t* p, const Seen* seen) noexcept:
    putle64(p, seen.key.low)
    putle64(p + 8, seen.key.high)
    putle64(p + 16, seen.id)
    putle32(p + 24, seen.when)


cdef int apply_seen(Queue queue, const uint8_t* record) except -1:
    """Such a record, whose lengths are right, on a backup or from a journal."""
    cdef Window window = queue.window
    cdef const uint8_t* p = record + FIXED
    cdef uint32_t i
    cdef uint64_t after = le64(record + RECORD_HEADER + 8)
    cdef Key key
    if window is None:
        raise LinkError(f"queue {queue.name} remembers no keys")
    if after != GOES_ON:
        window.begin(after, le64(record + 8))
    for i in range(le32(record + RECORD_HEADER + 4)):
        key.low, key.high = le64(p), le64(p + 8)
        if window.head < window.tail and window.at(window.tail - 1).id >= le64(p + 16):
            raise LinkError(f"queue {queue.name}: key of message {le64(p + 16)} is not in order")
        window.note_at(key, le64(p + 16), le32(p + 24))
        p += SEEN
    return 0
