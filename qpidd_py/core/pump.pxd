from libc.stdint cimport int64_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef enum:
    DELIVERY = 64               # octets that the work of a delivery is worth

cdef int pump(Engine engine, Queue queue, bint now=*) except -1
cdef int64_t next_message(Engine engine, Queue queue, waiter) except -2
cdef int take_and_drop(Engine engine, Queue queue, Queue level, uint64_t index, str reason) except -1
cdef int put_off(Engine engine, Queue queue) except -1
cdef int take_turns(Queue queue, size_t i) except -1
cdef int enforce(Engine engine, Queue queue, bint consumed) except -1
