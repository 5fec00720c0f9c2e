# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The index of a queue's messages, the same on a primary and on a backup.

A queue is a ring of 32-octet entries in order of message id (the position that enqueued it); each points to a record in
a log segment, which may have left memory: what an entry says of its record needs no look at it.  An entry is READY, UNACKED (handed out) or GONE (dequeued, its place not yet reclaimed).

Invariants
* ids in a ring grow strictly; `GONE` entries keep their id, so the order holds and a binary search works.
* `ready` and `unacked` count exactly the entries of that state.
* every READY entry lies at `next` or later, or its index is in `returned` (requeued ones), which has no others.
* an absolute index stays valid until `grow` compacts the ring; holders keep (id, index) and use `locate`.
* messages from `barrier` on belong to transactions that are not safe, or came later: they are READY and not handed out.
* `gone` holds what this turn dequeued; a range low..high there may be extended only by the ring's next entry, so
  "all of this queue's ids in low..high" is exactly what was dequeued, on the primary and on each backup.

A queue with priorities is a parent without messages of its own and one queue for each level; the levels share the
parent's number and keep its counters, `head` returns the level to hand out from and `level_for` the level of a message.

On a backup that joins, messages older than the live stream arrive in `side`, sorted as well; `merge` ends that.
"""
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free

from qpidd_py.core.batch cimport FLAG_TIMED, FLAG_WHOLE, lengths_of
from qpidd_py.core.classes cimport HIGH, count_above, next_class
from qpidd_py.core.heap cimport heap_clear, heap_push
from qpidd_py.core.ranges cimport add_or_free, ranges_add, ranges_encode
from qpidd_py.core.ring cimport (
    ENTRY_REDELIVERED, ENTRY_RETURNED, ENTRY_TIMED, ENTRY_WAITS, ENTRY_WHOLE, GONE, READY, ROOMY, UNACKED, body_of,
    content_of, priority_of, record_of, ring_after, ring_clear, ring_double, ring_find, ring_free, ring_full,
    ring_merge, ring_pack, ring_shrink, ring_trim, room_of)
from qpidd_py.core.shares cimport fair_head
from qpidd_py.core.wire cimport le64

from qpidd_py.errors import InvariantError, LinkError

cdef uint64_t NOWHERE = <uint64_t>-2      # an index that no entry follows
UNLIMITED = <uint64_t>-1
NO_LIMIT = <object>UNLIMITED


cdef class Queue:
    """One queue's messages.  The primary's pump and the backup's log application are the callers; one thread."""

    def __cinit__(self, uint32_t number, str name, bint replicated, str host="/"):
        self.number = number
        self.name = name
        self.host = host
        self.replicated = replicated
        self.consumers = []
        self.max_count = self.max_bytes = self.ttl = self.barrier = self.look_at = self.most_returns = UNLIMITED
        self.barriers = []
        self.stuck = []

    @property
    def label(self):
        """The name in events: of another virtual host than `/`, behind its name."""
        return self.name if self.host == "/" else f"{self.host}/{self.name}"

    def __dealloc__(self):
        ring_free(&self.main)
        ring_free(&self.side)
        free(self.returned.items)
        free(self.gone.items)
        free(self.recounted.items)

    def add_levels(self, int highest):
        """Makes it a queue with priorities 0 to `highest`; before the first message."""
        cdef Queue level
        if self.enqueued:
            raise InvariantError(f"queue {self.name} has messages already")
        if not 0 <= highest <= 255:
            raise InvariantError(f"queue {self.name}: priorities up to {highest}, expected 0 to 255")
        self.levels = []
        for priority in range(highest + 1):
            level = Queue(self.number, self.name, self.replicated, self.host)
            level.parent = self
            self.levels.append(level)

    def count_returns(self, uint64_t most=UNLIMITED):
        """Counts how often messages come back; one that did so more than `most` times leaves."""
        self.counts = True
        self.most_returns = most
        for level in self.levels or ():
            level.count_returns(most)

    cdef Queue level_of(self, const uint8_t* record):
        cdef uint8_t priority = priority_of(record)
        if self.weighted:
            return <Queue>self.levels[priority >= HIGH]
        return <Queue>self.levels[priority if priority < len(self.levels) else len(self.levels) - 1]

    cdef Queue head(self):
        """Where the next message to hand out lies: self, or the highest level that has one."""
        cdef Py_ssize_t i
        if self.levels is not None and self.ready:
            if self.weighted:
                return next_class(self)
            if self.shares is not None:
                return fair_head(self)
            for i in range(len(self.levels) - 1, -1, -1):
                if (<Queue>self.levels[i]).ready:
                    return <Queue>self.levels[i]
        return self

    cdef Queue tail(self):
        """The queue of the message to drop first: the oldest one of the lowest level."""
        cdef Queue level
        if self.levels is not None:
            for level in self.levels:
                if level.ready:
                    return level
        return self

    cdef void count(self, int64_t ready, int64_t unacked, int64_t octets, int64_t body) noexcept:
        self.ready += ready
        self.unacked += unacked
        self.bytes += octets
        self.ready_bytes += body
        if self.parent is not None:
            count_above(self, ready, unacked, octets, body)

    cdef bint expired(self, uint64_t index, uint64_t now) except -1:
        """`now` in milliseconds since 1970.  With a time to live of 0 a message lives for the turn in which it came,
        for a waiting consumer."""
        return self.expiry_at(index, UNLIMITED) <= now

    cdef uint64_t expiry_at(self, uint64_t index, uint64_t otherwise) except 0:
        """When the message has expired, in milliseconds since 1970; `otherwise` if it never does."""
        cdef Entry* e = ring_at(&self.main, index)
        cdef uint64_t ttl = self.ttl if self.parent is None else self.parent.ttl, at
        cdef const uint8_t* p
        if not e.flags & ENTRY_TIMED:
            return otherwise
        if self.looked_at != e.id:          # its record may have left memory
            p = lengths_of(record_of(e))
            self.looked_at, self.arrival, self.expiry = e.id, le64(p + 8), le64(p + 16)
        at = self.expiry if ttl == UNLIMITED else min(self.expiry, self.arrival + ttl)
        return otherwise if at == UNLIMITED else at + 1

    cdef void set_delivered(self, uint64_t id, uint32_t rank) noexcept:
        """`rank`: of the level for which that holds; 0: for all."""
        cdef Queue level
        if self.levels is not None and 0 < rank <= <uint32_t>len(self.levels):
            (<Queue>self.levels[rank - 1]).set_delivered(id, 0)
            return
        if id > self.delivered:
            self.delivered = id
        for level in self.levels or ():
            level.set_delivered(id, 0)

    cdef uint32_t rank(self) noexcept:
        """Of a level, from 1 on, the lowest first; 0 of a queue."""
        return 0 if self.parent is None else 1 + <uint32_t>self.parent.levels.index(self)

    @property
    def handed_out(self):
        """The highest id that a client has got, as far as a message still waits."""
        waits = [(<Queue>level).delivered for level in self.levels or (self,) if (<Queue>level).ready or (<Queue>level).unacked]
        return max(waits, default=0)

    @property
    def consumer_count(self):
        return len(self.consumers)

    def __repr__(self):
        return f"<Queue {self.number} {self.name!r} ready={self.ready} unacked={self.unacked}>"

    cdef int push(self, Segment segment, uint32_t offset, uint32_t size, uint64_t id, uint8_t flags) except -1:
        cdef Entry* e
        cdef const uint8_t* record = segment.data + offset
        if ring_full(&self.main):
            self.grow()
        e = ring_at(&self.main, self.main.tail)
        Py_INCREF(segment)
        e.segment = <void*>segment
        e.id = id
        e.offset = offset
        e.size = size
        e.body = body_of(record)
        e.state = READY
        e.flags = flags
        e.deliveries = 0
        segment.live += size
        segment.note_id(id)
        self.main.tail += 1
        self.enqueued += 1
        if self.parent is not None:
            self.parent.enqueued += 1
        if record[5] & (FLAG_TIMED | FLAG_WHOLE):
            self.flag(e, record[5])
        self.count(1, 0, size, e.body)
        return 0

    cdef void flag(self, Entry* e, uint8_t flags) noexcept:
        if flags & FLAG_TIMED:
            e.flags |= ENTRY_TIMED
            self.timed = True
            if self.parent is not None:
                self.parent.timed = True
        if flags & FLAG_WHOLE:
            e.flags |= ENTRY_WHOLE
            if e.id > self.last_whole:      # the difference brings older ones later
                self.last_whole = e.id

    cdef int room_for(self, uint64_t more) except -1:
        """The next `more` pushes need no memory; a MemoryError changes nothing."""
        cdef Queue level
        if self.levels is not None:
            for level in self.levels:
                level.room_for(more)
            return 0
        if more == 1:
            return self.grow() if ring_full(&self.main) else 0
        while room_of(&self.main) < self.main.tail - self.main.head + more:
            ring_double(&self.main)
        return 0

    cdef int grow(self) except -1:
        """Doubles the ring, or squeezes out what is gone when that frees half of it.  That takes as long as the ring has
        room, so what was a long queue gets a shorter one."""
        cdef uint64_t live = self.ready + self.unacked, room = ROOMY
        if self.main.blocks == NULL or live * 2 > self.main.mask:
            return ring_double(&self.main)
        self.squeeze()
        while room < 4 * live:
            room *= 2
        ring_shrink(&self.main, room)
        return 0

    cdef void squeeze(self) noexcept:
        ring_pack(&self.main)
        self.look_from(self.main.head)
        self.gone_index = NOWHERE

    cdef int64_t first_ready(self) noexcept nogil:
        """The index of the first message that is ready, held back by a transaction or not; or -1."""
        if self.returned.count:
            return <int64_t>self.returned.items[self.returned.start]
        while self.next < self.main.tail:
            if ring_at(&self.main, self.next).state == READY:
                return <int64_t>self.next
            self.next += 1
        return -1

    cdef int hold_from(self, uint64_t id) except -1:
        """Messages from `id` on are not handed out before the matching `release_held`."""
        cdef Queue level
        self.barriers.append(id)
        self.barrier = self.barriers[0]
        for level in self.levels or ():
            level.hold_from(id)
        return 0

    cdef int release_held(self) except -1:
        """The oldest transaction that holds messages back is safe.  After a change of role there may be none."""
        cdef Queue level
        if self.barriers:
            del self.barriers[0]
        self.barrier = self.barriers[0] if self.barriers else UNLIMITED
        for level in self.levels or ():
            level.release_held()
        return 0

    cdef void take(self, uint64_t index) noexcept:
        """READY -> UNACKED of what `peek_ready` or `first_ready` answered."""
        cdef Entry* e = ring_at(&self.main, index)
        self.skip(index)
        e.state = UNACKED
        self.count(-1, 1, 0, -<int64_t>e.body)
        if e.id > self.delivered:
            self.delivered = e.id

    cdef int64_t locate(self, uint64_t id, uint64_t hint) noexcept nogil:
        if self.main.head <= hint < self.main.tail and ring_at(&self.main, hint).id == id:
            return <int64_t>hint
        return ring_find(&self.main, id)

    cdef int requeue(self, uint64_t index) noexcept:
        """UNACKED -> READY at its old place; the next delivery says redelivered."""
        cdef Entry* e = ring_at(&self.main, index)
        if self.loose and e.state != UNACKED:
            return 0
        e.state = READY
        e.flags |= ENTRY_REDELIVERED
        self.count(1, -1, 0, e.body)
        if index >= self.next:
            return 0  # it is looked at from there on (`look_from`); in `returned`, too, it would stay when it has gone
        if index + 1 == self.next and self.returned.count == 0:
            self.next = index
            return 0
        try:
            heap_push(&self.returned, index)
        except MemoryError:
            self.look_from(min(index, self.returned.items[self.returned.start] if self.returned.count else index))
        return 0

    cdef void look_from(self, uint64_t index) noexcept:
        """Look for what is ready from `index` on, which is not behind the first."""
        heap_clear(&self.returned)
        self.next = min(self.next, index)

    cdef int dequeue(self, uint64_t index) except -1:
        """UNACKED or READY -> GONE, noted for the log; a MemoryError changes nothing."""
        cdef Entry* e = ring_at(&self.main, index)
        if self.replicated:
            if self.gone.count and self.follows(index, e.id):
                self.gone.items[self.gone.count - 1].high = e.id
            else:
                ranges_add(&self.gone, e.id, e.id)
            self.gone_index = index
        self.release(e)
        self.trim(&self.main)
        if self.next < self.main.head:
            self.next = self.main.head
        return 0

    cdef bint follows(self, uint64_t index, uint64_t id) noexcept:
        """True if the last range of `gone` may be extended to this entry.  Other levels have ids in between."""
        if self.parent is not None:
            return self.gone.items[self.gone.count - 1].high + 1 == id
        return self.gone_index + 1 == index

    cdef void release(self, Entry* e) noexcept:
        cdef void* segment = e.segment
        (<Segment>segment).live -= e.size
        if (<Segment>segment).rotten:
            self.count_unreadable(-1)
        if e.state == UNACKED:
            self.count(0, -1, -<int64_t>e.size, 0)
        else:
            self.count(-1, 0, -<int64_t>e.size, -<int64_t>e.body)
        self.dequeued += 1
        if self.parent is not None:
            self.parent.dequeued += 1
        e.state = GONE
        e.segment = NULL
        Py_DECREF(<Segment>segment)

    cdef void trim(self, Ring* ring) noexcept:
        ring_trim(ring)
        if ring.head == ring.tail and ring.mask >= ROOMY and not self.is_roomy:
            self.note_room()

    cdef void note_room(self) noexcept:
        """The queue is empty; its rings are not small.  Without memory for the note they stay until the next time."""
        cdef object roomy = self.roomy if self.parent is None else self.parent.roomy
        if roomy is None:
            return
        try:
            roomy.append(self)
            self.is_roomy, self.seen = True, UNLIMITED
        except MemoryError:
            pass

    cdef bint give_back(self) noexcept:
        """Gives back rings that have been empty since the last call; False: call it again."""
        cdef bint idle = self.seen == self.main.tail
        self.seen = self.main.tail
        if self.main.head < self.main.tail or self.side.head < self.side.tail or self.deleted:
            self.is_roomy = False
            return True
        if not idle:
            return False
        self.is_roomy = False
        if self.main.mask >= ROOMY:
            ring_clear(&self.main)
        if self.side.mask >= ROOMY:
            ring_clear(&self.side)
        return True

    @property
    def room(self):
        """Messages for which it has an index."""
        return room_of(&self.main) + room_of(&self.side) + sum([level.room for level in self.levels or ()])

    cdef void count_unreadable(self, int64_t more) noexcept:
        self.unreadable += more
        if self.parent is not None:
            self.parent.unreadable += more

    cdef int remove_range(self, uint64_t low, uint64_t high) except -1:
        """A backup applies a dequeue: all ids in low..high go, in both rings."""
        cdef Queue level
        if self.levels is not None:
            for level in self.levels:
                level.remove_range(low, high)
            return 0
        self.remove_from(&self.main, low, high)
        if self.joining:
            self.remove_from(&self.side, low, high)
        return 0

    cdef void remove_from(self, Ring* ring, uint64_t low, uint64_t high) noexcept:
        cdef uint64_t i = ring.head if ring.head < ring.tail and ring_at(ring, ring.head).id == low \
            else ring_after(ring, low - 1)
        cdef Entry* e
        while i < ring.tail:
            e = ring_at(ring, i)
            if e.id > high:
                break
            if e.state != GONE:
                self.release(e)
            i += 1
        self.trim(ring)
        if self.next < self.main.head:
            self.next = self.main.head

    cdef int clear(self) except -1:
        """Drops all messages without logging dequeues."""
        cdef uint64_t i
        cdef Queue level
        if self.levels is not None:
            for level in self.levels:
                level.clear()
        for i in range(self.main.head, self.main.tail):
            if ring_at(&self.main, i).state != GONE:
                self.release(ring_at(&self.main, i))
        for i in range(self.side.head, self.side.tail):
            if ring_at(&self.side, i).state != GONE:
                self.release(ring_at(&self.side, i))
        self.trim(&self.main)
        self.trim(&self.side)
        self.next = self.main.tail
        heap_clear(&self.returned)
        self.gone.count = 0
        self.joining = False
        return 0

    cdef uint64_t first_whole(self, uint64_t known) noexcept:
        """The id from which a new primary holds messages back, given that everything up to `known` is safe: the first
        message above it with FLAG_WHOLE; 1 when nothing is known, UNLIMITED when there is none."""
        cdef uint64_t i = self.main.tail, first = UNLIMITED
        cdef Queue level
        cdef Entry* e
        for level in self.levels or ():
            first = min(first, level.first_whole(known))
        if self.last_whole <= known:
            return first
        if not known:
            return 1
        while i > self.main.head:
            i -= 1
            e = ring_at(&self.main, i)
            if e.id <= known:
                break
            if e.state in (READY, UNACKED) and e.flags & ENTRY_WHOLE:
                first = min(first, e.id)
        return first

    cdef int reset(self) except -1:
        """After a change of role: every message is ready; those handed out before say redelivered."""
        cdef uint64_t i, out
        cdef Entry* e
        cdef Queue level
        if self.levels is not None:
            for level in self.levels:
                level.reset()
        if self.joining:
            self.merge()
        heap_clear(&self.returned)
        self.gone.count = self.recounted.count = 0
        self.recount_noted = False
        self.barriers = []
        self.stuck = []
        self.barrier = UNLIMITED
        self.touched = self.dirty = False
        self.run = 0
        self.next = self.main.head
        out = self.unacked
        if out or self.delivered:
            for i in range(self.main.head, self.main.tail):
                e = ring_at(&self.main, i)
                if not out and e.id > self.delivered:
                    break
                if self.counts and (e.state == UNACKED or e.id <= self.delivered) and not e.flags & ENTRY_WAITS:
                    e.deliveries += e.deliveries < 0xFFFF
                    e.flags |= ENTRY_RETURNED | ENTRY_WAITS
                if e.state == UNACKED:
                    e.state = READY
                    out -= 1
                    self.count(1, -1, 0, e.body)
                if e.id <= self.delivered:
                    e.flags |= ENTRY_REDELIVERED
        self.delivered_logged = self.delivered
        return 0

    cdef int push_side(self, Segment segment, uint32_t offset, uint32_t size, uint64_t id, uint8_t flags) except -1:
        """A message of the difference arrives at a joining backup."""
        cdef Ring live
        if self.side.tail > self.side.head and ring_at(&self.side, self.side.tail - 1).id >= id:
            raise LinkError(f"queue {self.number}: message {id} of the difference is not in order")
        if ring_find(&self.main, id) >= 0:
            raise LinkError(f"queue {self.number}: message {id} of the difference is here already")
        self.joining = True
        if ring_full(&self.side):
            ring_double(&self.side)
        live = self.main                    # push works on main: swap the rings for this call
        self.main = self.side
        try:
            self.push(segment, offset, size, id, flags)
        finally:
            self.side = self.main
            self.main = live
        return 0

    cdef int merge(self) except -1:
        """The difference is complete: one ring again."""
        cdef Queue level
        if self.levels is not None:
            for level in self.levels:
                level.merge()
            return 0
        # A message that is gone here comes again if its removal is: its place must not be in the way.
        if self.main.tail - self.main.head + self.side.tail - self.side.head > self.ready + self.unacked:
            ring_pack(&self.main)
            ring_pack(&self.side)
        if self.side.head < self.side.tail:
            ring_merge(&self.main, &self.side)
        self.next = self.main.head
        self.gone_index = NOWHERE
        self.joining = False
        return 0

    cdef Ranges ids(self, uint64_t low, uint64_t high) except *:
        """The ids held in low..high, as ranges of consecutive numbers; the caller frees `items`."""
        cdef Ranges r = Ranges(NULL, 0, 0)
        cdef uint64_t i
        cdef Entry* e
        if self.levels is not None:
            return self.ids_of_levels(low, high)
        if self.joining:
            self.merge()
        for i in range(ring_after(&self.main, low - 1) if low else self.main.head, self.main.tail):
            e = ring_at(&self.main, i)
            if e.id > high:
                break
            if e.state == GONE:
                continue
            if r.count and r.items[r.count - 1].high + 1 == e.id:
                r.items[r.count - 1].high = e.id
            else:
                add_or_free(&r, e.id, e.id)
        return r

    cdef Ranges ids_of_levels(self, uint64_t first, uint64_t last) except *:
        cdef Ranges r = Ranges(NULL, 0, 0), part
        cdef Queue level
        cdef size_t k
        runs = []
        for level in self.levels:
            part = level.ids(first, last)
            for k in range(part.count):
                runs.append((part.items[k].low, part.items[k].high))
            free(part.items)
        for low, high in sorted(runs):
            if r.count and r.items[r.count - 1].high + 1 == low:
                r.items[r.count - 1].high = high
            else:
                add_or_free(&r, low, high)
        return r

    cdef uint64_t sweep(self, LogWriter writer, uint64_t start, uint64_t most) except? 0:
        """Copies what lies in sparse segments to `writer`, for `most` entries from index `start`; where to go on."""
        cdef uint64_t i = start if start > self.main.head else self.main.head
        cdef Entry* e
        cdef Segment segment
        while i < self.main.tail and most:
            e = ring_at(&self.main, i)
            if e.state != GONE and (<Segment>e.segment).sparse:
                segment = <Segment>e.segment
                e.offset = <uint32_t>writer.adopt(segment.data + e.offset, e.size)
                Py_INCREF(writer.segment)
                e.segment = <void*>writer.segment
                writer.segment.live += e.size
                writer.segment.note_id(e.id)
                writer.pool.swept += e.size
                segment.live -= e.size
                Py_DECREF(segment)
            i += 1
            most -= 1
        return i

    def held(self, uint64_t low=0, uint64_t high=NO_LIMIT):
        """The encoded set of the ids in this queue, those in low..high."""
        cdef Ranges r = self.ids(low, high)
        try:
            return ranges_encode(&r)
        finally:
            free(r.items)

    def rotten(self):
        """The encoded set of the ids whose messages cannot be read back; a walk over all, if there are any."""
        cdef Ranges r = Ranges(NULL, 0, 0)
        cdef Queue level
        cdef uint64_t i
        cdef Entry* e
        ids = []
        for level in (self.levels or (self,)) if self.unreadable else ():
            if level.joining:
                level.merge()
            for i in range(level.main.head, level.main.tail):
                e = ring_at(&level.main, i)
                if e.state != GONE and (<Segment>e.segment).rotten:
                    ids.append(e.id)
        try:
            for id in sorted(ids):
                if r.count and r.items[r.count - 1].high + 1 == id:
                    r.items[r.count - 1].high = id
                else:
                    ranges_add(&r, id, id)
            return ranges_encode(&r)
        finally:
            free(r.items)

    def peek(self, size_t limit):
        """The first `limit` messages, handed out or not, as (id, redelivered, exchange, routing key, header, body)."""
        cdef uint64_t i
        cdef Entry* e
        cdef Queue level
        found = []
        if self.levels is not None:
            for level in reversed(self.levels):
                found += level.peek(limit - len(found))
            return found
        for i in range(self.main.head, self.main.tail):
            e = ring_at(&self.main, i)
            if e.state != GONE:
                if len(found) == limit:
                    break
                found.append((e.id, bool(e.flags & ENTRY_REDELIVERED)) + content_of(e))
        return found

    def check(self):
        """Raises InvariantError unless the counters and the order are what the entries say (tests, simulator)."""
        cdef uint64_t i, ready = 0, unacked = 0, last = 0, bodies = 0, unreadable = 0
        cdef Entry* e
        cdef Queue level
        returned = {self.returned.items[self.returned.start + i] for i in range(self.returned.count)}
        for level in self.levels or ():
            level.check()
            ready += level.ready
            unacked += level.unacked
            bodies += level.ready_bytes
            unreadable += level.unreadable
        for i in range(self.main.head, self.main.tail):
            e = ring_at(&self.main, i)
            if e.id <= last:
                raise InvariantError(f"queue {self.name}: id {e.id} after {last}")
            last = e.id
            ready += e.state == READY
            bodies += e.body if e.state == READY else 0
            unacked += e.state == UNACKED
            unreadable += e.state != GONE and (<Segment>e.segment).rotten
            if (e.state == GONE) != (e.segment == NULL):
                raise InvariantError(f"queue {self.name}: message {e.id} is half gone")
            if (e.state == READY and i < self.next) != (i in returned):
                raise InvariantError(f"queue {self.name}: message {e.id} would never be handed out, or twice")
        for i in range(self.side.head, self.side.tail):
            e = ring_at(&self.side, i)
            ready += e.state == READY
            bodies += e.body if e.state == READY else 0
            unreadable += e.state != GONE and (<Segment>e.segment).rotten
        if unreadable != self.unreadable:
            raise InvariantError(f"queue {self.name}: {unreadable} messages cannot be read, counted {self.unreadable}")
        if (ready, unacked, bodies) != (self.ready, self.unacked, self.ready_bytes):
            raise InvariantError(f"queue {self.name}: counted {ready}, {unacked}, {bodies} octets; "
                                 f"kept {self.ready}, {self.unacked}, {self.ready_bytes}")

    @property
    def moves(self):
        """Of places in the order of what came back, ever: what the work is counted by."""
        return self.returned.moves
