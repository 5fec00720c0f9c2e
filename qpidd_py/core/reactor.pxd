from libc.stdint cimport uint8_t, uint32_t, uint64_t

from qpidd_py.core.connection cimport Connection, Transport
from qpidd_py.core.engine cimport Engine


cdef class Reactor(Transport):
    cdef readonly Engine engine
    cdef int epoll
    cdef dict connections           # descriptor -> (connection, socket)
    cdef uint8_t* scratch
    cdef readonly uint64_t turns
    cdef readonly uint64_t busy     # ns that turns took
    cdef uint64_t took[32]          # how many took so many microseconds, by the number of bits of that
    cdef readonly uint64_t began    # when `wait` came to the present turn, in ns of the monotonic clock; 0: it waits
    cdef uint64_t lingers           # since when dequeues wait (`LINGER`), in ns; 0: none do
    cdef int watched                # descriptor of others
    cdef public bint leave          # `wait` ends with its turn
    cdef public bint others         # they are ready
    cdef public object on_late      # (seconds of the monotonic clock, seconds), of a turn of `wait`
    cdef public double late
    cpdef void count(self, uint64_t took) noexcept
    cdef int turn(self, void* events, int n, bint linger) except -1
    cdef bint overdue(self) noexcept
    cdef int end(self, bint linger) except -1
    cdef int serve(self, int fd, uint32_t events) except -1
    cdef int read(self, Connection c) except -1
    cdef void pace(self, Connection c, uint64_t took) noexcept
    cdef int send_rest(self, Connection c) except -1
    cdef int flush_piece(self, Connection c) except -1
    cdef int send_failed(self, Connection c) except -1
    cdef int wait_to_write(self, Connection c) except -1
    cdef int lost(self, Connection c, str reason) except -1
    cdef uint32_t mask(self, Connection c) noexcept
