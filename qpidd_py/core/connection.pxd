from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.routes cimport Publication, Route
from qpidd_py.core.wire cimport Frame

cdef class Connection           # it and Channel know each other

from qpidd_py.core.channel cimport Channel

cdef enum:                      # what a connection expects next
    EXPECT_HEADER = 0           # the eight octets of the protocol header
    EXPECT_FRAMES = 1
    STOPPED = 2                 # closing: only methods are passed on
    LINK = 3                    # frames of the replication protocol
    DEAD = 4
    WAITING = 5                 # nothing is read until `go_on`: the owner waits for something

cdef enum:
    MAX_OUTPUT = 4 << 20        # octets waiting on one connection before its consumers pause
    MAX_STASH = 1 << 20         # octets kept aside for held channels before input pauses
    AHEAD = 100                 # replies of a channel that may wait while it goes on
    METHOD_STEPS = 10           # of a method that the owner handles, see Connection.steps
    MAX_WAITING = 16 << 10      # octets that a peer may have sent ahead of the answer it waits for

cdef class Connection:
    cdef readonly Engine engine
    cdef public object owner
    cdef public uint32_t frame_max
    cdef public bytes user                  # what a message's user-id has to be; None: anything
    cdef public uint32_t host               # number of its virtual host, which stays; 0: `/`
    cdef public bint guarded                # the owner is asked whether this client may publish, see `publication`
    cdef readonly uint64_t received
    cdef readonly uint64_t sent
    cdef readonly bint publisher
    cdef bint takes                         # it has consumed, or got messages
    cdef object flows                       # queues for which it waits with publishing, or None, see watch.pyx
    cdef readonly int state
    cdef bint dirty
    cdef bint choked                        # its consumers wait for output to drain
    cdef readonly bint input_paused
    cdef readonly bint unfinished           # frames that have come wait for the next slice; nothing more is read
    cdef object leaving                     # called when no frame waits: the peer goes
    cdef bint deaf                          # what still comes is not parsed
    cdef int steps                          # left of the slice, of what Python is asked; the rest counts in Engine.slice
    cdef bint again                         # the frame was handled in part: the next slice goes on with it
    cdef dict stashes                       # channel number -> frames kept aside for it: while it is held, and until
    cdef readonly size_t stashed            # those before them are handled; octets of all
    cdef uint16_t replaying                 # number of the channel whose stash is parsed
    cdef list auto_channels                 # channels with deliveries that settle themselves
    cdef list channels
    cdef uint8_t* input
    cdef size_t input_used, input_capacity
    cdef int slow                           # how often the size of a read is halved
    cdef bint borrowed                      # `input` is the pool's
    cdef uint8_t* borrow_input(self) noexcept
    cdef uint8_t* output
    cdef size_t output_start, output_end, output_capacity
    cdef object out                         # a link's output: batches and frames, in order
    cdef size_t out_offset, out_octets
    cdef Transport transport
    cdef public int fd
    cdef public bint want_write
    cdef public bint receives_batches       # of the log, to be applied at once; else they are frames like others
    cdef uint8_t* room(self, size_t n) noexcept
    cdef void starve(self) noexcept
    cdef int drop(self) except -1
    cdef int served(self, uint64_t before) except -1
    cdef int input_data(self, const uint8_t* p, size_t n) except -1
    cdef int input_grown(self) except -1
    cdef uint8_t* input_room(self, size_t n) except NULL
    cdef int header_received(self, bytes header) except -1
    cdef size_t put_off(self, size_t at, size_t n) except? 0
    cdef int resume(self) except -1
    cpdef bint waits(self, bint answers) noexcept
    cdef int depart(self) except -1
    cdef void begin_slice(self) noexcept
    cdef void refresh(self) noexcept
    cdef int pause_input(self, bint paused) except -1
    cdef inline bint may_read(self) noexcept:
        return self.stashed < MAX_STASH and not self.engine.throttled and (self.takes or not self.flows)
    cpdef bint reads(self) noexcept
    cdef int other_frame(self, Frame* f, Channel channel) except -1
    cdef size_t parse(self, const uint8_t* p, size_t n) except? 0
    cdef size_t parse_frames(self, const uint8_t* p, size_t n) except? 0
    cdef size_t parse_link(self, const uint8_t* p, size_t n) except? 0
    cdef size_t publish_frames(self, Channel channel, const uint8_t* p, const uint8_t* method, uint32_t size,
                               const uint8_t* end) except? 0
    cdef Publication publication(self, Channel channel, const uint8_t* p, uint32_t size)
    cdef int method_frame(self, const uint8_t* p, uint16_t number, Channel channel, uint32_t size) except -1
    cdef int fail(self, int channel, int code, str text, int class_id, int method_id) except -1
    cdef void mark(self) noexcept
    cdef int drained(self) except -1
    cdef int settle_sent(self, uint64_t sent) except -1
    cdef int flush(self) except -1

cdef class Transport:
    cdef int flush(self, Connection c) except -1
    cdef int interest(self, Connection c) except -1
    cdef int forget(self, Connection c) except -1
