# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Connections: octets in, frames to the channels or to the owner, octets out."""
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove

from qpidd_py.core.aside cimport drop_stash, goes_on, is_aside, keep_aside, replay
from qpidd_py.core.batch cimport KIND_BATCH, LINK_HEADER, LINK_MAGIC, Batch, check_link_frame
from qpidd_py.core.channel cimport ACK, DISCARD, REQUEUE
from qpidd_py.core.memory cimport mem_resized, reserve_used
from qpidd_py.core.properties cimport bad_header
from qpidd_py.core.settlements cimport release_all, settle, settle_sent
from qpidd_py.core.slices cimport Slice
from qpidd_py.core.watch cimport leave_queues
from qpidd_py.core.wire cimport (
    BASIC_ACK, BASIC_NACK, BASIC_PUBLISH, BASIC_REJECT, FRAME_BAD_TYPE, FRAME_BODY, FRAME_END, FRAME_HEADER,
    FRAME_HEARTBEAT, FRAME_INCOMPLETE, FRAME_METHOD, FRAME_OVERHEAD, be16, be32, be64, frame_at, le32, le64)

from qpidd_py.core.batch import link_frame
from qpidd_py.core.wire import frame_fault
from qpidd_py.errors import AmqpError, ConnectionException, LinkError

cdef enum:
    MAX_LINK_FRAME = 1 << 30
    SMALL_INPUT = 32 << 10      # octets of a frame in parts that a connection has a buffer of its own for
    LARGE_INPUT = 1 << 20       # of a buffer that it does not keep
    STEPS = 250                 # of a slice: one is what Python takes to find a route, about 5 microseconds
    ALL_STEPS = 1 << 30


cdef class Transport:
    """How output leaves and input is paused; the reactor has the one for sockets."""

    cdef int flush(self, Connection c) except -1:
        return 0

    cdef int interest(self, Connection c) except -1:
        return 0

    cdef int forget(self, Connection c) except -1:
        return 0


