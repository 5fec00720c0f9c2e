# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Two classes of messages of a quorum queue: those with a priority from `HIGH` on, and all others (as RabbitMQ 4).

Theory.  Such a queue (`Queue.weighted`) is a plain one until its first high message comes.  Then it is split: what it
has becomes its lower level, in place (the ring moves, so indexes stay), and the high ones get a level of their own; from
then on it is a queue with levels.  Each broker splits for itself, at the first high message that it hears of.  Who has
noted the queue itself as the place of a message (a delivery, a letter, a cursor) means its lower level (`Queue.leaf`).
What this turn has noted of the queue goes into the log first (`make_classes`), so nothing is noted of a place that has
changed.

While both classes wait, `RUN` high messages are handed out for each normal one (`Queue.run` counts them where they are
taken).  That is not in the log: after a change of role a run begins anew, as it does when no normal one waits.
"""


cdef Queue next_class(Queue queue):
    """The level to hand out from; the queue has messages."""
    cdef Queue normal = <Queue>queue.levels[0], high = <Queue>queue.levels[1]
    if high.peek_ready() < 0 or (queue.run >= RUN and normal.peek_ready() >= 0):
        return normal
    return high


cdef void count_above(Queue level, int64_t ready, int64_t unacked, int64_t octets, int64_t body) noexcept:
    """`Queue.count` of a level goes on here: in the sums of its queue; and if a message is taken, in the run.  It is not
    there, since that costs plain queues the room for it."""
    cdef Queue queue = level.parent, normal
    if unacked > 0 and queue.weighted:
        normal = <Queue>queue.levels[0]
        queue.run = queue.run + 1 if level is not normal and normal.ready else 0
    queue.count(ready, unacked, octets, body)


cdef int split(Queue queue) except -1:
    """A queue without levels gets two.  A MemoryError changes nothing."""
    cdef Queue normal = new_level(queue), high = new_level(queue)
    take_over(normal, queue)
    queue.levels = [normal, high]
    return 0


cdef Queue new_level(Queue queue):
    cdef Queue level = Queue(queue.number, queue.name, queue.replicated, queue.host)
    level.parent = queue
    if queue.counts:
        level.count_returns(queue.most_returns)
    level.barriers = list(queue.barriers)
    level.barrier = queue.barrier
    level.loose = queue.loose
    return level


cdef void take_over(Queue level, Queue queue) noexcept:
    """All messages; the queue keeps the sums."""
    level.main, queue.main = queue.main, level.main
    level.side, queue.side = queue.side, level.side
    level.returned, queue.returned = queue.returned, level.returned
    level.joining, queue.joining = queue.joining, False
    level.next, queue.next = queue.next, 0
    level.ready, level.unacked, level.bytes, level.ready_bytes = queue.ready, queue.unacked, queue.bytes, queue.ready_bytes
    level.enqueued, level.dequeued, level.unreadable = queue.enqueued, queue.dequeued, queue.unreadable
    level.timed, level.last_whole = queue.timed, queue.last_whole
    level.looked_at, level.arrival, level.expiry = queue.looked_at, queue.arrival, queue.expiry
    level.delivered, level.delivered_logged = queue.delivered, queue.delivered_logged
