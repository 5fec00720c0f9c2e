# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What has expired leaves its queue, consumers or not, as soon as it stands at the head.

Theory.  `Engine.expiries` has the time at which to look at a queue: never later than the expiry of its head, so a
publish says a time only if it is before that (`Queue.look_at`).  A look drops what has expired and notes the expiry of
the next head.  What must be read first is looked at when it has come.  Anything that may put another message in front
(a requeue, the end of a transaction that held messages back, a change of role) asks for a look at once.  A head that
does not expire may hide messages that do: such a queue is looked at again after `AGAIN`.  Work comes in slices: what is
left of one is due, and the next turn goes on with it.
"""
from libc.stdint cimport int64_t

from qpidd_py.core.letters cimport MAX_LETTERS
from qpidd_py.core.paging cimport at_hand
from qpidd_py.core.pump cimport take_and_drop
from qpidd_py.core.retained cimport holds_many
from qpidd_py.core.ring cimport ENTRY_TIMED, Entry, ring_at
from qpidd_py.core.waiting cimport release_due

cdef enum:
    SLICE = 4096                # queues looked at and messages dropped in one turn
    AGAIN = 1000                # milliseconds


cdef int look_at(Engine engine, Queue queue, uint64_t when) except -1:
    """At that time at the latest, in milliseconds since 1970; UNLIMITED asks for nothing."""
    if queue.parent is not None:
        queue = queue.parent
    if when < queue.look_at:
        engine.expiries.set(queue, when)
        queue.look_at = when
    return 0


cdef int expire_some(Engine engine) except -1:
    """One slice.  After a MemoryError the queue is looked at again."""
    cdef Queue queue
    cdef int64_t left = SLICE
    while left > 0 and len(engine.letters) < MAX_LETTERS:
        queue = engine.expiries.pop(engine.now)
        if queue is None:
            break
        queue.look_at = UNLIMITED
        left -= 1
        if queue.ready and not queue.deleted:
            try:
                look_at(engine, queue, release_due(engine, queue, &left) if queue.delays is not None
                        else expire_heads(engine, queue, &left))
            except MemoryError:
                look_at(engine, queue, engine.now)
                raise
    return 0


cdef int expire_queue(Engine engine, Queue queue) except -1:
    """Before a limit is judged: what has expired does not count.  As much as one slice."""
    cdef int64_t left = SLICE
    look_at(engine, queue, expire_heads(engine, queue, &left))
    return 0


cdef uint64_t expire_heads(Engine engine, Queue queue, int64_t* left) except 0:
    """Drops what has expired, as far as it goes; when to look again.  A head that is not in memory is looked at when it
    has been read."""
    cdef Queue level
    cdef int64_t index
    cdef uint64_t next = UNLIMITED
    for level in queue.levels or (queue,):
        index = level.peek_ready() if level.timed else -1
        while index >= 0 and known(level, index, queue) and level.expired(index, engine.now):
            if left[0] <= 0 or len(engine.letters) >= MAX_LETTERS:
                return engine.now
            if holds_many(engine, queue):
                return engine.now + AGAIN
            left[0] -= 1
            take_and_drop(engine, queue, level, index, "expired")
            index = level.peek_ready()
        if index >= 0 and known(level, index, None):
            next = min(next, level.expiry_at(index, engine.now + AGAIN))
    return next


cdef bint known(Queue level, uint64_t index, waiter) except -1:
    """When it expires; if it has to be read first, `waiter` goes on then."""
    cdef Entry* e = ring_at(&level.main, index)
    return not e.flags & ENTRY_TIMED or level.looked_at == e.id or at_hand(level, index, waiter)
