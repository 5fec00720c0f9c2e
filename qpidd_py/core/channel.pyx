# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Channels: publishes in, deliveries out, settlements, transactions."""
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from qpidd_py.core.aside cimport release_channel
from qpidd_py.core.batch cimport lengths_of, route_of
from qpidd_py.core.connection cimport DEAD, EXPECT_FRAMES, MAX_OUTPUT, METHOD_STEPS
from qpidd_py.core.duplicates cimport entering
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.fencing cimport token_of
from qpidd_py.core.groups cimport LATER, Groups, group_taken, next_of_group
from qpidd_py.core.letters cimport admitting
from qpidd_py.core.memory cimport mem_new, mem_resized
from qpidd_py.core.numbering cimport count
from qpidd_py.core.properties cimport addressed, bad_expiration, bad_header, other_user
from qpidd_py.core.pump cimport DELIVERY, next_message
from qpidd_py.core.returns cimport handed_out
from qpidd_py.core.ring cimport ENTRY_REDELIVERED, ENTRY_RETURNED, Entry, record_of, ring_at
from qpidd_py.core.settlements cimport recover
from qpidd_py.core.stamps cimport ACQUIRED_COUNT, DELIVERY_COUNT, FENCING_TOKEN, STAMP_ROOM, write_stamped
from qpidd_py.core.transactions cimport commit
from qpidd_py.core.watch cimport hold_publisher, takes_messages
from qpidd_py.core.wire cimport (
    BASIC_ACK, BASIC_NACK, BASIC_RETURN, FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD, GET_OK,
    be16, be32, be64, begin_frame, le16, le32, put16, put32, put64)

from qpidd_py.errors import AmqpError, ConnectionException


cdef class Consumer:
    """One subscription: basic.consume until basic.cancel."""

    cdef bint ready(self) noexcept:
        cdef Channel channel = self.channel
        cdef Connection connection = channel.connection
        if not self.active or not channel._active or channel.closing or connection.state != EXPECT_FRAMES:
            return False
        if connection.leaving is not None:
            return False
        if connection.output_end - connection.output_start >= MAX_OUTPUT:
            connection.choked = True
            return False
        if self.no_ack:
            return True
        if self.prefetch and self.unacked >= self.prefetch:
            return False
        return channel.prefetch == 0 or channel.outstanding < channel.prefetch

    @property
    def waits(self):
        """True while another consumer gets the messages of a queue that has one at a time."""
        return self.queue.single and self.queue.chosen is not self

    @property
    def fencing_token(self):
        """The token that its deliveries have; 0 for none."""
        return token_of(self) if self.queue.holder is self else 0

    def __repr__(self):
        return f"<Consumer {self.tag!r} of {self.queue.name!r}>"


