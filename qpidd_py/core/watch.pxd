from libc.stdint cimport uint64_t

from qpidd_py.core.connection cimport Connection
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.routes cimport Route

cdef class Watch:               # how full a queue may be before somebody is told, or waits; UNLIMITED = never
    cdef readonly uint64_t stop_count, stop_bytes, resume_count, resume_bytes, alert_count, alert_bytes
    cdef readonly bint stopped          # publishers wait
    cdef readonly bint alerting
    cdef readonly bint overflown        # a message has been refused
    cdef public bint destructs          # then the queue ends
    cdef public object on_change        # called at the end of a turn in which one of these has changed
    cdef set waiting                    # connections whose publishers wait
    cdef bint was_stopped, was_alerting, was_overflown, noted

cdef int note_depth(Engine engine, Queue queue) except -1
cdef int note_overflow(Engine engine, Queue queue) except -1
cdef int look_at_depths(Engine engine) except -1
cdef int hold_publisher(Connection c, Route route) except -1
cdef int takes_messages(Connection c) except -1
cdef int leave_queues(Connection c) except -1
