# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Queues whose messages leave memory as soon as they can, though there is room (RabbitMQ's lazy queues).

A segment has messages of many queues.  One of which half, or more, belongs to lazy queues leaves when its writer has left it and
no batch in it may still be read (see `paging`, which has the way back); the others stay.  Each message is looked at
once, by its queue and segment: what was read back for a consumer stays as that of any other queue, until memory is scarce.
How much of a segment is lazy is an estimate, from the number of entries and the size of two of them.
"""
from libc.stdint cimport uint64_t

from qpidd_py.core.batch cimport Segment
from qpidd_py.core.paging cimport Paging
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ring cimport GONE, Entry, ring_after, ring_at

cdef size_t LOOKS = 256         # queues of a step, and segments of each of them


cdef class Lazy:
    """Of one `Paging`."""
    cdef Paging paging
    cdef dict found             # Segment -> (octets of lazy queues in it, the step after which nothing comes to it)
    cdef uint64_t step
    cdef size_t turn            # the queue to begin with

    def __cinit__(self, Paging paging):
        self.paging = paging
        self.found = {}

    def leave(self, dict queues, size_t octets):
        """One step.  `queues` -> the id up to which it was looked at, which grows; the answer is what has to be written, of
        about so many octets."""
        cdef list known = list(queues)
        cdef size_t number, count = len(known)
        self.step += 1
        for number in range(min(count, LOOKS)):
            queue = known[(self.turn + number) % count]
            queues[queue] = self.look(queue, queues[queue], 1 + count // LOOKS)
        self.turn = (self.turn + LOOKS) % count if count else 0
        return self.choose(octets)

    cdef uint64_t look(self, Queue queue, uint64_t seen, uint64_t rounds) except? 0:
        """Notes the segments behind the id `seen`; the id up to which they are noted."""
        cdef uint64_t i = ring_after(&queue.main, seen), end
        cdef size_t looks = LOOKS
        cdef Segment segment
        cdef Entry* e
        while i < queue.main.tail and looks:
            e = ring_at(&queue.main, i)
            if e.state == GONE:
                i += 1
                continue
            segment = <Segment>e.segment
            if segment is self.paging.engine.log.segment or segment is self.paging.engine.local.segment:
                break
            looks -= 1
            end = max(ring_after(&queue.main, segment.high), i + 1)
            size = (end - i) * ((e.size + ring_at(&queue.main, end - 1).size) // 2)
            self.found[segment] = self.found.get(segment, (0,))[0] + size, self.step + rounds
            seen, i = ring_at(&queue.main, end - 1).id, end
        return seen

    cdef list choose(self, size_t octets):
        """Half of it is enough; what is not chosen is forgotten when all have been asked."""
        cdef Segment segment
        cdef size_t taken = 0
        cdef list pages = []
        for segment, (size, last) in list(self.found.items()):
            if not segment.live or segment.data == NULL or segment.leaving or segment.rotten:
                del self.found[segment]
            elif segment.pins or segment.sparse or taken >= octets:
                continue
            elif 2 * size >= segment.live:
                if segment.place is not None:
                    segment.evict()
                else:
                    pages.append(self.paging.page_of(segment))
                taken += segment.capacity
                del self.found[segment]
            elif self.step > last:
                del self.found[segment]
        return pages
