from libc.stdint cimport uint16_t, uint64_t

from qpidd_py.core.channel cimport ACK, AUTO, DISCARD, IN_TRANSACTION, REQUEUE, Channel, Consumer, Unacked
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.queue cimport Queue

cdef int settle(Channel channel, uint64_t tag, bint multiple, int action, uint16_t method) except -1
cdef int settle_one(Channel channel, uint64_t tag, int action) except -1
cdef int settle_sent(Channel channel, uint64_t sent) except -1
cdef int recover(Channel channel, bint requeue) except -1
cdef int release_all(Channel channel) except -1
cdef int go_on_releasing(Engine engine) except -1
cdef int forget_returns(Engine engine) except -1
cdef void trim(Channel channel) noexcept
