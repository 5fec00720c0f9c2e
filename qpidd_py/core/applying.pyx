# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A backup applies the log: records of batches, and those of the difference that it lacks when it joins."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from qpidd_py.core.batch cimport (
    OP_CONFIG, OP_DELIVERED, OP_DEQUEUE, OP_ENQUEUE, OP_MARK, OP_REMEMBERED, OP_RETURNED, RECORD_HEADER, Batch, Segment,
    check_record)
from qpidd_py.core.classes cimport HIGH, split
from qpidd_py.core.duplicates cimport apply_seen, remember
from qpidd_py.core.ranges cimport Ranges, ranges_decode
from qpidd_py.core.returns cimport apply_counts
from qpidd_py.core.ring cimport ENTRY_SHARED, priority_of, ring_at
from qpidd_py.core.waiting cimport note_due
from qpidd_py.core.wire cimport le16, le32, le64

from qpidd_py.errors import LinkError


cdef Queue find_queue(Engine engine, uint32_t number):
    cdef Queue queue = engine.last_queue
    if queue is not None and queue.number == number:
        return queue
    queue = engine.queues.get(number)
    if queue is None:
        raise LinkError(f"the log names queue {number}, which is not declared here")
    engine.last_queue = queue
    return queue


cdef Batch apply_records(Engine engine, const uint8_t* source, size_t n, size_t start, bint side):
    """Copies the records into a segment of ours and acts on each; the copy, with what came before the records.  What
    fails in the middle leaves the engine `torn`."""
    cdef size_t at = start, i
    cdef Batch copy
    cdef const uint8_t* p
    cdef Segment segment
    cdef size_t base
    while at < n:
        if not check_record(source + at, n - at):
            raise LinkError(f"record at octet {at} of {n} has lengths that do not fit")
        at += le32(source + at)
    at = start
    base = engine.local.adopt(source, n)
    segment = engine.local.segment
    copy = Batch.__new__(Batch)             # from here on the segment stays in memory
    copy.lie_in(segment, base, n)
    try:
        while at < n:
            p = segment.data + base + at
            if p[4] == OP_ENQUEUE:
                apply_enqueue(engine, segment, p, side)
            elif p[4] == OP_REMEMBERED:
                apply_seen(find_queue(engine, le32(p + RECORD_HEADER)), p)
            elif side and p[4] != OP_DELIVERED and p[4] != OP_RETURNED:
                raise LinkError(f"operation {p[4]} in a slice")
            elif p[4] == OP_DEQUEUE:
                for i in range(le32(p + RECORD_HEADER + 4)):
                    find_queue(engine, le32(p + RECORD_HEADER)).remove_range(
                        le64(p + RECORD_HEADER + 8 + 16 * i), le64(p + RECORD_HEADER + 16 + 16 * i))
            elif p[4] == OP_DELIVERED:
                apply_delivered(find_queue(engine, le32(p + RECORD_HEADER)), p)
            elif p[4] == OP_RETURNED:
                apply_counts(find_queue(engine, le32(p + RECORD_HEADER)), p)
            elif p[4] == OP_MARK:
                pass
            elif p[4] == OP_CONFIG:
                engine.on_config(le64(p + 8), PyBytes_FromStringAndSize(<const char*>p + RECORD_HEADER,
                                                                        le32(p) - RECORD_HEADER))
            elif engine.on_membership is not None:
                engine.on_membership(le64(p + 8), PyBytes_FromStringAndSize(<const char*>p + RECORD_HEADER,
                                                                            le32(p) - RECORD_HEADER))
            at += le32(p)
    except MemoryError:
        engine.torn = True
        raise
    except:
        engine.torn = engine.torn or at > start
        raise
    return copy


cdef int apply_enqueue(Engine engine, Segment segment, const uint8_t* p, bint side) except -1:
    cdef uint32_t offset = <uint32_t>(p - segment.data), size = le32(p), i, queues = le16(p + 6)
    cdef uint64_t id = le64(p + 8)
    cdef uint8_t flags = ENTRY_SHARED if queues > 1 else 0
    cdef Queue queue
    for i in range(queues):
        queue = find_queue(engine, le32(p + RECORD_HEADER + 4 * i))
        if queue.window is not None and not side:
            remember(queue, p)
        if queue.delays is not None:
            note_due(queue, p)
        if queue.weighted and queue.levels is None and priority_of(p) >= HIGH:
            split(queue)
        queue = queue.level_for(p)
        if side:
            queue.push_side(segment, offset, size, id, flags)
        elif queue.main.tail > queue.main.head and ring_at(&queue.main, queue.main.tail - 1).id >= id:
            raise LinkError(f"queue {queue.name}: message {id} is not newer than the last")
        else:
            queue.push(segment, offset, size, id, flags)
    return 0


cdef int apply_delivered(Queue queue, const uint8_t* p) except -1:
    cdef uint32_t rank = le32(p + RECORD_HEADER + 4)
    if rank > 1 and queue.weighted and queue.levels is None:
        split(queue)                        # the high message is still to come, with the difference
    queue.set_delivered(le64(p + RECORD_HEADER + 8), rank)
    return 0


cdef int drop_ids(Engine engine, uint32_t number, bytes ids) except -1:
    """Removes these messages of one queue."""
    cdef Ranges r = Ranges(NULL, 0, 0)
    cdef Queue queue = find_queue(engine, number)
    cdef size_t i
    try:
        ranges_decode(&r, <const uint8_t*>PyBytes_AS_STRING(ids), PyBytes_GET_SIZE(ids))
        for i in range(r.count):
            queue.remove_range(r.items[i].low, r.items[i].high)
    finally:
        free(r.items)
    return 0
