# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Segments that leave memory for a page file, and come back.

    in memory ──leave──▶ leaving ──left──▶ in the file ──wanted──▶ being read ──arrived──▶ in memory, and in the file
        ▲                  │ stay             ▲ ▲                                               │ leave (nothing is written)
        └──────────────────┘                  │ └──────────────────────────────┬────────────────┘
                                              │                                └─spoilt──▶ rotten, until it is dead
                                              └──load (something needs a record now)──▶ in memory, and in the file

Theory.  Queue entries stay in memory, with all that takes, settles, counts and removes a message; only who reads a
record needs its segment.  No turn waits for a disk: who needs a record asks `at_hand` first (or `soon`, from Python), which asks
another thread for what is missing and for the segments behind it, and does without it until it has arrived (`want`).
`record_of` is the one way to a record.  What nobody has asked for it reads back at once (names of removals for the event log, the messages of a
queue with an alternate exchange that a client deletes, the start of a broker), so a place that was forgotten here would be slow, not wrong; `at_once` counts them.

Who leaves.  A segment that a writer has left, that no batch refers to which a link or the journal may still read, and
that is not about to be swept.  The youngest go first, because queues need the oldest next; some very young ones stay,
because most messages are consumed soon.  What was read back for a consumer counts as the oldest.  What is in the file
already leaves without being written again, since segments never change.

Invariants: memory is given back only between turns (`leave`, `left`), so that a pointer to a record is valid until the
turn ends; a place in the file is vacant when its segment is dead, and not before: a page that is read or written
refers to its segment; octets that come back have the checksum of those that were written, or nobody gets them.

Rot.  A segment that does not come back as it was written, or not at all, is rotten: this broker's copy of its messages is
lost, and that they wait is not.  They keep their places.  Who waits for one waits on: a queue hands nothing out beyond
it, a `basic.get` has no answer, the difference for a backup, a carry of the journal and a copy of a queue end before it
(`look_again` shows them what has left since).  A dead letter stays in its queue as if it were handed out, and the other letters
go on.  A queue that has to send one on before it is deleted stays (`Engine.drain`, `settle`).  `soon` raises RotError, so
that a request says why it has no answer.  Nobody asks for the segment again.  Purge and limits need no record, so they
remove such a message as any other.  What is read at once and must be there raises PageError, which ends the process: no
path is known on which it still can.

