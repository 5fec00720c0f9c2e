from libc.stdint cimport uint64_t

from qpidd_py.core.batch cimport Page, Pool, Segment
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef class Paging:
    cdef object __weakref__
    cdef Engine engine
    cdef Pool pool
    cdef dict loading                       # address of a segment that is wanted -> its Page, which refers to it
    cdef readonly object read               # read(place, buffer): what the page file has there
    cdef object wanted                      # pages that are not being read yet, oldest first
    cdef public object on_wanted            # called when there are any
    cdef list stuck                         # what waits for a segment that cannot be read, see `look_again`
    cdef public size_t ahead                # segments that are read ahead of a queue's consumers
    cdef readonly uint64_t waits            # times that a queue had to wait for its next message
    cdef int want(self, Segment segment, waiter) except -1
    cdef int wait_on(self, waiter) except -1
    cdef Page page_of(self, Segment segment)
    cdef int end(self, Page page) except -1
    cdef int read_ahead(self, Queue level, uint64_t index) except -1

cdef int forget_waiters(Engine engine) except -1
cdef Paging paging_of(Segment segment)
cdef bint at_hand(Queue level, uint64_t index, waiter) except -1