cdef class Connection:
    """One peer.  `owner` is the client's connection (or link) that handles everything outside the data path.

    Only the reactor's thread may call.  A callback may write, open and close channels and stop the connection; it must
    not feed it."""

    def __cinit__(self, Engine engine, owner, bint client=False):
        self.engine = engine
        self.owner = owner
        self.frame_max = 131072
        self.state = EXPECT_FRAMES if client else EXPECT_HEADER
        self.channels = [None]
        self.stashes = {}
        self.auto_channels = []
        self.fd = -1

    def __dealloc__(self):
        free(self.input)
        free(self.output)

    @property
    def backlog(self):
        """Octets written but not yet taken by the peer."""
        return self.output_end - self.output_start + self.out_octets

    # ---------------------------------------------------------------- channels

    def open_channel(self, uint16_t number):
        while len(self.channels) <= number:
            self.channels.append(None)
        cdef Channel channel = Channel.__new__(Channel, self, number)
        self.channels[number] = channel
        return channel

    def channel(self, uint16_t number):
        return self.channels[number] if number < len(self.channels) else None

    def close_channel(self, uint16_t number):
        """Requeues what is unsettled and ends the subscriptions; the queues that lost one."""
        cdef Channel channel = self.channel(number)
        if channel is None:
            return []
        self.channels[number] = None
        queues = [channel.cancel(tag) for tag in list(channel.consumers)]
        channel.closing = True
        self.engine.forget_channel(channel)
        if number != self.replaying:
            drop_stash(self, number, self.stashed)
        release_all(channel)
        return queues

    def close(self):
        """All channels end, nothing more is parsed; the queues that lost a consumer."""
        queues = []
        for number in range(1, len(self.channels)):
            queues += self.close_channel(number)
        self.state = DEAD
        self.leaving = None
        self.engine.publishers.discard(self)
        leave_queues(self)
        return queues

    def stop(self):
        """The closing handshake has begun: from here on only methods are passed on."""
        if self.state == WAITING:
            self.pause_input(False)
        if self.state in (EXPECT_FRAMES, EXPECT_HEADER, WAITING):
            self.state = STOPPED

    def wait(self):
        """Nothing more is read or parsed until `go_on`."""
        if self.state == EXPECT_FRAMES:
            self.state = WAITING
            self.pause_input(True)

    def go_on(self):
        """After `wait`: what came meanwhile is parsed now.  Not from within a callback of this connection."""
        if self.state == WAITING:
            self.state = EXPECT_FRAMES
            self.pause_input(False)
            if self.input_used:
                self.begin_slice()
                self.input_grown()

    cpdef bint waits(self, bint answers) noexcept:
        """Whether frames that have come wait for a held answer or for the next slice; with `answers`, whether any
        answer is held, or frames behind one wait."""
        cdef Channel channel
        if self.state != EXPECT_FRAMES:
            return False
        for channel in self.channels if answers else ():
            if channel is not None and channel.held:
                return True
        return self.stashed or (self.unfinished and not answers)

    def repeat(self):
        """From a method's handler: it has done a slice of it, and gets the same frame again in the next one."""
        self.again = True

    def leave(self, call, bint deaf):
        """The peer goes: nothing is delivered to it any more.  `call()` as soon as none of its frames wait; if it is to
        be `deaf`, nothing more is parsed, and what is held is answered first."""
        self.leaving = call
        self.deaf = deaf

    cdef int depart(self) except -1:
        if self.leaving is not None and not self.waits(self.deaf):
            call, self.leaving = self.leaving, None
            call()
        return 0

    # ---------------------------------------------------------------- output

    cdef uint8_t* room(self, size_t n) noexcept:
        """Makes room for `n` octets of output; the caller advances output_end.  NULL when there is no memory for them:
        the connection will be closed."""
        cdef uint8_t* grown
        cdef size_t capacity
        if not self.dirty:
            self.mark()
        if self.output_end + n > self.output_capacity:
            if self.output_start:
                memmove(self.output, self.output + self.output_start, self.output_end - self.output_start)
                self.output_end -= self.output_start
                self.output_start = 0
            if self.output_end + n > self.output_capacity:
                capacity = self.output_capacity * 2 if self.output_capacity else 4096
                while capacity < self.output_end + n:
                    capacity *= 2
                grown = <uint8_t*>mem_resized(self.output, capacity)
                if grown == NULL:
                    self.starve()
                    return NULL
                self.output = grown
                self.output_capacity = capacity
        return self.output + self.output_end

    cdef void mark(self) noexcept:
        self.dirty = True
        (self.engine.dirty_links if self.state == LINK else self.engine.dirty_connections).append(self)
        self.engine.want_turn()

    def write(self, bytes data):
        """Frames that are already encoded."""
        cdef size_t n = PyBytes_GET_SIZE(data)
        cdef uint8_t* p
        if self.state == DEAD:
            return
        p = self.room(n)
        if p != NULL:
            memcpy(p, PyBytes_AS_STRING(data), n)
            self.output_end += n

    cdef void starve(self) noexcept:
        """There is no memory for what this connection asks: it will be closed (`Engine.shed`)."""
        if self.state != STOPPED and self.state != DEAD:
            self.state = DEAD if self.state == LINK else STOPPED
            self.engine.starved.append(self)
            self.engine.want_turn()

    cdef int drop(self) except -1:
        """Ends it at once, without a word to the peer."""
        if self.transport is not None:
            self.transport.forget(self)
        self.owner.closed("no memory")
        return 0

    def take_output(self, bint leaves=True, size_t most=0):
        """Takes the waiting output; for connections without a socket of ours.  Unless it `leaves` our process with this
        call, the caller reports with `left` how much of it has.  With `most`, no further frame of a link is taken once
        there are that many octets: what is left counts in `backlog`."""
        cdef bytes data = PyBytes_FromStringAndSize(<char*>self.output + self.output_start,
                                                    self.output_end - self.output_start)
        cdef size_t taken = len(data)
        self.output_start = self.output_end = 0
        if self.out:
            pieces = [data]
            while self.out and (not most or taken < most):
                piece = bytes(self.out.popleft())
                pieces.append(piece)
                taken += len(piece)
                self.out_octets -= len(piece)
            data = b"".join(pieces)
        self.sent += taken
        self.drained()
        if leaves:
            self.left(0)
        return data

    def left(self, size_t waiting):
        """All octets that were taken have left our process, except the last `waiting` ones."""
        if self.auto_channels:
            try:
                self.settle_sent(self.sent - waiting)
            except MemoryError:
                self.starve()

    cdef int settle_sent(self, uint64_t sent) except -1:
        """Deliveries without acknowledgement are settled when their octets have left the socket."""
        cdef Channel channel
        channels = self.auto_channels
        self.auto_channels = []
        for channel in channels:
            settle_sent(channel, sent)
            if channel.auto_count:
                self.auto_channels.append(channel)
        return 0

    cdef int drained(self) except -1:
        """Output went out: consumers that waited for it may go on; a big buffer is given back."""
        cdef Channel channel
        if self.output_start == self.output_end:
            self.output_start = self.output_end = 0
            if self.output_capacity > (1 << 18):
                free(self.output)
                self.output = NULL
                self.output_capacity = 0
        if self.choked and self.output_end - self.output_start < MAX_OUTPUT // 2:
            self.choked = False
            for channel in self.channels:
                if channel is not None:
                    channel.mark_consumers()
        return 0

    cdef int flush(self) except -1:
        self.dirty = False
        if self.transport is not None:
            self.transport.flush(self)
        else:
            self.owner.output_ready()       # also when input is wanted again (`resume`, `pause_input`)
        return 0

    # ---------------------------------------------------------------- replication link

    def switch_to_link(self, bint receives_batches=True):
        """From here on both sides speak the replication protocol.  Batches of the log that come are applied at once
        (`receives_batches`, which may be changed at any time), or given to the owner as frames."""
        self.state = LINK
        self.receives_batches = receives_batches
        self.out = deque()

    def send_frame(self, int kind, uint64_t position, bytes body=b""):
        cdef bytes frame = link_frame(kind, position, body)
        if self.state != LINK:
            return
        self.out.append(frame)
        self.out_octets += PyBytes_GET_SIZE(frame)
        if not self.dirty:
            self.mark()

    def send_batch(self, Batch batch):
        if self.state != LINK:
            return
        self.out.append(batch)
        self.out_octets += batch.length
        if not self.dirty:
            self.mark()

    # ---------------------------------------------------------------- input

    def feed(self, bytes data):
        """Octets from the peer, for connections without a socket of ours."""
        cdef uint64_t before = reserve_used()
        try:
            self.begin_slice()
            self.input_data(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        except MemoryError:
            self.starve()
        self.served(before)

    cdef int served(self, uint64_t before) except -1:
        """What came was parsed; `before` is how often the reserve of memory had been used before."""
        if reserve_used() != before and self.state != LINK:
            self.starve()
        if self.engine.starved:
            self.engine.shed()
        return 0

    cdef int input_data(self, const uint8_t* p, size_t n) except -1:
        cdef size_t used
        self.received += n
        if self.input_used:
            memcpy(self.input_room(n), p, n)
            self.input_used += n
            return self.input_grown()
        used = self.parse(p, n)
        if used < n and self.state != DEAD:
            memcpy(self.input_room(n - used), p + used, n - used)
            self.input_used = n - used
        return 0

    cdef uint8_t* input_room(self, size_t n) except NULL:
        cdef size_t capacity = self.input_capacity if self.input_capacity else 4096
        cdef uint8_t* grown
        while capacity < self.input_used + n:
            capacity *= 2
        if capacity <= self.input_capacity:
            return self.input + self.input_used
        if capacity > SMALL_INPUT and capacity <= self.engine.pool.input_capacity:
            return self.borrow_input()
        grown = <uint8_t*>mem_resized(self.input, capacity)
        if grown == NULL:
            raise MemoryError(f"no memory for {capacity} octets of input")
        self.input = grown
        self.input_capacity = capacity
        return self.input + self.input_used

    cdef uint8_t* borrow_input(self) noexcept:
        """Takes the buffer that a large frame has left: touching fresh memory costs as much as the rest of one."""
        cdef uint8_t* small = self.input
        self.input_capacity = self.engine.pool.input_capacity
        self.input = self.engine.pool.lend_input()
        self.borrowed = True
        memcpy(self.input, small, self.input_used)
        free(small)
        return self.input + self.input_used

    cdef int input_grown(self) except -1:
        """Octets were added to `input`: parse, keep the rest."""
        cdef size_t used = self.parse(self.input, self.input_used)
        if self.state == DEAD:
            used = self.input_used
        self.input_used -= used
        if self.input_used and used:
            memmove(self.input, self.input + used, self.input_used)
        elif self.input_used == 0 and (self.borrowed or self.input_capacity > LARGE_INPUT):
            self.engine.pool.keep_input(self.input, self.input_capacity)
            self.input = NULL
            self.input_capacity = 0
            self.borrowed = False
        return 0

    cdef size_t parse(self, const uint8_t* p, size_t n) except? 0:
        """Acts on all complete frames; the octets used.  A callback may change what comes next, so it loops."""
        cdef size_t at = 0, used
        cdef int state
        while at < n:
            state = self.state
            if self.deaf:
                return n
            if state == EXPECT_HEADER:
                if n - at < 8:
                    break
                used = 8
                self.header_received(PyBytes_FromStringAndSize(<const char*>p + at, 8))
            elif state == LINK:
                used = self.parse_link(p + at, n - at)
            elif state == DEAD:
                return n
            elif state == WAITING:
                if n - at <= MAX_WAITING:
                    break
                self.fail(0, 501, f"FRAME_ERROR - {n - at} octets sent ahead of an answer", 0, 0)
                return n
            else:
                used = self.parse_frames(p + at, n - at)
            at += used
            if self.state == state and state != EXPECT_HEADER:
                break
        return at

    cdef int header_received(self, bytes header) except -1:
        try:
            self.owner.protocol_header(header)
        except AmqpError as error:
            return self.fail(0, error.reply_code, error.reply_text, error.class_id, error.method_id)
        if self.state == EXPECT_HEADER:
            self.state = EXPECT_FRAMES
        return 0

    cdef size_t parse_frames(self, const uint8_t* p, size_t n) except? 0:
        cdef size_t at = 0
        cdef Frame f
        cdef int answer, state = self.state
        cdef Channel channel
        cdef Slice slice = self.engine.slice
        try:
            while self.state == state:
                if self.steps <= 0 or slice.spent(1):
                    return self.put_off(at, n)
                answer = frame_at(p + at, n - at, self.frame_max, &f)
                if answer == FRAME_INCOMPLETE:
                    return at
                if answer < 0:
                    fault = frame_fault(answer, p[at] if answer == FRAME_BAD_TYPE else <int>self.frame_max)
                    self.fail(0, fault.reply_code, fault.reply_text, 0, 0)
                    self.state = DEAD if state == STOPPED else self.state
                    return n
                channel = <Channel>self.channels[f.channel] if f.channel < <size_t>len(self.channels) else None
                if (self.stashed or (channel is not None and channel.held)) and is_aside(self, channel, f.channel):
                    if not goes_on(self, channel, &f):
                        if self.replaying:
                            return at
                        keep_aside(self, f.channel, p + at, f.total)
                elif f.type != FRAME_METHOD:
                    self.other_frame(&f, channel)
                elif f.size < 4:
                    self.fail(0, 501, f"FRAME_ERROR - method frame of {f.size} octets", 0, 0)
                else:
                    if be32(f.payload) == BASIC_PUBLISH and channel is not None and state == EXPECT_FRAMES:
                        at += self.publish_frames(channel, p + at, f.payload, f.size, p + n)
                        continue
                    self.method_frame(f.payload, f.channel, channel, f.size)
                    if self.again:
                        self.again = False
                        return self.put_off(at, n)
                    if self.deaf and f.channel == 0:
                        return n
                at += f.total
        except MemoryError:
            self.starve()               # what failed is looked at again, by a connection that closes
            self.engine.shed()
        return at

    cdef size_t put_off(self, size_t at, size_t n) except? 0:
        """The slice is used up: the rest waits for its turn in the line."""
        if at < n and not self.unfinished:
            self.unfinished = True
            self.engine.unfinished.append(self)
            self.engine.want_turn()
        return at

    cdef int resume(self) except -1:
        """The next slice of what was put off."""
        cdef uint64_t before = reserve_used()
        self.unfinished = False
        try:
            self.begin_slice()
            for number in list(self.stashes):
                if not self.unfinished:
                    replay(self, number)
            if self.input_used and not self.unfinished:
                self.input_grown()
        except MemoryError:
            self.starve()
        self.depart()
        if self.transport is None and self.reads() and self.state != DEAD and not self.dirty:
            self.mark()
        return self.served(before)

    cdef void begin_slice(self) noexcept:
        self.engine.slice.begin(self.engine.schedule is None)
        self.refresh()

    cdef void refresh(self) noexcept:
        """Without a loop that calls for the next turn nothing is put off."""
        self.steps = ALL_STEPS if self.engine.schedule is None else STEPS

    cpdef bint reads(self) noexcept:
        """False while what the peer sends is left in its socket."""
        return not (self.input_paused or self.unfinished)

    cdef int pause_input(self, bint paused) except -1:
        self.input_paused = paused
        if self.transport is not None:
            self.transport.interest(self)
        elif not paused and self.state != DEAD and not self.dirty:
            self.mark()                     # its owner has to look whether it reads, as after output
        return 0

    cdef int other_frame(self, Frame* f, Channel channel) except -1:
        """Content headers, bodies and heartbeats."""
        if f.type == FRAME_HEARTBEAT:
            if f.size:
                return self.fail(0, 501, f"FRAME_ERROR - heartbeat of {f.size} octets", 0, 0)
            if f.channel:
                return self.fail(0, 505, f"UNEXPECTED_FRAME - heartbeat on channel {f.channel}", 0, 0)
            return 0
        if self.state != EXPECT_FRAMES:
            return 0
        if channel is None:
            return self.fail(0, 505, f"UNEXPECTED_FRAME - content on channel {f.channel}, which is not open", 0, 0)
        if channel.closing:
            return 0
        if f.type == FRAME_HEADER:
            return channel.header_frame(f.payload, f.size)
        return channel.body_frame(f.payload, f.size)

    cdef int method_frame(self, const uint8_t* p, uint16_t number, Channel channel, uint32_t size) except -1:
        cdef uint32_t method = be32(p)
        if channel is not None and self.state == EXPECT_FRAMES and not channel.closing:
            if channel.assembling is not None:
                return self.fail(0, 505, "UNEXPECTED_FRAME - method inside the content of basic.publish", 60, 40)
            if method == BASIC_ACK or method == BASIC_NACK:
                if size != 13:
                    return self.fail(0, 501, f"FRAME_ERROR - {size} octets", 60, method & 0xFFFF)
                return settle(channel, be64(p + 4), p[12] & 1,
                              ACK if method == BASIC_ACK else (REQUEUE if p[12] & 2 else DISCARD), method & 0xFFFF)
            if method == BASIC_REJECT:
                if size != 13:
                    return self.fail(0, 501, f"FRAME_ERROR - {size} octets", 60, 90)
                return settle(channel, be64(p + 4), False, REQUEUE if p[12] & 1 else DISCARD, 90)
        self.steps -= METHOD_STEPS
        try:
            self.owner.method(number, PyBytes_FromStringAndSize(<const char*>p, size))
        except AmqpError as error:
            at = 0 if isinstance(error, ConnectionException) else number
            self.fail(at, error.reply_code, error.reply_text, error.class_id or method >> 16,
                      error.method_id or method & 0xFFFF)
        return 0

    cdef size_t publish_frames(self, Channel channel, const uint8_t* p, const uint8_t* method, uint32_t size,
                               const uint8_t* end) except? 0:
        """basic.publish, with its content if it is complete in one body frame; the octets used."""
        cdef const uint8_t* header = p + size + FRAME_OVERHEAD
        cdef const uint8_t* body
        cdef uint32_t header_size
        cdef uint64_t body_size
        cdef bint asks = False
        cdef Publication publication = channel.last
        if channel.closing:
            return size + FRAME_OVERHEAD
        if channel.assembling is not None:
            self.fail(0, 505, "UNEXPECTED_FRAME - basic.publish inside the content of another", 60, 40)
            return size + FRAME_OVERHEAD
        if (publication is None or publication.generation != self.engine.generation
                or <uint32_t>PyBytes_GET_SIZE(publication.method) != size
                or memcmp(PyBytes_AS_STRING(publication.method), method, size)):
            publication = self.publication(channel, method, size)
            if publication is None:
                return size + FRAME_OVERHEAD
            channel.last = publication
        if end - header >= 22 + 8 and header[0] == FRAME_HEADER and be16(header + 1) == channel.number:
            header_size = be32(header + 3)
            body_size = be64(header + 11)
            body = header + FRAME_OVERHEAD + header_size
            if (14 <= header_size <= self.frame_max - FRAME_OVERHEAD and be16(header + 7) == 60
                    and 0 < body_size <= self.frame_max - FRAME_OVERHEAD and body_size <= self.engine.max_message_size
                    and <uint64_t>(end - header) >= FRAME_OVERHEAD + header_size + FRAME_OVERHEAD + body_size
                    and (body - 1)[0] == FRAME_END and body[0] == FRAME_BODY and be16(body + 1) == channel.number
                    and be32(body + 3) == body_size and body[7 + body_size] == FRAME_END
                    and not bad_header(header + 7, header_size, &asks)):
                channel.publish(publication, header + 7, header_size, body + 7, body_size, asks)
                return (body - p) + FRAME_OVERHEAD + body_size
        channel.assembling = publication
        return size + FRAME_OVERHEAD

    cdef Publication publication(self, Channel channel, const uint8_t* p, uint32_t size):
        """The (cached) meaning of a basic.publish method; None when it failed the channel or the connection.

        The owner is asked for the first one in any case: it may have to say that publishers are to wait.  It is asked
        for each one of a guarded client."""
        cdef bytes method
        cdef Publication found
        cdef Route route
        cdef uint32_t exchange, key
        if self.publisher and not self.guarded:
            found = self.engine.publications.find(self.host, p, size, self.engine.generation)
            if found is not None:
                return found
        method = PyBytes_FromStringAndSize(<const char*>p, size)
        exchange = p[6] if size > 6 else 255
        key = p[7 + exchange] if size > 7 + exchange else 255
        if size != 9 + exchange + key:
            self.fail(0, 501, "FRAME_ERROR - basic.publish has lengths that do not fit", 60, 40)
            return None
        if p[8 + exchange + key] & 2:
            self.fail(0, 540, "NOT_IMPLEMENTED - immediate=true", 60, 40)
            return None
        self.steps -= 1
        try:
            if self.guarded:
                self.owner.permit(method[7:7 + exchange], method[8 + exchange:8 + exchange + key])
                found = self.engine.publications.find(self.host, p, size, self.engine.generation) if self.publisher else None
                if found is not None:
                    return found
            route = self.owner.route(channel.number, method[7:7 + exchange], method[8 + exchange:8 + exchange + key])
        except AmqpError as error:
            self.fail(0 if isinstance(error, ConnectionException) else channel.number, error.reply_code,
                      error.reply_text, 60, 40)
            return None
        found = self.engine.publications.keep(self.host, method, route, self.engine.generation)
        if not self.publisher and route.handler is None:    # requests to the broker itself are always read
            self.publishes()
        return found

    def publishes(self):
        """It brings messages: it is not read while publishers are not (`Engine.throttle`)."""
        self.publisher = True
        self.engine.publishers.add(self)
        if self.engine.throttled:
            self.pause_input(True)

    cdef int fail(self, int channel, int code, str text, int class_id, int method_id) except -1:
        """A protocol error of the connection (channel 0) or of one channel; the owner informs the peer."""
        cdef Channel c = self.channel(channel) if channel else None
        if self.state == LINK or self.state == DEAD:
            self.state = DEAD
        elif c is None or code >= 500:
            channel = 0
            if self.state == STOPPED:
                return 0
            self.stop()
        else:
            c.closing = True
            c.drop_assembly()
        self.owner.failed(channel, code, text, class_id, method_id)
        return 0

    cdef size_t parse_link(self, const uint8_t* p, size_t n) except? 0:
        """Frames of the replication protocol; batches may be applied here, the rest goes to the owner, all in order."""
        cdef size_t at = 0, length
        cdef uint64_t applied = 0
        cdef int kind
        try:
            while n - at >= LINK_HEADER and self.state == LINK:
                length = <size_t>le32(p + at + 4) + LINK_HEADER
                if le32(p + at) != LINK_MAGIC or length > MAX_LINK_FRAME:
                    raise LinkError(f"not a frame of the replication protocol at octet {self.received - n + at}")
                if n - at < length:
                    break
                if not check_link_frame(p + at, length):
                    raise LinkError(f"checksum of a frame of {length} octets is wrong")
                kind = p[at + 28]
                if kind == KIND_BATCH and self.receives_batches:
                    self.engine.apply_batch(p + at, length)
                    applied = le64(p + at + 8)
                else:
                    if applied:
                        self.owner.link_batches(applied)
                        applied = 0
                    self.owner.link_frame(kind, le64(p + at + 8),
                                          PyBytes_FromStringAndSize(<const char*>p + at + LINK_HEADER,
                                                                    length - LINK_HEADER))
                at += length
            if applied:
                self.owner.link_batches(applied)
        except (LinkError, AmqpError) as error:
            self.fail(0, 501, str(error), 0, 0)
            return n
        except MemoryError as error:
            self.fail(0, 506, str(error) or "no memory", 0, 0)
            return n
        return at