No I/O here: `leave` and `next_read` answer pages, buffers for the thread of the owner, which reports `left`, `stay`
or `arrived`.
"""
import weakref
from collections import deque

from libc.stdint cimport int64_t, uint64_t

from qpidd_py.core.expiry cimport look_at
from qpidd_py.core.queue cimport UNLIMITED
from qpidd_py.core.ring cimport GONE, Entry, Ring, ring_after, ring_at

from qpidd_py.errors import RotError

cdef size_t STEPS = 1024        # of one walk: over segments that may leave, over entries ahead of a consumer
cdef size_t STRIDES = 4         # entries that are looked at in each segment that is read ahead


cdef class Paging:
    """Of one engine, from its construction on.  `read(place, buffer)` fills `buffer` from the page file."""

    def __cinit__(self, Engine engine, read):
        self.engine = engine
        self.pool = engine.pool
        self.read = read
        self.pool.paging = weakref.ref(self)
        self.loading = {}
        self.wanted = deque()
        self.stuck = []
        self.ahead = 4
        engine.paging = self

    # ---------------------------------------------------------------- out

    def leave(self, size_t octets, size_t young):
        """Frees about so many octets: what the file has already goes at once, the answer is what has to be written.  The
        `young` youngest segments stay."""
        cdef Segment segment, older = below(self.pool.youngest)
        cdef size_t found = 0, steps = STEPS
        pages = []
        while older is not None and found < octets and steps:
            segment, older = older, below(older.older)
            steps -= 1
            if (segment is self.engine.log.segment or segment is self.engine.local.segment or segment.pins
                    or segment.leaving or segment.sparse or not segment.live):
                continue
            if segment.place is not None:
                segment.evict()
            elif young:
                young -= 1
                continue
            else:
                pages.append(self.page_of(segment))
            found += segment.capacity
        return pages

    cdef Page page_of(self, Segment segment):
        cdef Page page = Page.__new__(Page)
        page.segment = segment
        page.octets = segment.used
        segment.leaving = True
        self.pool.leaving += segment.capacity
        return page

    def left(self, Page page):
        """It is in the file, at `page.place`."""
        cdef Segment segment = page.segment
        self.stay(page)
        segment.place, segment.crc = page.place, page.crc
        self.pool.written += segment.used
        segment.evict()

    def stay(self, Page page):
        """It could not be written."""
        page.segment.leaving = False
        self.pool.leaving -= page.segment.capacity

    def vacated(self):
        """Places in the file that are not needed any more, since the last call."""
        places, self.pool.vacant = self.pool.vacant, []
        return places

    # ---------------------------------------------------------------- back

    cdef int want(self, Segment segment, waiter) except -1:
        """Asks for it.  When it is there a Queue is pumped, and looked at if its messages expire; the Engine goes on
        with its letters; anything else is called; None: nobody waits."""
        cdef Page page
        if segment.rotten:
            self.wait_on(waiter)
            return 0
        page = self.loading.get(<size_t><void*>segment)
        if page is None:
            page = Page.__new__(Page)
            page.segment = segment
            page.waiters = []
            self.loading[<size_t><void*>segment] = page
            self.wanted.append(page)
            if self.on_wanted is not None:
                self.on_wanted()
        if waiter is not None:
            page.waiters.append(waiter)
        return 0

    def next_read(self):
        """The page to read next, with memory for it; None if there is none.  Raises MemoryError."""
        cdef Page page
        while self.wanted:
            page = self.wanted[0]
            if page.segment.live and page.segment.data == NULL and not page.segment.rotten:
                page.begin_read()
                return self.wanted.popleft()
            self.wanted.popleft()
            self.end(page)
        return None

    def arrived(self, Page page):
        """It was read.  Raises PageError."""
        page.segment.adopt(page, True)
        self.end(page)

    def spoilt(self, Page page):
        """It could not be read, or is not what was written.  Who is called for it is called by `look_again`."""
        page.segment.spoil()
        del self.loading[<size_t><void*>page.segment]
        for waiter in page.waiters:
            if waiter is self.engine:
                self.engine.letters_wait = False
                self.engine.want_turn()
            else:
                self.wait_on(waiter)

    def count(self, Segment segment):
        """It is rotten: each queue knows how many of its messages are in it."""
        cdef Queue queue, level
        for queue in self.engine.queues.values():
            for level in queue.levels if queue.levels is not None else (queue,):
                count_in(level, &level.main, segment)
                count_in(level, &level.side, segment)
            if queue.unreadable:
                self.engine.rotting[queue] = None

    cdef int wait_on(self, waiter) except -1:
        """For what does not come.  A queue is pumped when it changes."""
        if waiter is not None and waiter is not self.engine and not isinstance(waiter, Queue):
            self.stuck.append(waiter)
        return 0

    def look_again(self):
        """Calls what waits for a segment that cannot be read: its messages may have left, or who waits has."""
        stuck, self.stuck = self.stuck, []
        for waiter in stuck:
            waiter()

    cdef int end(self, Page page) except -1:
        del self.loading[<size_t><void*>page.segment]
        for waiter in page.waiters:
            if waiter is self.engine:
                self.engine.letters_wait = False
                self.engine.want_turn()
            elif isinstance(waiter, Queue):
                self.engine.mark_queue(<Queue>waiter)
                if (<Queue>waiter).timed:
                    look_at(self.engine, <Queue>waiter, self.engine.now)
            else:
                waiter()
        return 0

    cdef int read_ahead(self, Queue level, uint64_t index) except -1:
        """Asks for the segments in which the next messages lie."""
        cdef size_t left = self.ahead, steps = STEPS
        cdef Segment segment, last = None
        cdef Entry* e
        while index < level.main.tail and steps:
            steps -= 1
            e = ring_at(&level.main, index)
            if e.state == GONE:
                index += 1
                continue
            segment = <Segment>e.segment
            if segment is not last:
                if last is not None:
                    if not left:
                        break
                    left -= 1
                    if segment.data == NULL:
                        self.want(segment, None)
                last = segment
            index += 1 + segment.used // (e.size * STRIDES)
        return 0


cdef void count_in(Queue level, Ring* ring, Segment segment) noexcept:
    """They stand together, unless a sweep has collected them."""
    cdef uint64_t i = ring_after(ring, segment.low - 1)
    cdef Entry* e
    while i < ring.tail and ring_at(ring, i).id <= segment.high:
        e = ring_at(ring, i)
        if e.state != GONE and e.segment == <void*>segment:
            level.count_unreadable(1)
        i += 1


cdef inline Segment below(void* segment):
    """A counted reference: a new page may make the collector free batches, and these their segments."""
    return None if segment == NULL else <Segment>segment


cdef int forget_waiters(Engine engine) except -1:
    """This broker is no longer primary: a page that comes makes it decide nothing.  Only what is called goes on."""
    cdef Paging paging = engine.paging
    cdef Page page
    engine.letters_wait = False
    if paging is not None:
        for page in paging.loading.values():
            page.waiters = [each for each in page.waiters if each is not engine and not isinstance(each, Queue)]
    return 0


cdef Paging paging_of(Segment segment):
    return None if segment.pool.paging is None else segment.pool.paging()


cdef bint at_hand(Queue level, uint64_t index, waiter) except -1:
    """False when the record is not in memory: `waiter` goes on when it has arrived (see `Paging.want`)."""
    cdef Segment segment = <Segment>ring_at(&level.main, index).segment
    cdef Paging paging
    if not segment.pool.paged or (segment.data != NULL and level.reads_in == <void*>segment):
        return True
    paging = paging_of(segment)
    if segment.data == NULL:
        paging.waits += 1
        paging.want(segment, waiter)
    if level.reads_in != <void*>segment:
        level.reads_in = <void*>segment
        paging.read_ahead(level, index)
    return segment.data != NULL


def soon(Queue queue, uint64_t after, call, uint64_t last=UNLIMITED):
    """False when the next message behind the id `after`, up to `last`, is not in memory: it is read, and `call` is called
    then, which has to take it at once: at the limit of the memory it has left again after that.  With levels that of
    each.  Raises RotError when it cannot be read."""
    cdef Queue level
    cdef uint64_t index
    for level in queue.levels if queue.levels is not None else (queue,):
        index = ring_after(&level.main, after)
        while index < level.main.tail and ring_at(&level.main, index).state == GONE:
            index += 1
        if index < level.main.tail and ring_at(&level.main, index).id <= last and not readable(level, index, call):
            return False
    return True


def ready_soon(Queue queue, call):
    """As `soon`, for the message that is handed out or moved next."""
    cdef Queue level = queue.head()
    cdef int64_t index = level.first_ready()
    return index < 0 or bool(readable(level, index, call))


cdef bint readable(Queue level, uint64_t index, call) except -1:
    if (<Segment>ring_at(&level.main, index).segment).rotten:
        raise RotError(f"a message of queue {level.name} cannot be read back from the page file")
    return at_hand(level, index, call)
