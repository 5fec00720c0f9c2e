from libc.stdint cimport uint64_t

from qpidd_py.core.channel cimport Channel

cdef uint64_t commit(Channel channel) except? 0
