from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

ctypedef int (*LogQueue)(Engine engine, Queue queue) except -1

cdef int log_noted(Engine engine, list queues, LogQueue log) except -1
cdef int log_dequeues(Engine engine) except -1
cdef int log_queue_dequeues(Engine engine, Queue queue) except -1
cdef int log_delivered(Engine engine) except -1
cdef int log_delivered_of(Engine engine, Queue queue) except -1
