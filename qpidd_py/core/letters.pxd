from libc.stdint cimport uint8_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.routes cimport Route

cdef enum:
    LETTERS = 64                # sent in one turn
    MAX_LETTERS = 20000         # waiting, before what has expired waits in its queue instead

cdef size_t send_letters(Engine engine, size_t most) except? 0
cdef int send_letters_of(Engine engine, Queue queue) except -1
cdef bint waits_for_any(Engine engine, Queue queue, waiter) except -1
cdef bint is_stuck(Queue queue, waiter) except -1
cdef uint64_t give_up_stuck(Engine engine, Queue queue, str reason) except? 0
cdef uint64_t put(Engine engine, Route route, bytes exchange, bytes routing_key, bytes header, bytes body) except? 0
cdef int transfer(Engine engine, Queue level, uint64_t index, Route route, bytes exchange, bytes routing_key, bytes header,
                  bytes body, Queue moved_from=*) except -1
cdef bint at_once(Queue level, uint64_t index) except -1
cdef uint64_t expiry_of(Queue level, uint64_t index) except? 0
cdef bint refuses(Engine engine, Queue queue, uint64_t count, size_t octets) except -1
cdef Route admitting(Engine engine, Route route, const uint8_t* exrk, const uint8_t* header, size_t header_size,
                     const uint8_t* body, size_t body_size)
cdef uint64_t move_messages(Engine engine, Queue queue, uint64_t limit, route, bint careful, bint soon, waiter) except? 0
