# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where published messages go: asked of the owner once, kept for each (exchange, routing key) and method frame."""
from qpidd_py.core.queue cimport UNLIMITED, Queue


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
