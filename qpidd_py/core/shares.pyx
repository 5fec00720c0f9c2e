# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fair shares of a queue with priorities (`qpid.fairshare`): higher levels do not keep lower ones waiting for ever.

Theory.  Messages are handed out in rounds.  In each a level gives at most its share, the highest first; a level without a
limit gives one when a higher one has given its share, and all that it has otherwise.  A round ends when no level may give
more.  What a level has given is what is handed out or has left, so nothing is counted for it, and looking at the head
changes nothing but the round.  After a change of role the first round begins.
"""
from libc.stdint cimport int64_t

from qpidd_py.errors import InvariantError


cdef class Shares:
    """Of a queue with as many levels."""

    def __cinit__(self, list limits):
        self.limits = limits
        self.before = [0] * len(limits)


def share_out(Queue queue, list limits):
    """Gives each level its limit."""
    if queue.levels is None or len(limits) != len(queue.levels):
        raise InvariantError(f"queue {queue.name}: {len(limits)} shares")
    queue.shares = Shares(limits)


cdef Queue fair_head(Queue queue):
    """The level to hand out from; the queue has messages."""
    cdef Queue level = within_shares(queue)
    if level is None:
        (<Shares>queue.shares).before = [given(level) for level in queue.levels]
        level = within_shares(queue)
    return queue if level is None else level


cdef Queue within_shares(Queue queue):
    cdef Shares shares = <Shares>queue.shares
    cdef Py_ssize_t i
    cdef int64_t limit
    cdef bint passed = False
    cdef Queue level
    for i in range(len(queue.levels) - 1, -1, -1):
        level = <Queue>queue.levels[i]
        if not level.ready:
            continue
        limit = shares.limits[i]
        if passed and not limit:
            limit = 1
        if not limit or given(level) - <int64_t>shares.before[i] < limit:
            return level
        passed = True
    return None


cdef int64_t given(Queue level) noexcept:
    """Messages that were handed out and have not come back, or have left otherwise."""
    return <int64_t>(level.unacked + level.dequeued)
