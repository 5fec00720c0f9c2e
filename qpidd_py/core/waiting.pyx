# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages that wait for their time (exchanges of type `x-delayed-message`).

Theory.  Such an exchange has a queue of its own, which has no consumers.  A publish that has to wait enters it like
any other, so it is replicated, in the journal, and confirmed when it is safe; its record has the time at which it is due
instead of that of its expiry.  When it is due it leaves as a dead letter does: the copy to the queues that the exchange
leads to at that time, and the removal, are in one batch.  So after a fail-over it waits, or is where it was sent to.

The queue is a ring in order of id, as all are; `Delays` is a heap of (due, id) next to it, 16 octets each, on a backup as
well, so a promotion does not look at the messages.  What is not in the ring any more is left out when it comes to the
top.  `Engine.expiries` has the time of the first (`expiry.pyx`), so nothing is looked at before it is due.

A message that waits and also enters other queues has two records, since its time is no expiry there: the one that waits
comes last, so that no acknowledgement of the others confirms it.
"""
from qpidd_py.core.batch cimport FLAG_TIMED, Segment, lengths_of
from qpidd_py.core.delays cimport Delays
from qpidd_py.core.letters cimport transfer
from qpidd_py.core.paging cimport at_hand
from qpidd_py.core.queue cimport UNLIMITED
from qpidd_py.core.ring cimport GONE, content_of, ring_at
from qpidd_py.core.wire cimport le64

from qpidd_py.errors import InvariantError

cdef enum:
    COST = 64                   # of a message that is due, in units of `left`: Python is asked for its queues
    STALE = 2                   # messages that have left and are forgotten with each that comes


# ---------------------------------------------------------------- in

cdef uint64_t enqueue_later(Engine engine, Route route, const uint8_t* exrk, size_t route_size, const uint8_t* header,
                            size_t header_size, const uint8_t* body, size_t body_size) except 0:
    """As `Engine.enqueue`, of a route of which some queues have delays."""
    cdef Queue queue
    cdef Route waiting = Route([queue for queue in route.queues if queue.delays is not None])
    cdef uint64_t inherited = engine.inherited
    rest = [queue for queue in route.queues if queue.delays is None]
    for queue in waiting.queues:
        queue.delays.room_for(1)
        delay = queue.delays.delay_of((<const char*>header)[:header_size])
    if rest:
        engine.enqueue(Route(rest), exrk, route_size, header, header_size, body, body_size)
    waiting.apart, waiting.timed = False, True
    engine.inherited = engine.now + <uint64_t>delay
    try:
        return engine.enqueue(waiting, exrk, route_size, header, header_size, body, body_size)
    finally:
        engine.inherited = inherited


cdef int note_due(Queue queue, const uint8_t* record) except -1:
    """A message has entered, on a primary (where there is room for it) or on a backup."""
    cdef Delays delays = queue.delays
    cdef int n
    if record[5] & FLAG_TIMED:
        for n in range(STALE):
            if delays.count and is_gone(queue, delays.items[0].id):
                delays.pop()
        delays.push(le64(lengths_of(record) + 16), le64(record + 8))
    return 0


cdef bint is_gone(Queue queue, uint64_t id) noexcept:
    cdef int64_t index = queue.locate(id, 0)
    return not queue.joining and (index < 0 or ring_at(&queue.main, index).state == GONE)


# ---------------------------------------------------------------- out

cdef uint64_t release_due(Engine engine, Queue queue, int64_t* left) except 0:
    """What is due leaves, as far as it goes; when to look again.  After a MemoryError it is still here."""
    cdef Delays delays = queue.delays
    cdef uint64_t id
    cdef int64_t index
    while delays.count and delays.items[0].when < engine.now:
        id = delays.items[0].id
        index = queue.locate(id, 0)
        if index < 0 or ring_at(&queue.main, index).state == GONE:
            delays.pop()
            continue
        if left[0] <= 0:
            return engine.now
        if engine.pool.paged and not at_hand(queue, index, queue):
            if not (<Segment>ring_at(&queue.main, index).segment).rotten:
                return UNLIMITED        # it is looked at when it has been read
            delays.unreadable.append((delays.items[0].when, id))
            delays.pop()
            continue
        left[0] -= COST
        send_on(engine, queue, index)
        delays.pop()
    return delays.items[0].when + 1 if delays.count else UNLIMITED


cdef int send_on(Engine engine, Queue queue, uint64_t index) except -1:
    content = content_of(ring_at(&queue.main, index))
    letter = queue.dead_letter("due", *content)
    if letter is None:
        raise InvariantError(f"queue {queue.name}: a message that is due has no way")
    route, exchange, routing_key, header = letter
    return transfer(engine, queue, index, route, exchange, routing_key, header, content[3], queue)


cdef int look_again(Queue queue) except -1:
    """After a change of role what could not be read is tried again."""
    for when, id in queue.delays.unreadable:
        queue.delays.push(when, id)
    queue.delays.unreadable = []
    return 0
