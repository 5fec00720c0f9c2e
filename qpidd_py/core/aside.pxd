from libc.stdint cimport uint8_t, uint16_t

from qpidd_py.core.channel cimport Channel
from qpidd_py.core.connection cimport Connection
from qpidd_py.core.wire cimport Frame

cdef bint is_aside(Connection c, Channel channel, uint16_t number) except -1
cdef bint goes_on(Connection c, Channel channel, Frame* f) except -1
cdef int keep_aside(Connection c, uint16_t number, const uint8_t* p, size_t n) except -1
cdef int release_channel(Connection c, Channel channel) except -1
cdef int replay(Connection c, uint16_t number) except -1
cdef int drop_stash(Connection c, uint16_t number, size_t octets) except -1
