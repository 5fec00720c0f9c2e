# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The sockets of the data path: one epoll descriptor.

All plain TCP connections, of clients and of replication links, are registered here; one turn serves all that are ready.
`wait` is the wait of asyncio's loop (`server/loop.py`): what that watches itself is one more descriptor here (`watch`), so a turn
costs one epoll_wait and nothing of asyncio's, and asyncio gets on when something of its own is ready, due, or called
(`leave`).  With another loop `poll` is the callback of this descriptor, and asyncio is paid once per turn.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EAGAIN, EINTR, errno
from libc.math cimport ceil
from libc.stdlib cimport free
from libc.string cimport memcpy, strerror
from posix.unistd cimport close

from qpidd_py.core.batch cimport Batch
from qpidd_py.core.connection cimport DEAD
from qpidd_py.core.memory cimport mem_new, reserve_used
from qpidd_py.core.slices cimport Slice
from qpidd_py.core.turn cimport end_turn

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* buffer, size_t n, int flags)
    ssize_t send(int fd, const void* buffer, size_t n, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout)
    int EPOLL_CLOEXEC
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL

cdef extern from *:
    int __builtin_clzll(unsigned long long value) nogil

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* now)
    int CLOCK_REALTIME, CLOCK_MONOTONIC


cdef uint64_t milliseconds() noexcept:
    """Since 1970; for the expiry of messages, so the kernel's tick (1 to 10 ms) is too coarse."""
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <uint64_t>t.tv_sec * 1000 + <uint64_t>t.tv_nsec // 1000000


