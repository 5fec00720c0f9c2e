# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Last-value queues (`qpid.last_value_queue_key`): of the messages with one value of a header, the newest is kept.

Theory.  A message that comes removes the one with the same value that is ready.  One that a client holds stays, and if
it comes back while there is a newer one it goes.  A message without the header is as in any other queue.

The removal is a decision of this primary, like that of an overflow: it confirms nothing.  The publish of the removed
message waits for its own operation, and the dequeue stands in the log behind the enqueue of the newer one: a backup has
the old one, or both, or the new one, never none.  A new primary that has both looks through its queues once, oldest
messages first, and removes what it finds; so do a restart and the primary of a transaction that did not become safe: it
has the old one.  It looks in slices (3 us for each message), and at some with each message that comes, so it ends;
meanwhile a queue may hand out what is replaced.

Values are octets of text, a number in digits, or else the field as it is.
"""
from qpidd_py.core.properties cimport header_value
from qpidd_py.core.ring cimport GONE, READY, Entry, content_of, ring_after, ring_at

from qpidd_py.errors import InvariantError, PageError

cdef enum:
    FEW = 64                    # notes of messages that have left, that do not matter
    SOME = 4                    # looked at with each message that comes
    COST = 8                    # of one that may be read from the page file, in units of a slice


cdef class LastValues:
    """Of one queue, before its first message."""

    def __cinit__(self, str key):
        self.key = key
        self.name = key.encode()
        self.newest, self.values = {}, {}

    @property
    def notes(self):
        """Messages whose value is noted, some of which may have left."""
        return len(self.values)


cdef int keep_last(Engine engine, Queue queue) except -1:
    """The youngest message of the queue has just come.  Without memory an older one stays for now."""
    cdef LastValues kept = <LastValues>queue.kind
    try:
        if kept.stale:
            look_on(engine, queue, SOME, False)
            return 0
        note(engine, queue, kept, ring_at(&queue.main, queue.main.tail - 1))
        if len(kept.values) > 2 * (queue.ready + queue.unacked) + FEW:
            forget_gone(queue, kept)
    except MemoryError:
        look_anew(engine, queue)
    return 0


cdef int look_anew(Engine engine, Queue queue) except -1:
    """At all messages; the turns go on."""
    cdef LastValues kept = <LastValues>queue.kind
    kept.newest, kept.values, kept.seen = {}, {}, 0
    kept.stale = queue.main.head < queue.main.tail
    if kept.stale:
        engine.unlooked.add(queue)
        engine.want_turn()
    return 0


cdef int go_on_looking(Engine engine) except -1:
    """A slice."""
    cdef Queue queue
    engine.slice.begin(engine.schedule is None)
    for queue in list(engine.unlooked):
        if not queue.deleted and (<LastValues>queue.kind).stale:
            look_on(engine, queue, -1, True)
            if (<LastValues>queue.kind).stale:
                return 0
        engine.unlooked.discard(queue)
    return 0


cdef int look_on(Engine engine, Queue queue, size_t most, bint sliced) except -1:
    """At up to `most` messages, oldest first, or until the slice is over.  (This reads what is in the page file.)"""
    cdef LastValues kept = <LastValues>queue.kind
    cdef uint64_t i = ring_after(&queue.main, kept.seen), id
    try:
        while i < queue.main.tail:
            if most == 0 or (sliced and engine.slice.spent(COST if engine.pool.paged else 1)):
                return 0
            id = ring_at(&queue.main, i).id
            if ring_at(&queue.main, i).state != GONE:
                note(engine, queue, kept, ring_at(&queue.main, i))
            kept.seen = id
            most -= 1
            i += 1
        kept.stale = False
    except MemoryError:
        kept.newest, kept.values, kept.seen = {}, {}, 0
        raise
    return 0


cdef int note(Engine engine, Queue queue, LastValues kept, Entry* e) except -1:
    cdef uint64_t id = e.id
    try:
        value = header_value(content_of(e, 0)[2], kept.name)
    except PageError:
        return 0
    if value is None:
        return 0
    kept.values[id] = value
    older = kept.newest.get(value)
    kept.newest[value] = id
    return 0 if older is None else replace(engine, queue, kept, older)


cdef int replace(Engine engine, Queue queue, LastValues kept, uint64_t id) except -1:
    """There is a newer one; this one goes if it is ready."""
    cdef int64_t index = queue.locate(id, 0)
    if index < 0 or ring_at(&queue.main, index).state != READY:
        return 0
    if engine.on_removed is not None:
        engine.note_removal(queue, ring_at(&queue.main, index), "replaced", False)
    if <uint64_t>index < queue.next:
        queue.look_from(min(<uint64_t>index, queue.returned.items[queue.returned.start] if queue.returned.count
                            else <uint64_t>index))
    engine.dequeue(queue, index)
    kept.values.pop(id, None)
    return 0


cdef int forget_gone(Queue queue, LastValues kept) except -1:
    """What has been consumed."""
    kept.values = {id: value for id, value in kept.values.items() if queue.locate(id, 0) >= 0}
    kept.newest = {value: id for value, id in kept.newest.items() if id in kept.values}
    return 0


cdef int value_back(Engine engine, Queue queue, uint64_t id) except -1:
    """A message that was handed out is ready again."""
    cdef LastValues kept = <LastValues>queue.kind
    value = kept.values.get(id)
    newest = kept.newest.get(value)
    try:
        if value is None or newest == id:
            return 0
        if newest is not None and <uint64_t>newest > id and present(queue, newest):
            return replace(engine, queue, kept, id)
        kept.newest[value] = id
    except MemoryError:
        look_anew(engine, queue)
    return 0


cdef bint present(Queue queue, uint64_t id) noexcept:
    cdef int64_t index = queue.locate(id, 0)
    return index >= 0 and ring_at(&queue.main, index).state != GONE


def keep_last_of(Queue queue, str key):
    """Makes it a last-value queue."""
    if queue.levels is not None or queue.kind is not None:
        raise InvariantError(f"queue {queue.name} has another order")
    queue.kind = LastValues(key)
