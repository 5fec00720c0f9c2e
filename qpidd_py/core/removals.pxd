from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ring cimport Entry
from qpidd_py.core.runs cimport IdRuns

cdef class Removals:
    cdef dict found             # (queue, reason, dead) -> IdRuns
    cdef IdRuns last            # the last ones, and whose they are
    cdef Queue queue
    cdef str reason
    cdef bint dead
    cdef size_t reads           # segments that were read back for names since the last `take`
    cdef bint note(self, Queue queue, const Entry* e, str reason, bint dead) except -1
    cdef bint note_all(self, Queue queue, str reason, bint unacked) except -1
    cdef IdRuns runs_of(self, tuple kind)
    cdef list take(self)