cdef uint64_t monotonic() noexcept:
    """Nanoseconds."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000000 + <uint64_t>t.tv_nsec


cdef enum:
    READ_SIZE = 262144          # octets of one recv, and of one of a link whose operations take long
    SMALL_READ = 32768
    READS = 4                   # recvs of one connection in one turn: fairness
    EVENTS = 64
    ROUNDS = 8                  # turns in one call of poll, before asyncio gets its turn

cdef uint64_t SLICE = 1500000   # nanoseconds, see slices.pyx
cdef uint64_t TURN = 4000000    # nanoseconds after which a turn ends, so that what it has done leaves, though others are ready
cdef uint64_t POLL = 10000000   # nanoseconds after which `poll` ends with its turn
cdef uint64_t LINGER = 1000000  # nanoseconds for which dequeues wait for a batch that comes anyway, see turn.pyx


cdef class ClockSlice(Slice):
    """Ends `SLICE` after its first look."""

    cdef uint64_t until

    cdef void begin(self, bint endless) noexcept:
        Slice.begin(self, endless)
        self.until = 0

    cdef bint late(self) noexcept:
        cdef uint64_t now = monotonic()
        if self.until == 0:
            self.until = now + SLICE
        return now >= self.until


cdef class Reactor(Transport):
    """Owns the epoll descriptor; `fileno()` goes to loop.add_reader with `poll` as callback."""

    def __cinit__(self, Engine engine):
        self.engine = engine
        engine.slice = ClockSlice()
        self.connections = {}
        self.watched = -1
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "epoll_create1")
        self.scratch = <uint8_t*>mem_new(READ_SIZE)
        if self.scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.scratch)
        if self.epoll >= 0:
            close(self.epoll)

    def fileno(self):
        return self.epoll

    def __len__(self):
        return len(self.connections)

    def add(self, Connection connection, sock):
        """Takes over a connected, non-blocking socket; it is closed by `remove` or when the peer disconnects."""
        cdef epoll_event event
        connection.fd = sock.fileno()
        connection.transport = self
        event.events = EPOLLIN
        event.data.fd = connection.fd
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, connection.fd, &event):
            raise OSError(errno, f"epoll_ctl for descriptor {connection.fd}")
        self.connections[connection.fd] = (connection, sock)
        if connection.backlog and self.engine.schedule is not None:
            connection.write(b"")
            self.engine.schedule()

    def remove(self, Connection connection):
        """Closes the socket; what is still unsent and does not fit the socket's buffer is lost."""
        if connection.fd < 0:
            return
        self.send_rest(connection)
        self.forget(connection)
        release(connection)

    cdef int send_rest(self, Connection c) except -1:
        if c.output_end > c.output_start:
            send(c.fd, c.output + c.output_start, c.output_end - c.output_start, MSG_NOSIGNAL | MSG_DONTWAIT)
        return 0

    cdef int forget(self, Connection c) except -1:
        if c.fd < 0:
            return 0
        _, sock = self.connections.pop(c.fd)
        epoll_ctl(self.epoll, EPOLL_CTL_DEL, c.fd, NULL)
        c.fd = -1
        sock.close()
        return 0

    cdef uint32_t mask(self, Connection c) noexcept:
        return (0 if c.input_paused else EPOLLIN) | (EPOLLOUT if c.want_write else 0)

    cdef int interest(self, Connection c) except -1:
        cdef epoll_event event
        if c.fd >= 0:
            event.events = self.mask(c)
            event.data.fd = c.fd
            epoll_ctl(self.epoll, EPOLL_CTL_MOD, c.fd, &event)
        return 0

    def poll(self):
        """Serves every ready connection, then ends the turn; a bounded number of times."""
        cdef epoll_event events[EVENTS]
        cdef int n, k
        cdef uint64_t polled = monotonic()
        for k in range(ROUNDS):
            n = epoll_wait(self.epoll, events, EVENTS, 0)
            if n <= 0:
                return
            self.turn(events, n, False)
            if n < EVENTS or monotonic() - polled > POLL:
                return

    def watch(self, int fd):
        """`wait` ends when this is readable."""
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.fd = fd
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &event):
            raise OSError(errno, f"epoll_ctl for descriptor {fd}")
        self.watched = fd

    def wait(self, double seconds):
        """Serves connections for so long (< 0: for ever), or until somebody sets `leave`, or what is watched is ready
        (`others`); a single time for 0.  A signal ends it, too."""
        cdef epoll_event events[EVENTS]
        cdef uint64_t until = monotonic() + <uint64_t>(max(seconds, 0.0) * 1e9)
        cdef uint64_t now
        cdef bint lingers
        cdef int n, left = -1 if seconds < 0 else <int>min(ceil(seconds * 1e3), 1e9)
        self.leave = self.others = False
        while True:
            lingers = left != 0 and bool(self.engine.touched_queues)
            with nogil:
                n = epoll_wait(self.epoll, events, EVENTS, 1 if lingers else left)
            if n < 0 or (n == 0 and not lingers and not self.overdue()):
                return
            self.began = monotonic()
            try:
                self.turn(events, n, n > 0)
                now = monotonic()
                self.count(now - self.began)
                if self.on_late is not None and now - self.began > self.late * 1e9:
                    self.on_late(self.began / 1e9, (now - self.began) / 1e9)
            finally:
                self.began = 0
            if self.leave or self.others or left == 0:
                return
            if left > 0:
                if now >= until:
                    return
                left = <int>((until - now + 999999) // 1000000)

    cpdef void count(self, uint64_t took) noexcept:
        """A turn took so many ns; those of asyncio are told by the loop."""
        cdef uint64_t microseconds = took // 1000
        cdef int bits = 64 - __builtin_clzll(microseconds) if microseconds else 0
        self.busy += took
        self.took[min(bits, 31)] += 1

    @property
    def durations(self):
        """How many turns took less than 1, 2, 4, ... microseconds and not less than the one before; the last: the rest."""
        return [self.took[bits] for bits in range(32)]

    cdef int turn(self, void* ready, int n, bint linger) except -1:
        cdef epoll_event* events = <epoll_event*>ready
        cdef int i
        cdef uint64_t began = monotonic()
        self.turns += 1
        self.engine.now = milliseconds()
        self.engine.turn_wanted = True      # the turn ends below and need not be scheduled
        try:
            for i in range(n):
                self.serve(events[i].data.fd, events[i].events)
                if i + 1 < n and monotonic() - began > TURN:
                    self.end(False)
                    self.engine.turn_wanted = True
                    began = monotonic()
        finally:
            self.end(linger and not self.overdue())
        return 0

    cdef bint overdue(self) noexcept:
        return self.lingers and monotonic() - self.lingers >= LINGER

    cdef int end(self, bint linger) except -1:
        end_turn(self.engine, linger)
        if not self.engine.touched_queues:
            self.lingers = 0
        elif not self.lingers:
            self.lingers = monotonic()
        return 0

    cdef int serve(self, int fd, uint32_t events) except -1:
        cdef Connection c
        cdef uint64_t before = reserve_used()
        found = self.connections.get(fd)
        if found is None:
            self.others = self.others or fd == self.watched
            return 0                    # closed by an earlier event of this round
        c = <Connection>found[0]
        try:
            if events & EPOLLOUT:
                c.want_write = False
                self.interest(c)
                self.flush(c)
            if c.fd >= 0 and not c.unfinished and events & (EPOLLIN | EPOLLERR | EPOLLHUP):
                self.read(c)
        except MemoryError:
            c.starve()
        return c.served(before)

    cdef int read(self, Connection c) except -1:
        cdef ssize_t got
        cdef size_t size
        cdef uint64_t began = monotonic(), ended
        cdef int k
        c.begin_slice()
        for k in range(READS):
            size = READ_SIZE >> c.slow
            if c.input_used:
                c.input_room(READ_SIZE)
                with nogil:
                    got = recv(c.fd, c.input + c.input_used, size, MSG_DONTWAIT)
            else:
                with nogil:
                    got = recv(c.fd, self.scratch, size, MSG_DONTWAIT)
            if got <= 0:
                if got < 0 and (errno == EAGAIN or errno == EINTR):
                    return 0
                return self.lost(c, "closed by peer" if got == 0 else strerror(errno).decode())
            if c.input_used:
                c.received += got
                c.input_used += got
                c.input_grown()
            else:
                c.input_data(self.scratch, got)
            ended = monotonic()
            self.pace(c, ended - began)
            if <size_t>got < size or c.fd < 0 or not c.reads() or ended - began > SLICE:
                return 0
            began = ended
        return 0

    cdef void pace(self, Connection c, uint64_t took) noexcept:
        """What a link has sent is applied as it comes, without slices; one operation of the configuration may take as long
        as a hundred messages.  So less is read at a time when that takes long."""
        if took > TURN and READ_SIZE >> c.slow > SMALL_READ:
            c.slow += 1
        elif took < SLICE and c.slow:
            c.slow -= 1

    cdef int lost(self, Connection c, str reason) except -1:
        self.forget(c)
        c.owner.closed(reason)
        release(c)
        return 0

    cdef int flush(self, Connection c) except -1:
        cdef ssize_t went
        if c.fd < 0 or c.want_write:
            return 0
        if c.output_end > c.output_start:
            with nogil:
                went = send(c.fd, c.output + c.output_start, c.output_end - c.output_start,
                            MSG_NOSIGNAL | MSG_DONTWAIT)
            if went < 0:
                return self.send_failed(c)
            c.output_start += went
            c.sent += went
            if c.auto_channels:
                c.settle_sent(c.sent)
            if c.output_start < c.output_end:
                return self.wait_to_write(c)
        while c.out:
            if not self.flush_piece(c):
                return 0
        return c.drained()

    cdef int flush_piece(self, Connection c) except -1:
        """Sends from the front of a link's output; False when the socket is full or gone."""
        cdef ssize_t went
        cdef const uint8_t* p
        cdef size_t n
        piece = c.out[0]
        if isinstance(piece, Batch):
            p = (<Batch>piece).data()
            n = (<Batch>piece).length
        else:
            p = <const uint8_t*>PyBytes_AS_STRING(piece)
            n = len(piece)
        with nogil:
            went = send(c.fd, p + c.out_offset, n - c.out_offset, MSG_NOSIGNAL | MSG_DONTWAIT)
        if went < 0:
            self.send_failed(c)
            return False
        c.sent += went
        c.out_octets -= went
        c.out_offset += went
        if c.out_offset < n:
            self.wait_to_write(c)
            return False
        c.out.popleft()
        c.out_offset = 0
        return True

    cdef int send_failed(self, Connection c) except -1:
        """A full socket waits for EPOLLOUT; a broken one shows itself to the next read, which reports it."""
        if errno == EAGAIN or errno == EINTR:
            return self.wait_to_write(c)
        c.output_start = c.output_end = 0
        if c.out:
            c.out.clear()
            c.out_octets = c.out_offset = 0
        return 0

    cdef int wait_to_write(self, Connection c) except -1:
        c.want_write = True
        self.interest(c)
        return c.drained()


cdef void release(Connection c) noexcept:
    """It and its owner know each other: so it is freed at once, and not when the collector comes, which may be late."""
    if c.state == DEAD:
        c.owner = None
