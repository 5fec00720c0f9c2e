# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How often a message came back, for queues that count it (`x-delivery-count`, `x-delivery-limit`).

Theory.  A queue with `counts` has in each entry how often the message came back from a client that got it
(`deliveries`), and once that has happened (ENTRY_RETURNED) whether it waits in the queue (ENTRY_WAITS) or was handed out
again.  Each change is noted, and the end of the turn logs the present state of what was noted: absolute, as runs of
entries with the same state, of one level.  So a backup may see a state twice (a slice of the difference has it, and the batch of the
same turn), and the higher count is the newer one.  Before its first return a message needs no record: up to `delivered`
it was handed out.

After a change of role every message that was handed out and does not wait has come back once more (`Queue.reset`), on
each broker for itself: a backup that joins gets the new primary's counts with the difference, where a cursor sends them for
what the backup holds as well (`Catchup`); so does a journal's carry.  What a primary counted and no backup has got is
lost with it: a count after a fail-over may be too low by what was not replicated, never by what was.

A message that came back `most_returns` times leaves with its next return, as a dead letter if the queue has them.  One
that has reached more by a change of role leaves when it would be handed out.  A delivery without acknowledgement whose
octets have not left the socket comes back without being counted.
"""
from libc.stdint cimport uint16_t, uint32_t

from qpidd_py.core.batch cimport OP_RETURNED, RECORD_HEADER
from qpidd_py.core.departures cimport log_delivered, log_dequeues, log_noted
from qpidd_py.core.ranges cimport ranges_add
from qpidd_py.core.ring cimport ENTRY_RETURNED, ENTRY_WAITS, GONE, Ring, ring_after, ring_at
from qpidd_py.core.wire cimport le16, le32, le64, putle16, putle32, putle64

cdef enum:
    FIXED = RECORD_HEADER + 8
    RUN = 24                    # low u64, high u64, count u32, waits u16, rank of the level u16 (0: all)
    MOST = 0xFFFF               # returns that an entry can count


# ---------------------------------------------------------------- on a primary

cdef bint comes_back(Engine engine, Queue queue, uint64_t index, bint counted) except -1:
    """A message that was handed out returns; False if it has to leave instead.  A MemoryError changes nothing."""
    cdef Entry* e = ring_at(&queue.main, index)
    if counted and e.deliveries >= queue.most_returns:
        return False
    note(engine, queue, index)
    if counted and e.deliveries < MOST:
        e.deliveries += 1
    e.flags |= ENTRY_RETURNED | ENTRY_WAITS
    return True


cdef bint spent(Queue queue, uint64_t index) noexcept:
    """Has it come back too often?"""
    return ring_at(&queue.main, index).deliveries > queue.most_returns


cdef int handed_out(Engine engine, Queue queue, Entry* e, uint64_t index) noexcept:
    """Again, after a return.  Without memory for the note a fail-over counts one return less."""
    e.flags &= ~ENTRY_WAITS
    try:
        return note(engine, queue, index)
    except MemoryError:
        return 0


cdef int note(Engine engine, Queue queue, uint64_t index) except -1:
    """The state of this entry goes into the log at the end of the turn; a range may have entries that did not change."""
    cdef uint64_t id = ring_at(&queue.main, index).id
    cdef size_t last = queue.recounted.count - 1
    if not queue.replicated or engine.passive:      # what a deposed primary's clients held comes back unlogged
        return 0
    if queue.recounted.count and queue.recount_index + 1 == index and queue.recounted.items[last].high < id:
        queue.recounted.items[last].high = id
    else:
        ranges_add(&queue.recounted, id, id)
    queue.recount_index = index
    if not queue.recount_noted:
        engine.recounted_queues.append(queue)
        queue.recount_noted = True
        engine.want_turn()
    return 0


cdef int log_departures(Engine engine) except -1:
    """All that is noted of messages that were there: what has left, was handed out, came back."""
    log_dequeues(engine)
    log_delivered(engine)
    log_counts(engine)
    engine.soon = False
    return 0


cdef int log_counts(Engine engine) except -1:
    return log_noted(engine, engine.recounted_queues, counts_of)


cdef int counts_of(Engine engine, Queue queue) except -1:
    if not queue.deleted:
        log_counts_of(engine, queue)
    queue.recounted.count = 0
    queue.recount_noted = False
    return 0


cdef int log_counts_of(Engine engine, Queue queue) except -1:
    cdef size_t runs = 0, k
    cdef uint8_t* p
    for k in range(queue.recounted.count):
        runs += write_runs(queue, first_of(queue, k), end_of(queue, k), NULL)
    if not runs:
        return 0
    p = engine.record(OP_RETURNED, FIXED + RUN * runs, 1)
    write_fixed(p, queue, runs)
    p += FIXED
    for k in range(queue.recounted.count):
        p += RUN * write_runs(queue, first_of(queue, k), end_of(queue, k), p)
    return 0


cdef inline uint64_t first_of(Queue queue, size_t k) noexcept:
    return ring_after(&queue.main, queue.recounted.items[k].low - 1)


cdef inline uint64_t end_of(Queue queue, size_t k) noexcept:
    return ring_after(&queue.main, queue.recounted.items[k].high)


cdef inline void write_fixed(uint8_t* p, Queue queue, size_t runs) noexcept:
    putle32(p + RECORD_HEADER, queue.number)
    putle32(p + RECORD_HEADER + 4, <uint32_t>runs)


# ---------------------------------------------------------------- records

cdef size_t write_runs(Queue queue, uint64_t first, uint64_t last, uint8_t* p) noexcept:
    """The states of the entries first..last-1 of the ring, unless `p` is NULL; how many runs."""
    cdef uint64_t i
    cdef size_t runs = 0
    cdef uint32_t count = 0
    cdef uint16_t waits = 0
    cdef bint open = False
    cdef Entry* e
    for i in range(first, last):
        e = ring_at(&queue.main, i)
        if e.state == GONE:
            continue
        if not e.flags & ENTRY_RETURNED:
            open = False
            continue
        if not open or e.deliveries != count or (e.flags & ENTRY_WAITS != 0) != waits:
            open, count, waits = True, e.deliveries, e.flags & ENTRY_WAITS != 0
            runs += 1
            if p != NULL:
                putle64(p + RUN * (runs - 1), e.id)
                putle32(p + RUN * (runs - 1) + 16, count)
                putle16(p + RUN * (runs - 1) + 20, waits)
                putle16(p + RUN * (runs - 1) + 22, <uint16_t>queue.rank())
        if p != NULL:
            putle64(p + RUN * (runs - 1) + 8, e.id)
    return runs


cdef size_t counts_size(Queue queue, uint64_t first, uint64_t last) noexcept:
    """Octets of the record that says the states of the entries first..last-1; 0 if none has come back."""
    cdef size_t runs = write_runs(queue, first, last, NULL) if queue.counts else 0
    return FIXED + RUN * runs if runs else 0


cdef void write_counts(Queue queue, uint64_t first, uint64_t last, uint64_t position, uint8_t* p) noexcept:
    """That record, for one that does not follow the log."""
    cdef size_t runs = write_runs(queue, first, last, p + FIXED)
    putle32(p, <uint32_t>(FIXED + RUN * runs))
    p[4] = OP_RETURNED
    p[5] = 0
    putle16(p + 6, 1)
    putle64(p + 8, position)
    write_fixed(p, queue, runs)


cdef int apply_counts(Queue queue, const uint8_t* p) except -1:
    """A record of counts, whose lengths are right, on a backup."""
    cdef Queue level
    cdef size_t k
    cdef uint32_t rank
    if queue.levels is not None:
        for level in queue.levels:
            apply_counts(level, p)
        return 0
    rank = max(queue.rank(), 1)             # of a queue that is not split here: all that it has is of the lowest level
    if queue.counts:
        for k in range(le32(p + RECORD_HEADER + 4)):
            if le16(p + FIXED + RUN * k + 22) not in (0, rank):
                continue
            apply_run(&queue.main, p + FIXED + RUN * k)
            if queue.joining:
                apply_run(&queue.side, p + FIXED + RUN * k)
    return 0


cdef void apply_run(Ring* ring, const uint8_t* run) noexcept:
    cdef uint64_t i = ring_after(ring, le64(run) - 1), high = le64(run + 8)
    cdef uint32_t count = min(le32(run + 16), <uint32_t>MOST)
    cdef Entry* e
    while i < ring.tail and ring_at(ring, i).id <= high:
        e = ring_at(ring, i)
        if e.state != GONE and e.deliveries <= count:
            e.deliveries = <uint16_t>count
            e.flags = (e.flags & ~ENTRY_WAITS) | ENTRY_RETURNED | (ENTRY_WAITS if le16(run + 20) else 0)
        i += 1
