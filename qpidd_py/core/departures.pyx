# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What has left the queues in this turn, and how far they were handed out, goes into the log.

After a MemoryError what is not in the log yet is still noted, and goes into it in a later turn.
"""
from qpidd_py.core.batch cimport OP_DELIVERED, OP_DEQUEUE, RECORD_HEADER
from qpidd_py.core.ring cimport ring_at
from qpidd_py.core.wire cimport putle32, putle64

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef int log_noted(Engine engine, list queues, LogQueue log) except -1:
    """Each of the queues that are noted goes into the log, and is noted no longer."""
    cdef Queue queue
    cdef size_t done = 0
    if not queues:
        return 0
    try:
        for queue in queues:
            log(engine, queue)
            done += 1
    finally:
        del queues[:done]
    return 0


cdef int log_dequeues(Engine engine) except -1:
    return log_noted(engine, engine.touched_queues, dequeues_of)


cdef int dequeues_of(Engine engine, Queue queue) except -1:
    if queue.gone.count and not queue.deleted:
        log_queue_dequeues(engine, queue)
    queue.gone.count = 0
    queue.touched = False
    return 0


cdef int log_queue_dequeues(Engine engine, Queue queue) except -1:
    cdef size_t n = queue.gone.count, i
    cdef uint8_t* p = engine.record(OP_DEQUEUE, RECORD_HEADER + 8 + 16 * n, 1)
    putle32(p + RECORD_HEADER, queue.number)
    putle32(p + RECORD_HEADER + 4, <uint32_t>n)
    p += RECORD_HEADER + 8
    for i in range(n):
        putle64(p, queue.gone.items[i].low)
        putle64(p + 8, queue.gone.items[i].high)
        p += 16
    return 0


cdef int log_delivered(Engine engine) except -1:
    """How far each queue has been handed out, for `redelivered` after a fail-over."""
    return log_noted(engine, engine.delivered_queues, delivered_of)


cdef int delivered_of(Engine engine, Queue queue) except -1:
    if not queue.deleted and queue.delivered > queue.delivered_logged and keeps_delivered(queue):
        log_delivered_of(engine, queue)
    queue.delivery_noted = False
    return 0


cdef bint keeps_delivered(Queue queue) noexcept:
    """Something that was handed out is still here: a client has it, or has given it back in the same turn."""
    cdef int64_t first
    if queue.unacked:
        return True
    first = queue.first_ready()
    return first >= 0 and ring_at(&queue.main, first).id <= queue.delivered


cdef int log_delivered_of(Engine engine, Queue queue) except -1:
    cdef uint8_t* p = engine.record(OP_DELIVERED, RECORD_HEADER + 16, 1)
    putle32(p + RECORD_HEADER, queue.number)
    putle32(p + RECORD_HEADER + 4, queue.rank())
    putle64(p + RECORD_HEADER + 8, queue.delivered)
    queue.delivered_logged = queue.delivered
    return 0
