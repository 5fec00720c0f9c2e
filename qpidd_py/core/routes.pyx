# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where published messages go: asked of the owner once, kept for each (exchange, routing key) and method frame."""
from qpidd_py.core.queue cimport UNLIMITED, Queue

cdef size_t KEPT = 65536


cdef class Route:
    """Where the messages of one (exchange, routing key) go.

    Either `queues`, or `by_header(content header) -> queues` asked for each message, or `handler(owner, channel,
    exchange, routing key, content header, body)` for exchanges that the broker itself serves."""

    def __init__(self, list queues, by_header=None, handler=None):
        cdef Queue q
        self.queues = queues
        self.by_header = by_header
        self.handler = handler
        for q in queues:
            self.replicated += q.replicated
            self.limited = self.limited or q.limited()
            self.timed = self.timed or q.ttl != UNLIMITED


cdef class Publication:
    """See routes.pxd."""


cdef class Publications:
    """The publications of all connections by the octets of their methods: those asked for last, `KEPT` to twice as many.
    All are of one generation of routes; what is given up goes in pieces, since freeing all at once would take long."""

    def __cinit__(self):
        self.young = {}
        self.old = {}
        self.stale = []

    def __len__(self):
        """With what has yet to be freed."""
        return len(self.young) + len(self.old) + sum(map(len, self.stale))

    cdef Publication find(self, bytes method, uint64_t generation):
        if self.generation != generation:
            self.forget(generation)
        found = self.young.get(method)
        if found is None:
            found = self.old.get(method)
            if found is not None:
                self.keep(found)
        return found

    cdef int keep(self, Publication publication) except -1:
        if self.generation != publication.generation:
            self.forget(publication.generation)
        if len(self.young) >= KEPT:
            self.stale.append(self.old)
            self.old = self.young
            self.young = {}
        self.young[publication.method] = publication
        self.free_some()
        return 0

    cdef int forget(self, uint64_t generation) except -1:
        self.stale += [publications for publications in (self.young, self.old) if publications]
        self.young = {}
        self.old = {}
        self.generation = generation
        return 0

    cdef int free_some(self) except -1:
        """More than a call of `keep` brings."""
        cdef int left
        for left in range(2):
            if self.stale:
                publications = self.stale[len(self.stale) - 1]
                if publications:
                    publications.popitem()
                else:
                    self.stale.pop()
        return 0