cdef class Channel:
    """One AMQP channel; made by Connection.open_channel, used by that connection's owner only.

    Delivery tag t lies in slot t of `unacked`, from `unacked_head` to `unacked_tail` - 1; a settled slot has no queue.
    Publish tags count from 1 as well; `confirmed` is the highest that has been confirmed together with all before
    it."""

    def __cinit__(self, Connection connection, uint16_t number):
        self.connection = connection
        self.number = number
        self._active = True
        self.consumers = {}
        self.answers = ()
        self.unacked_head = self.unacked_tail = self.auto_head = 1

    def __dealloc__(self):
        cdef uint64_t tag
        for tag in range(self.unacked_head, self.unacked_tail):
            forget_slot(&self.unacked[tag & self.unacked_mask])
        free(self.unacked)
        free(self.body)

    @property
    def active(self):
        """False while the client has stopped deliveries with channel.flow."""
        return bool(self._active)

    @active.setter
    def active(self, bint value):
        self._active = value
        self.mark_consumers()

    @property
    def unacked_count(self):
        """Deliveries that the client has yet to settle."""
        cdef uint64_t tag, n = 0
        for tag in range(self.unacked_head, self.unacked_tail):
            n += outstanding_slot(self.slot(tag)) or self.slot(tag).pending == IN_TRANSACTION
        return n

    def confirm_select(self):
        self.confirming = True

    def tx_select(self):
        if not self.transactional:
            self.transactional = True
            self.publishes = []
            self.acks = []

    # ---------------------------------------------------------------- consumers

    def consume(self, Queue queue, str tag, bint no_ack, uint32_t prefetch=0, int64_t priority=0):
        """A new subscription; deliveries start at the end of the turn.  `prefetch` 0 = no limit of its own."""
        cdef Consumer c = Consumer.__new__(Consumer), other
        cdef size_t before = 0
        cdef bytes name = tag.encode()
        c.channel = self
        c.queue = queue
        c.tag = tag
        c.no_ack = no_ack
        c.prefetch = prefetch
        c.prefix = b"\0\x3c\0\x3c" + bytes((len(name),)) + name
        c.active = True
        c.priority = priority
        self.consumers[tag] = c
        takes_messages(self.connection)
        queue.ranked = queue.ranked or priority != 0 or queue.single
        if queue.single and queue.chosen is None:
            queue.chosen = c
        for other in queue.consumers:
            before += other.priority >= priority
        queue.consumers.insert(before, c)
        self.connection.engine.mark_queue(queue)
        return c

    def cancel(self, str tag):
        """Ends a subscription; what it holds unsettled stays with the channel.  The queue, or None for an unknown
        tag."""
        cdef Consumer c = self.consumers.pop(tag, None)
        if c is None:
            return None
        c.active = False
        c.queue.consumers.remove(c)
        if c.queue.chosen is c:
            c.queue.chosen = c.queue.consumers[0] if c.queue.consumers else None
            c.queue.holder = None
            self.connection.engine.mark_queue(c.queue)
        return c.queue

    cdef void mark_consumers(self):
        cdef Consumer c
        for c in self.consumers.values():
            self.connection.engine.mark_queue(c.queue)

    def get(self, Queue queue, bint no_ack, again=None):
        """basic.get: writes get-ok and the message; False when nothing is ready, None when the message is not in memory:
        `again` is called when it is."""
        cdef bint grouped = isinstance(queue.kind, Groups)
        cdef int64_t index = (next_of_group(self.connection.engine, queue, self, again, True) if grouped
                              else next_message(self.connection.engine, queue, again))
        cdef Queue level = queue.head()
        cdef uint64_t next = level.next
        cdef Entry* e
        cdef const uint8_t* record
        cdef uint8_t* p
        cdef uint32_t route, size
        takes_messages(self.connection)
        if index < 0:
            if grouped:
                return None if index == LATER else False
            return None if level.ready and level.peek_ready() >= 0 else False
        e = ring_at(&level.main, index)
        record = record_of(e)
        route = le16(lengths_of(record))
        size = 4 + 8 + 1 + route + 4
        p = self.room_to_deliver(size, record, 2 * STAMP_ROOM if queue.counts else 0)
        if p == NULL:
            return True                 # the connection will be closed
        level.take(index)
        begin_frame(p, FRAME_METHOD, self.number, size)
        put32(p + 7, GET_OK)
        put64(p + 11, self.unacked_tail)
        p[19] = (e.flags & ENTRY_REDELIVERED) | (e.id < self.connection.engine.unsure)
        memcpy(p + 20, route_of(record), route)
        put32(p + 20 + route, <uint32_t>(queue.ready if queue.ready < 0xFFFFFFFF else 0xFFFFFFFF))
        p[size + 7] = FRAME_END
        self.write_content(p + size + FRAME_OVERHEAD, record, e.deliveries if queue.counts else -1, 0)
        self.hand_out(None, level, index, e, no_ack)
        if grouped:
            group_taken(queue, index, next, self)
        return True

    cdef uint8_t* room_to_deliver(self, uint32_t method_size, const uint8_t* record, size_t more) noexcept:
        """Where the method and the content of a delivery can be written, with `more` octets and a slot for it; NULL when
        there is no memory."""
        cdef size_t header = le32(lengths_of(record) + 4)
        cdef const uint8_t* content = route_of(record) + le16(lengths_of(record))
        if not self.slot_room():
            self.connection.starve()
            return NULL
        return self.connection.room(method_size + FRAME_OVERHEAD + more + frames_size(
            self.connection, header, le32(record) - (content - record) - header))

    cdef int hand_out(self, Consumer consumer, Queue queue, uint64_t index, Entry* e, bint no_ack) except -1:
        """Gives the delivery of `e`, the entry at `index`, its slot; one without acknowledgement keeps it until its octets
        have left the socket."""
        cdef Connection connection = self.connection
        cdef Unacked* u
        connection.engine.delivered += 1
        connection.engine.pump_left -= e.size + DELIVERY
        if connection.engine.slice.spent(1):
            connection.engine.pump_left = 0
        connection.engine.note_delivered(queue)
        u = self.slot(self.unacked_tail)        # `slot_room` has made it
        memset(u, 0, sizeof(Unacked))
        self.unacked_tail += 1
        Py_INCREF(queue)
        u.queue = <void*>queue
        u.id = e.id
        u.index = index
        u.since = connection.engine.clock
        if e.flags & ENTRY_RETURNED:
            handed_out(connection.engine, queue, e, index)
        if no_ack:
            u.pending = AUTO
            u.end = connection.sent + (connection.output_end - connection.output_start)
            if self.auto_count == 0:
                connection.auto_channels.append(self)
            self.auto_count += 1
        elif consumer is not None:
            Py_INCREF(consumer)
            u.consumer = <void*>consumer
            consumer.unacked += 1
            self.outstanding += 1
        return 0

    def late(self, uint32_t patience):
        """(How long a client may keep a delivery of this channel that it has kept longer, when the next may be late); in
        quarters of a second, 0 = none.  `patience` of the queues that have none of their own, 0 = no limit."""
        cdef uint64_t tag
        cdef uint32_t age, most, left = 0
        cdef Queue queue
        for tag in range(self.unacked_head, self.unacked_tail):
            if not outstanding_slot(self.slot(tag)):
                continue
            queue = <Queue>self.slot(tag).queue
            most = queue.patience if queue.parent is None else queue.parent.patience
            most = most if most else patience
            age = self.connection.engine.clock - self.slot(tag).since
            if most and age > most:
                return most, 0
            if most and (not left or most - age < left):
                left = most - age + 1
        return 0, left

    cdef bint slot_room(self) noexcept:
        """Room for one more slot; False when there is no memory.  Many slots are not copied: the system moves their pages."""
        cdef uint64_t old = self.unacked_mask + 1 if self.unacked != NULL else 8, tag
        cdef Unacked* slots
        if self.unacked_tail - self.unacked_head <= self.unacked_mask and self.unacked != NULL:
            return True
        slots = <Unacked*>mem_resized(self.unacked, 2 * old * sizeof(Unacked))
        if slots == NULL:
            return False
        for tag in range(self.unacked_head, self.unacked_tail):
            if tag & old:
                slots[tag & (2 * old - 1)] = slots[tag & (old - 1)]
        self.unacked = slots
        self.unacked_mask = 2 * old - 1
        return True

    cdef int deliver(self, Consumer consumer, Queue queue, uint64_t index, bint ready) except -1:
        """`ready`: it has to be taken.  False when there is no memory: the message stays, the connection will be closed."""
        cdef Entry* e = ring_at(&queue.main, index)
        cdef const uint8_t* record = record_of(e)
        cdef uint32_t route = le16(lengths_of(record)), prefix = <uint32_t>PyBytes_GET_SIZE(consumer.prefix)
        cdef uint32_t size = prefix + 9 + route
        cdef uint64_t token = token_of(consumer) if consumer.queue.fenced else 0
        cdef uint8_t* p = self.room_to_deliver(size, record, (2 * STAMP_ROOM if e.deliveries else 0)
                                               + (STAMP_ROOM if token else 0))
        if p == NULL:
            return False
        if ready:
            queue.take(index)
        begin_frame(p, FRAME_METHOD, self.number, size)
        p += 7
        memcpy(p, PyBytes_AS_STRING(consumer.prefix), prefix)
        p += prefix
        put64(p, self.unacked_tail)
        p[8] = (e.flags & ENTRY_REDELIVERED) | (e.id < self.connection.engine.unsure)
        memcpy(p + 9, route_of(record), route)
        p[9 + route] = FRAME_END
        self.write_content(p + 10 + route, record, e.deliveries if e.deliveries else -1, token)
        self.hand_out(consumer, queue, index, e, consumer.no_ack)
        return True

    cdef void write_content(self, uint8_t* p, const uint8_t* record, int64_t count, uint64_t token) noexcept:
        """At `p`, where there is room (`room_to_deliver`).  With x-delivery-count and x-acquired-count, unless `count` is
        negative, and x-fencing-token, unless `token` is 0; without them if the header would not fit a frame."""
        cdef size_t header = le32(lengths_of(record) + 4)
        cdef size_t size = header
        cdef const uint8_t* content = route_of(record) + le16(lengths_of(record))
        cdef const uint8_t* last = content  # the header with the stamps that it has; each is written in front of the last
        cdef uint8_t* to = p + 7 + (2 * STAMP_ROOM if count >= 0 else 0)
        if (count < 0 and not token) or header + 3 * STAMP_ROOM + FRAME_OVERHEAD > self.connection.frame_max:
            memcpy(p + 7, content, header)
        else:
            if token:
                size = write_stamped(to, content, header, FENCING_TOKEN, token)
                last = to
            if count >= 0:
                size = write_stamped(p + 7 + STAMP_ROOM, last, size, ACQUIRED_COUNT, count)
                size = write_stamped(p + 7, p + 7 + STAMP_ROOM, size, DELIVERY_COUNT, count)
        end_header(self, p, size)
        write_body(self, p + FRAME_OVERHEAD + size, content + header, le32(record) - (content - record) - header)

    # ---------------------------------------------------------------- publishing

    cdef int publish(self, Publication p, const uint8_t* header, size_t header_size, const uint8_t* body,
                     size_t body_size, bint asks) except -1:
        """`asks`: the header says more about where the message goes (`addressed`)."""
        cdef uint64_t tag = 0, position, original = 0   # the message of which this one is a duplicate, in some queue
        cdef Route route = p.route
        cdef bytes kept
        cdef bint addressed = asks and route.handler is None
        cdef int flags = be16(header + 12) & 0x0110
        cdef Engine engine = self.connection.engine
        if flags & 0x0100 and bad_expiration(header, header_size):
            return self.connection.fail(self.number, 406, "PRECONDITION_FAILED - expiration is not a number of "
                                        "milliseconds", 60, 40)
        if flags & 0x0010 and self.connection.user is not None and other_user(
                header, header_size, self.connection.user):
            return self.connection.fail(self.number, 406, "PRECONDITION_FAILED - user-id is not the user of the login",
                                        60, 40)
        if addressed:
            found = self.addressed(p, PyBytes_FromStringAndSize(<const char*>header, header_size))
            if found is None:
                return 0
        if self.transactional and not self.committing:
            if not self.gathers(p.length + header_size + body_size, 40):
                return 0
            self.publishes.append((p, PyBytes_FromStringAndSize(<const char*>header, header_size),
                                   PyBytes_FromStringAndSize(<const char*>body, body_size)))
            return 0
        if self.confirming:
            self.publish_tag += 1
            tag = self.publish_tag
        if addressed:
            route, kept = found
            header, header_size = <const uint8_t*>PyBytes_AS_STRING(kept), PyBytes_GET_SIZE(kept)
        elif route.by_header is not None:
            route = self.route_by_header(p, PyBytes_FromStringAndSize(<const char*>header, header_size))
            if route is None:
                return 0
        if not route.queues:
            if route.numbering is not None:
                count(engine, route, 0)
            self.unrouted(p, route, header, header_size, body, body_size)
            return self.confirm_at(tag, engine.witness() if route.handler is None else 0) if tag else 0
        if route.limited:
            if route.nowhere and p.mandatory:
                self.unrouted(p, route, header, header_size, body, body_size)
            if engine.watched:
                hold_publisher(self.connection, route)
            if route.windows:
                route = entering(engine, route, header, header_size, &original)
                if not route.queues:
                    return self.confirm_at(tag, original) if tag else 0
            route = admitting(engine, route, <const uint8_t*>PyBytes_AS_STRING(p.method) + p.start, header,
                              header_size, body, body_size)
            if route.refusing and tag:
                self.nack(tag)
                tag = 0
            if not route.queues:
                return 0
        position = engine.enqueue(route, <const uint8_t*>PyBytes_AS_STRING(p.method) + p.start, p.length,
                                  header, header_size, body, body_size)
        if tag:
            if route.replicated == 0 or original or route.numbering is not None:
                return self.confirm_at(tag, max(original, position if route.replicated else engine.changed))
            if engine.confirms.add(self, tag, position, position, False, False):
                engine.want_turn()
        return 0

    cdef int nack(self, uint64_t tag) except -1:
        """basic.nack of a publish that a queue refused.  Earlier confirms are written first.  A later confirm with
        multiple may cover the tag; the client ignores that, since it has dropped the tag."""
        cdef uint8_t* p
        if self.first_wait:
            self.connection.engine.hold_confirm(self, tag, 0, True)
        else:
            self.write_confirm()
            self.confirmed = self.confirm_to = tag
        p = self.connection.room(21)
        if p == NULL:
            return 0
        begin_frame(p, FRAME_METHOD, self.number, 13)
        put32(p + 7, BASIC_NACK)
        put64(p + 11, tag)
        p[19] = 0
        p[20] = FRAME_END
        self.connection.output_end += 21
        return 0

    cdef int unrouted(self, Publication p, Route route, const uint8_t* header, size_t header_size,
                      const uint8_t* body, size_t body_size) except -1:
        """A message for no queue: it goes to the broker itself, is returned, or is dropped."""
        cdef const uint8_t* exrk = <const uint8_t*>PyBytes_AS_STRING(p.method) + p.start
        cdef uint8_t* to
        cdef uint32_t size = 4 + 2 + 9 + p.length
        if route.handler is not None:
            self.connection.steps -= METHOD_STEPS
            try:
                route.handler(self.connection.owner, self.number, exrk[1:1 + exrk[0]],
                              exrk[2 + exrk[0]:2 + exrk[0] + exrk[1 + exrk[0]]],
                              PyBytes_FromStringAndSize(<const char*>header, header_size),
                              PyBytes_FromStringAndSize(<const char*>body, body_size))
            except AmqpError as error:
                return self.refuse(error)
        elif p.mandatory:
            to = self.connection.room(size + FRAME_OVERHEAD + frames_size(self.connection, header_size, body_size))
            if to == NULL:
                return 0
            begin_frame(to, FRAME_METHOD, self.number, size)
            put32(to + 7, BASIC_RETURN)
            put16(to + 11, 312)
            memcpy(to + 13, b"\x08NO_ROUTE", 9)
            memcpy(to + 22, exrk, p.length)
            to[size + 7] = FRAME_END
            to += size + FRAME_OVERHEAD
            memcpy(to + 7, header, header_size)
            end_header(self, to, header_size)
            write_body(self, to + FRAME_OVERHEAD + header_size, body, body_size)
        return 0

    cdef Route route_by_header(self, Publication p, bytes header):
        cdef const uint8_t* key = <const uint8_t*>PyBytes_AS_STRING(p.method) + p.start
        cdef uint32_t host = self.connection.host
        cdef bytes name = (<const uint8_t*>&host)[:4] + key[:p.length] + header[12:]    # without the size of the body
        cdef Route route = self.connection.engine.publications.by_header(name)
        if route is not None:
            return route
        key += 1 + key[0]
        self.connection.steps -= 1
        try:
            route = p.route.by_header(key[1:1 + key[0]], header)
        except AmqpError as error:
            self.refuse(error)
            return None
        self.connection.engine.publications.keep_by_header(name, route)
        return route

    cdef tuple addressed(self, Publication p, bytes header):
        """The route of a message whose header says more about it, and the header to store; None when it was refused."""
        cdef const uint8_t* key = <const uint8_t*>PyBytes_AS_STRING(p.method) + p.start
        self.connection.steps -= 1 + <int>(len(header) >> 6)        # each key that it may have
        exchange = key[1:1 + key[0]]
        key += 1 + key[0]
        try:
            route, header = self.connection.owner.addressed(self.number, exchange, key[1:1 + key[0]], header)
        except AmqpError as error:
            self.refuse(error)
            return None
        return route, header

    cdef int refuse(self, error) except -1:
        return self.connection.fail(0 if isinstance(error, ConnectionException) else self.number, error.reply_code,
                                    error.reply_text, 60, 40)

    cdef int header_frame(self, const uint8_t* p, size_t n) except -1:
        """A content header of a message that did not arrive in one piece."""
        cdef Connection c = self.connection
        cdef bint asks = False
        if self.assembling is None:
            return c.fail(0, 505, "UNEXPECTED_FRAME - content header without basic.publish", 0, 0)
        if self.assembling_header is not None:
            return c.fail(0, 505, "UNEXPECTED_FRAME - content header inside a body", 60, 40)
        if n >= 4 and be32(p) != 60 << 16:
            return c.fail(0, 505, f"UNEXPECTED_FRAME - content header for class {be16(p)}, weight {be16(p + 2)}", 60, 40)
        if bad_header(p, n, &asks):
            return c.fail(0, 501, "FRAME_ERROR - malformed content header", 60, 40)
        self.body_size = be64(p + 4)
        if self.body_size > c.engine.max_message_size:
            self.drop_assembly()
            return c.fail(self.number, 311, f"CONTENT_TOO_LARGE - body of {be64(p + 4)} octets, "
                          f"at most {c.engine.max_message_size} are accepted", 60, 40)
        self.assembling_header = PyBytes_FromStringAndSize(<const char*>p, n)
        self.body_got = 0
        if self.body_size == 0:
            return self.assembled()
        self.body = <uint8_t*>mem_new(self.body_size)
        if self.body == NULL:
            self.drop_assembly()
            return c.fail(self.number, 506, f"RESOURCE_ERROR - no memory for {be64(p + 4)} octets", 60, 40)
        return 0

    cdef int body_frame(self, const uint8_t* p, size_t n) except -1:
        if self.assembling_header is None:
            return self.connection.fail(0, 505, "UNEXPECTED_FRAME - content body without content header",
                                        60 if self.assembling is not None else 0, 40 if self.assembling is not None else 0)
        if n > self.body_size - self.body_got:
            return self.connection.fail(0, 501, f"FRAME_ERROR - content body exceeds the {self.body_size} octets "
                                        "that its header announced", 60, 40)
        memcpy(self.body + self.body_got, p, n)
        self.body_got += n
        return self.assembled() if self.body_got == self.body_size else 0

    cdef int assembled(self) except -1:
        cdef Publication publication = self.assembling
        cdef bytes header = self.assembling_header
        cdef uint8_t* body = self.body
        self.body = NULL
        self.drop_assembly()
        if publication.generation != self.connection.engine.generation:
            # While the body arrived, a queue of the old route may have been deleted: nothing may be put into it or into
            # the log.
            publication = self.connection.publication(self, <const uint8_t*>PyBytes_AS_STRING(publication.method),
                                                      <uint32_t>PyBytes_GET_SIZE(publication.method))
        try:
            if publication is None:
                return 0
            self.publish(publication, <const uint8_t*>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header),
                         body, self.body_got,
                         addressed(<const uint8_t*>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header)))
        finally:
            free(body)
        return 0

    cdef void drop_assembly(self) noexcept:
        self.assembling = None
        self.assembling_header = None
        free(self.body)
        self.body = NULL

    # ---------------------------------------------------------------- settling

    def recover(self, bint requeue):
        """basic.recover: back to the queues, or (requeue false) again to the same consumers."""
        recover(self, requeue)

    # ---------------------------------------------------------------- transactions

    def tx_commit(self):
        """Applies publishes and settlements in one batch of the log; the position that commit-ok waits for."""
        return commit(self)

    def tx_rollback(self):
        for tag, _ in self.acks:
            self.slot(tag).pending = 0
        self.publishes = []
        self.acks = []
        self.gathered = 0

    cdef bint gathers(self, size_t octets, int method) except -1:
        """Whether the transaction takes a publish of so many octets, or a settlement (0); if not the channel has failed.
        A commit is one batch, which no other turn interrupts, so it is bounded."""
        cdef Engine engine = self.connection.engine
        cdef size_t count = len(self.publishes) + len(self.acks)
        text = ""
        if engine.max_transaction and count >= engine.max_transaction:
            text = f"more than {engine.max_transaction} publishes and settlements (max-transaction)"
        elif octets and engine.max_transaction_size and self.publishes \
                and self.gathered + octets > engine.max_transaction_size:
            text = f"more than {engine.max_transaction_size} octets (max-transaction-size)"
        if text:
            self.connection.fail(self.number, 406, f"PRECONDITION_FAILED - found a transaction of {text}", 60, method)
            return False
        self.gathered += octets
        return True

    # ---------------------------------------------------------------- replies that wait

    def hold(self, uint64_t position, bytes reply):
        """Writes `reply` once `position` is safe (on a backup at once: nothing becomes safe there), behind the replies
        that wait already.  Until then this channel's frames are kept aside, so order holds; only changes of the
        configuration are carried out (`aside.goes_on`)."""
        cdef Engine engine = self.connection.engine
        if engine.passive or (position <= engine.safe and not self.answers):
            self.connection.write(reply)
            return
        self.held = True
        if not self.answers:
            self.answers = deque()
        self.answers.append((position, reply))
        engine.held[self] = None
        engine.want_turn()

    cdef bint answer(self, uint64_t safe) except -1:
        """Writes the replies that waited for `safe` or less; whether none is left."""
        while self.answers and <uint64_t>self.answers[0][0] <= safe:
            self.connection.write(self.answers.popleft()[1])
        return not self.answers

    def pause(self):
        """This channel's frames are kept aside until `resume`."""
        self.held = True

    def resume(self):
        """Not from within a callback of this connection."""
        if self.held and self.connection.state != DEAD:
            self.connection.begin_slice()
            release_channel(self.connection, self)

    # ---------------------------------------------------------------- confirms

    cdef int confirm_at(self, uint64_t tag, uint64_t position) except -1:
        """Confirms a publish that has no position of its own when `position` is safe; never ahead of earlier publishes
        of this channel."""
        cdef Engine engine = self.connection.engine
        if engine.passive:
            position = 0
        if self.first_wait == 0 and position <= engine.safe:
            if engine.confirms.confirm(self, tag):
                engine.want_turn()
            return 0
        return engine.hold_confirm(self, tag, position, False)

    cdef int write_confirm(self) except -1:
        if self.confirm_to <= self.confirmed or self.closing or self.connection.state != EXPECT_FRAMES:
            return 0
        self.write_ack(self.confirm_to, self.confirm_to - self.confirmed > 1)
        self.confirmed = self.confirm_to
        return 0

    cdef int write_ack(self, uint64_t tag, bint multiple) except -1:
        cdef uint8_t* p = self.connection.room(21)
        if p == NULL:
            return 0
        begin_frame(p, FRAME_METHOD, self.number, 13)
        put32(p + 7, BASIC_ACK)
        put64(p + 11, tag)
        p[19] = multiple
        p[20] = FRAME_END
        self.connection.output_end += 21
        return 0

    def __repr__(self):
        return f"<Channel {self.number}>"


cdef inline size_t frames_size(Connection c, size_t header_size, size_t body_size) noexcept:
    """Octets of a content header and a body, cut to the connection's frame_max."""
    cdef size_t most = c.frame_max - FRAME_OVERHEAD
    return header_size + FRAME_OVERHEAD + body_size + ((body_size + most - 1) // most) * FRAME_OVERHEAD


cdef inline void end_header(Channel channel, uint8_t* p, size_t size) noexcept:
    """The frame at `p` around a content header that stands there."""
    begin_frame(p, FRAME_HEADER, channel.number, <uint32_t>size)
    p[7 + size] = FRAME_END


cdef inline void write_body(Channel channel, uint8_t* p, const uint8_t* body, size_t body_size) noexcept:
    """At `p`, where there is room; it ends the output."""
    cdef Connection c = channel.connection
    cdef size_t most = c.frame_max - FRAME_OVERHEAD, piece
    while body_size:
        piece = body_size if body_size < most else most
        begin_frame(p, FRAME_BODY, channel.number, <uint32_t>piece)
        memcpy(p + 7, body, piece)
        p[7 + piece] = FRAME_END
        p += FRAME_OVERHEAD + piece
        body += piece
        body_size -= piece
    c.output_end = p - c.output
