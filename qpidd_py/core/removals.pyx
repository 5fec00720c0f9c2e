# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Removals of messages that were not consumed, for the event log.

With `Engine.on_removed` set (a primary that keeps an event log), every message that is dropped, expires, dies, is
purged or goes with its queue is noted here under its id: a comparison of octets for each, no object.  While something
is noted `on_removed()` is called in each turn, before the removals leave in a batch, so that an event log written
then has every removal before any other process can learn of it.  The callback takes them with `Engine.removed`, or
leaves them to be joined with later ones.
"""
from libc.stdint cimport uint64_t

from qpidd_py.core.ring cimport READY, UNACKED, name_entry, ring_at

cdef enum:
    RUNS_MAX = 1000             # of one queue and reason, until they are taken
    READS_MAX = 16              # segments read back for names; what lies in others has none here


cdef class Removals:
    """What left unconsumed since the last `take`."""

    def __cinit__(self):
        self.found = {}

    cdef bint note(self, Queue queue, const Entry* e, str reason, bint dead) except -1:
        """`dead`: it goes on as a dead letter.  True when it is of another kind than the last one."""
        cdef bint other = (self.last is None or self.queue is not queue or self.reason is not reason
                           or self.dead != dead)
        if other:
            self.last = self.runs_of((queue.label, reason, dead))
            self.queue, self.reason, self.dead = queue, reason, dead
        self.reads += name_entry(self.last, e, self.reads < READS_MAX)
        return other

    cdef bint note_all(self, Queue queue, str reason, bint unacked) except -1:
        """What is ready in a queue, or what is in it."""
        cdef Queue level
        cdef uint64_t i
        cdef bint other = False
        for level in queue.levels if queue.levels is not None else (queue,):
            for i in range(level.main.head, level.main.tail):
                if ring_at(&level.main, i).state == READY or (unacked and ring_at(&level.main, i).state == UNACKED):
                    other = self.note(queue, ring_at(&level.main, i), reason, False) or other
        return other

    cdef IdRuns runs_of(self, tuple kind):
        cdef IdRuns runs = <IdRuns>self.found.get(kind)
        if runs is None:
            runs = self.found[kind] = IdRuns(RUNS_MAX)
        return runs

    cdef list take(self):
        """(queue, reason, goes on as a dead letter, IdRuns) of each kind."""
        found, self.found = self.found, {}
        self.last = self.queue = None
        self.reads = 0
        return [(queue, reason, dead, runs) for (queue, reason, dead), runs in found.items()]
