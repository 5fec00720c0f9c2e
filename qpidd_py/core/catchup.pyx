# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The messages of one queue that a joining backup lacks, and how often its messages came back."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcpy

from qpidd_py.core.batch cimport RECORD_HEADER, Segment
from qpidd_py.core.duplicates cimport write_seen
from qpidd_py.core.paging cimport paging_of
from qpidd_py.core.queue cimport UNLIMITED
from qpidd_py.core.ranges cimport ranges_add, ranges_decode, ranges_encode
from qpidd_py.core.returns cimport counts_size, write_counts
from qpidd_py.core.ring cimport ENTRY_RETURNED, GONE, Entry, record_of, ring_after, ring_at
from qpidd_py.core.wire cimport le16, le32, putle16, putle32

cdef size_t AHEAD = 4           # segments that are read at a time
cdef size_t STEPS = 10000       # entries that are looked at for them


cdef class Catchup:
    """A cursor over one queue of the primary, against the ids that a backup holds.

    Looks at the queue anew for each slice, so what is dequeued meanwhile is simply not sent.  Messages newer than `cut`
    are left out: they travel with the live stream.  `again` is called when what a slice has waited for is in memory.
    With `keys` the slices begin with the keys that the queue remembers, those of messages behind that one."""

    def __cinit__(self, Queue queue, bytes held, uint64_t cut, again=None, keys=None):
        self.queue = queue
        self.again = again
        self.levels = list(queue.levels or (queue,))
        self.level = self.levels.pop()
        self.cut = cut
        self.keys = keys if queue.window is not None else None
        self.key = UNLIMITED
        ranges_decode(&self.held, <const uint8_t*>PyBytes_AS_STRING(held), PyBytes_GET_SIZE(held))

    def __dealloc__(self):
        free(self.held.items)

    def drops(self):
        """The encoded ids that the backup holds and the queue does not: to be removed there."""
        cdef Ranges mine = self.queue.ids(0, UNLIMITED)
        cdef Ranges gone = Ranges(NULL, 0, 0)
        cdef size_t i, k = 0
        cdef uint64_t low
        try:
            for i in range(self.held.count):
                low = self.held.items[i].low
                while k < mine.count and mine.items[k].high < low:
                    k += 1
                while k < mine.count and mine.items[k].low <= self.held.items[i].high:
                    if mine.items[k].low > low:
                        ranges_add(&gone, low, mine.items[k].low - 1)
                    low = mine.items[k].high + 1
                    if low > self.held.items[i].high:
                        break
                    k += 1
                if low <= self.held.items[i].high:
                    ranges_add(&gone, low, self.held.items[i].high)
            return ranges_encode(&gone)
        finally:
            free(mine.items)
            free(gone.items)

    def slice(self, size_t limit):
        """Records of the next missing messages, oldest first, and of counts, also for what the backup holds; about `limit`
        octets; empty when none are left; None when the next one has to be read first: then `again` is called; or when it
        cannot be read (`rotten`): then it is called now and then."""
        if self.keys is not None:
            records = write_seen(self.queue, &self.key, self.keys, self.cut, limit)
            self.octets += len(records)
            if records:
                return records
            self.keys = None
        records = self.slice_level(limit)
        while not records and not self.waits and self.levels:
            self.level = self.levels.pop()
            self.sent = self.at = 0
            records = self.slice_level(limit)
        return None if self.waits and not records else records

    cdef bytes slice_level(self, size_t limit):
        cdef uint64_t first, i, sent = self.sent
        cdef size_t total = 0, states = 0, counts, at = self.at
        cdef Entry* e
        cdef bytes records
        cdef uint8_t* to
        self.level = self.level.leaf()      # what is high in a queue that was split is newer than the cut
        first = i = ring_after(&self.level.main, sent)
        self.waits = self.rotten = False
        while i < self.level.main.tail and total + states < limit:
            e = ring_at(&self.level.main, i)
            if e.id > self.cut:
                break
            if e.state != GONE and not self.holds(e.id):
                if (<Segment>e.segment).data == NULL:
                    self.fetch(i)
                    self.waits = (<Segment>e.segment).data == NULL
                    self.rotten = (<Segment>e.segment).rotten
                    if self.waits:
                        break
                total += size_for(e)
                self.messages += 1
            states += 24 if e.flags & ENTRY_RETURNED else 0
            sent = e.id
            i += 1
        self.sent = sent
        counts = counts_size(self.level, first, i)
        self.octets += total + counts
        records = PyBytes_FromStringAndSize(NULL, total + counts)
        to = <uint8_t*>PyBytes_AS_STRING(records)
        if counts:
            write_counts(self.level, first, i, self.cut, to + total)
        self.at = at                        # the same walk once more, now writing
        while first < i:
            e = ring_at(&self.level.main, first)
            if e.state != GONE and not self.holds(e.id):
                to += write_record_for(to, e, self.queue.number)
            first += 1
        return records

    cdef int fetch(self, uint64_t i) except -1:
        """Asks for the segments of the next missing messages."""
        cdef size_t left = AHEAD, at = self.at
        cdef uint64_t end = min(self.level.main.tail, i + STEPS)
        cdef Segment segment, last = None
        cdef Entry* e
        waiter = self.again
        while i < end and left:
            e = ring_at(&self.level.main, i)
            i += 1
            if e.id > self.cut:
                break
            segment = <Segment>e.segment if e.state != GONE else last
            if segment is not last and not self.holds(e.id):
                last = segment
                if segment.data == NULL:
                    paging_of(segment).want(segment, waiter)
                    waiter = None
                    left -= 1
        self.at = at
        return 0

    cdef bint holds(self, uint64_t id) noexcept:
        while self.at < self.held.count and self.held.items[self.at].high < id:
            self.at += 1
        return self.at < self.held.count and self.held.items[self.at].low <= id

    @property
    def left(self):
        """Messages that may still have to be sent (an upper bound)."""
        cdef Queue here = self.level.leaf()
        cdef uint64_t i = ring_after(&here.main, self.sent)
        cdef uint64_t end = ring_after(&here.main, self.cut)
        return (end - i if end > i else 0) + sum([(<Queue>level).ready for level in self.levels])


cdef inline size_t size_for(const Entry* e) except 0:
    """Octets of the record of one message as an enqueue to one queue."""
    cdef const uint8_t* p = record_of(e)
    return le32(p) - 4 * <size_t>le16(p + 6) + 4


cdef inline size_t write_record_for(uint8_t* to, const Entry* e, uint32_t number) except 0:
    cdef const uint8_t* p = record_of(e)
    cdef size_t size = size_for(e)
    memcpy(to, p, RECORD_HEADER)
    putle32(to, <uint32_t>size)
    putle16(to + 6, 1)
    putle32(to + RECORD_HEADER, number)
    memcpy(to + RECORD_HEADER + 4, p + RECORD_HEADER + 4 * <size_t>le16(p + 6), size - RECORD_HEADER - 4)
    return size
