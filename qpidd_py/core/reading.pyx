# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a queue holds, for those who look and take nothing: management, journals, salvage."""
from libc.stdint cimport uint64_t

from qpidd_py.core.batch cimport Segment
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport UNLIMITED, Queue
from qpidd_py.core.ring cimport (
    ENTRY_REDELIVERED, GONE, Entry, arrival_of, body_of, content_of, name_entry, record_of, ring_after, ring_at)
from qpidd_py.core.runs cimport IdRuns


def glance(Queue queue, uint64_t after, size_t limit, size_t cut, size_t octets):
    """As `peek`, for messages behind the id `after` of a queue without levels, with at most `cut` octets of each body
    and the size of the whole one behind it.  Ends when headers and bodies come to `octets`, and before one that is
    not in memory, if it is not the first (`paging.soon`)."""
    cdef uint64_t i
    cdef Entry* e
    cdef size_t taken = 0
    found = []
    for i in range(ring_after(&queue.main, after), queue.main.tail):
        e = ring_at(&queue.main, i)
        if e.state != GONE:
            if len(found) == limit or taken >= octets or (found and (<Segment>e.segment).data == NULL):
                break
            content = content_of(e, cut)
            found.append((e.id, bool(e.flags & ENTRY_REDELIVERED), *content, body_of(record_of(e))))
            taken += len(content[2]) + len(content[3])
    return found


def read(Queue queue, uint64_t low, uint64_t high, size_t limit, size_t octets=<size_t>-1):
    """The first `limit` messages with ids in low..high, handed out or not, in order of id, as (id, redelivered,
    arrival, exchange, routing key, header, body); arrival in ms since 1970, 0 where it was not noted.  Ends when
    headers and bodies come to `octets`, and before one that is not in memory, if it is not the first (`paging.soon`)."""
    cdef uint64_t i
    cdef size_t taken = 0
    cdef Entry* e
    cdef Queue level
    found = []
    if queue.levels is not None:
        for level in queue.levels:
            high = min(high, away_from(level, low, limit) - 1)
        for level in queue.levels:
            part = read(level, low, high, limit, octets)
            found += part
            if sum([len(message[5]) + len(message[6]) for message in part]) >= octets:
                high = part[len(part) - 1][0]       # what follows it in this level would be missing
        return [message for message in sorted(found) if message[0] <= high][:limit]
    if queue.joining:
        queue.merge()
    for i in range(ring_after(&queue.main, low - 1) if low else queue.main.head, queue.main.tail):
        e = ring_at(&queue.main, i)
        if e.id > high or len(found) == limit or taken >= octets:
            break
        if e.state != GONE:
            if found and (<Segment>e.segment).data == NULL:
                break
            content = content_of(e)
            found.append((e.id, bool(e.flags & ENTRY_REDELIVERED), arrival_of(e), *content))
            taken += len(content[2]) + len(content[3])
    return found


cdef uint64_t away_from(Queue queue, uint64_t low, size_t limit) noexcept:
    """The first message from `low` on that is not in memory, among the next `limit` but the first."""
    cdef uint64_t i
    cdef size_t looked = 0
    cdef Entry* e
    for i in range(ring_after(&queue.main, low - 1) if low else queue.main.head, queue.main.tail):
        e = ring_at(&queue.main, i)
        if e.state != GONE:
            if looked and (<Segment>e.segment).data == NULL:
                return e.id
            looked += 1
            if looked > limit:
                break
    return UNLIMITED


def name_in_parts(Queue queue, IdRuns found, size_t most):
    """Adds all messages, handed out or not, to `found`.  Yields when it has looked at `most` of them, and goes on behind
    the last one: what comes and goes in between is there or not."""
    cdef uint64_t i, last
    cdef size_t looked = 0
    cdef Entry* e
    cdef Queue level
    for level in queue.levels if queue.levels is not None else (queue,):
        i = level.main.head
        while i < level.main.tail:
            e = ring_at(&level.main, i)
            last = e.id
            if e.state != GONE:
                name_entry(found, e, False)
            i += 1
            looked += 1
            if looked == most:
                looked = 0
                yield
                i = ring_after(&level.main, last)


def named(Queue queue, size_t most):
    """All messages, handed out or not, as at most so many runs of their ids."""
    cdef IdRuns found = IdRuns(most)
    for _ in name_in_parts(queue, found, UNLIMITED):
        pass
    return found


def rotten_queues(Engine engine):
    """The queues with messages that cannot be read back, and how many of each."""
    cdef Queue queue
    engine.rotting = {queue: None for queue in engine.rotting if (<Queue>queue).unreadable}
    return [(queue, queue.unreadable) for queue in engine.rotting]
