# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The turn, the log and what is safe: what connects connections and channels to the queues and to the backups.

One *turn* of the loop: input of every ready connection is parsed and acted on; then queues are pumped to their
consumers, what was dequeued is noted, the batch is sealed and handed to `on_batch` (the HA plug-in sends it to the
backups), confirms and held replies up to `safe` are released, and every connection's output goes out, once.

Positions.  `position` is that of the newest operation in the log, `safe` the highest that may be confirmed.  Messages
of queues that are not replicated count on as well (`sequence`), but are not in the log.  Without `on_batch` the engine
is alone and `safe` follows `position`; with it, `advance_safe` is called by the plug-in.

Confirms.  A publish is confirmed when the operation that made it safe is safe, or when a client has acknowledged the
message. Nothing that this broker decides by itself confirms anything: what it drops, expires, purges or moves to the
dead letters waits for its own enqueue operation like any other message; a message for no queue waits for an operation
of the open batch (`witness`), so that a primary which was deposed without knowing it confirms no such message (nor
answers a declaration of what is there already); what it puts into local queues only waits for the last change of the
configuration (`changed`).  `confirms` keeps what waits.

Memory.  An operation asks for the memory that it needs before it changes anything; what a MemoryError ends in the
middle is closed: a connection (`starve`, `shed`), or on a backup the link (`torn`).  A turn that lacks memory confirms
nothing, and goes on later where it was (`short`).

Transactions.  What a transaction puts into queues is handed out when its commit is safe (`uncommitted`,
`Queue.hold_from`): otherwise a client could have one message of a transaction that a fail-over removes completely.
"""
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from qpidd_py.core.aside cimport release_channel
from qpidd_py.core.applying cimport apply_records, drop_ids, find_queue
from qpidd_py.core.batch cimport (
    DEFAULT_SEGMENT, FLAG_PERSISTENT, FLAG_TIMED, FLAG_WHOLE, LINK_HEADER, LINK_MAGIC, OP_CONFIG, OP_ENQUEUE, OP_MARK,
    OP_MEMBERSHIP, RECORD_HEADER, check_link_frame)
from qpidd_py.core.channel cimport Channel, Consumer
from qpidd_py.core.compaction cimport compact, trim_rings
from qpidd_py.core.connection cimport Connection
from qpidd_py.core.deadlines cimport Deadlines
from qpidd_py.core.departures cimport log_delivered_of, log_dequeues
from qpidd_py.core.expiry cimport after, look_at
from qpidd_py.core.kinds cimport came, make_classes, taken_over
from qpidd_py.core.letters cimport give_up_stuck, is_stuck, move_messages, put, send_letters_of, waits_for_any
from qpidd_py.core.numbering cimport enqueue_numbered
from qpidd_py.core.paging cimport forget_waiters
from qpidd_py.core.properties cimport Peeked, peek_properties
from qpidd_py.core.queue cimport UNLIMITED
from qpidd_py.core.retained cimport try_again
from qpidd_py.core.returns cimport log_departures
from qpidd_py.core.ring cimport ENTRY_SHARED, ring_at, ring_full
from qpidd_py.core.settlements cimport forget_returns
from qpidd_py.core.slices cimport Slice
from qpidd_py.core.turn cimport end_turn, shed
from qpidd_py.core.waiting cimport enqueue_later
from qpidd_py.core.wire cimport be16, le32, le64, putle16, putle32, putle64

from qpidd_py.errors import InvariantError, LinkError

cdef enum:
    RELEASE = 8                 # units of work that an answer takes for which a channel has waited

cdef uint64_t SEQUENCE_BITS = 48
cdef uint64_t SEQUENCE_MASK = (<uint64_t>1 << 48) - 1

cdef class Engine:
    """One broker's log, queues and connections.  No clock, no socket: the reactor (or a test) drives it."""

    def __cinit__(self, on_config=None, size_t segment_size=DEFAULT_SEGMENT):
        self.pool = Pool(segment_size)
        self.log = LogWriter(self.pool, True)
        self.local = LogWriter(self.pool, False)
        self.on_config = on_config
        self.max_message_size = 128 << 20
        self.frame_max = 131072
        self.sweep_most = 50000
        self.queues = {}
        self.rotting = {}
        self.dirty_queues = []
        self.touched_queues = []
        self.delivered_queues = []
        self.recounted_queues = []
        self.relieved = []
        self.dirty_connections = []
        self.dirty_links = []
        self.confirms = Confirms()
        self.held = {}
        self.awaited = []
        self.sweeping = []
        self.roomy = deque()
        self.expiries = Deadlines()
        self.letters = deque()
        self.uncommitted = deque()
        self.removals = Removals()
        self.refused = deque()
        self.retained = {}
        self.unlooked = set()
        self.publishers = set()
        self.throttles = set()
        self.starved = []
        self.slice = Slice()
        self.returns = deque()
        self.unfinished = deque()
        self.room = self.armed = UNLIMITED
        self.generation = 1
        self.publications = Publications()

    @property
    def epoch(self):
        return self.position >> SEQUENCE_BITS

    @property
    def waiting_confirms(self):
        """Publishes that are neither safe nor acknowledged by a consumer yet."""
        return self.confirms.waiting

    @property
    def unlogged(self):
        """Whether there are dequeues that only a later turn puts into the log."""
        return bool(self.touched_queues)

    # ---------------------------------------------------------------- queues and configuration

    def create_queue(self, uint32_t number, str name, bint replicated, str host="/"):
        if number in self.queues:
            raise InvariantError(f"queue number {number} of {name!r} is taken by {self.queues[number].name!r}")
        cdef Queue queue = Queue(number, name, replicated, host)
        queue.roomy = self.roomy
        self.queues[number] = queue
        return queue

    def delete_queue(self, Queue queue):
        """Forgets a queue with its messages; its subscriptions as (owner, channel, consumer tag)."""
        cdef Consumer c
        cancelled = []
        for c in list(queue.consumers):
            cancelled.append((c.channel.connection.owner, c.channel.number, c.tag))
            c.channel.cancel(c.tag)
        del self.queues[queue.number]
        self.expiries.drop(queue)
        self.retained.pop(queue, None)
        self.unlooked.discard(queue)
        self.last_queue = None
        if self.on_removed is not None and self.removals.note_all(queue, "deleted", True):
            self.want_turn()
        queue.clear()
        queue.deleted = True
        queue.owner = queue.dead_letter = queue.kind = None     # they know it: it is freed with its last reference
        if queue.watch is not None:
            queue.watch.on_change = None
            self.want_turn()
        for level in queue.levels or ():
            (<Queue>level).deleted = True
            (<Queue>level).parent = None
        self.forget_routes(queue)
        return cancelled

    def purge(self, Queue queue):
        """Drops what is ready, at once; answers how many messages that were."""
        count, done = 0, False
        while not done:
            self.begin_slice()
            some, done = self.purge_some(queue, self.sequence)
            count += some
        return count

    def purge_some(self, Queue queue, uint64_t last, str reason="purged"):
        """Drops what is ready, of the messages up to `last`, as far as the slice goes: how many, and whether that was all.
        A purge drops dead letters that cannot be read, too.
        Each slice is in the log of its own turn: a fail-over between two keeps the rest."""
        cdef Queue level
        cdef uint64_t count = give_up_stuck(self, queue, reason) if reason == "purged" else 0
        cdef int64_t index
        for level in queue.levels or (queue,):
            index = level.first_ready()
            while index >= 0 and ring_at(&level.main, index).id <= last:
                if self.slice.spent(1):
                    return count, False
                if self.on_removed is not None:
                    self.note_removal(queue, ring_at(&level.main, index), reason, False)
                self.dequeue(level, index)
                level.skip(index)
                index = level.first_ready()
                count += 1
        return count, True

    def begin_slice(self):
        """For work that is called from outside the turn, in slices of its own."""
        self.slice.begin(self.schedule is None)

    def log_config(self, bytes payload):
        """Appends a configuration operation; its position."""
        self.changed = self.log_payload(OP_CONFIG, payload)
        return self.changed

    def log_membership(self, bytes payload):
        return self.log_payload(OP_MEMBERSHIP, payload)

    cdef uint64_t log_payload(self, int operation, bytes payload) except 0:
        cdef size_t size = RECORD_HEADER + PyBytes_GET_SIZE(payload)
        cdef uint8_t* p = self.record(operation, size, 0)
        memcpy(p + RECORD_HEADER, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        return self.position

    cpdef uint64_t witness(self) except? 0:
        """The position of an operation that no backup has seen yet; one that changes nothing if there is none.

        It becomes safe only if this broker is still the primary; then everything logged before it is safe, too."""
        if self.passive:
            return 0
        if self.position == self.replicated and self.on_batch is not None:
            self.record(OP_MARK, RECORD_HEADER, 0)
        return self.position

    cdef uint8_t* record(self, int operation, size_t size, uint32_t queues) except NULL:
        """The next operation of the log, with its header written; a MemoryError changes nothing."""
        cdef uint8_t* p = self.log.reserve(size, self.sequence + 1)
        self.sequence += 1
        self.position = self.sequence
        putle32(p, <uint32_t>size)
        p[4] = operation
        p[5] = 0
        putle16(p + 6, queues)
        putle64(p + 8, self.position)
        self.want_turn()
        return p

    def forget_routes(self, changed=None):
        """Exchanges or bindings changed: routes that depend on what has `changed` are asked for again: those of a routing
        key (bytes), to a queue, by way of an exchange (its Mark), or all."""
        self.generation += 1
        self.publications.changed(changed, self.generation)

    # ---------------------------------------------------------------- messages in

    cdef uint64_t enqueue(self, Route route, const uint8_t* exrk, size_t route_size, const uint8_t* header,
                          size_t header_size, const uint8_t* body, size_t body_size) except 0:
        """One publish: one record, an entry in each queue.  A MemoryError changes nothing."""
        cdef uint32_t replicated = route.replicated, at = 16
        cdef LogWriter writer = self.log if replicated else self.local
        cdef Peeked found
        cdef bint timed
        cdef size_t size
        cdef uint8_t* p
        cdef uint8_t* record
        cdef uint32_t offset
        cdef uint64_t position, last, expiry
        cdef Queue queue
        cdef uint8_t flags = ENTRY_SHARED if len(route.queues) > 1 else 0
        if route.apart:
            if route.numbering is not None:
                return enqueue_numbered(self, route, exrk, route_size, header, header_size, body, body_size)
            return enqueue_later(self, route, exrk, route_size, header, header_size, body, body_size)
        peek_properties(header, header_size, &found)
        timed = route.timed or found.expiration != UNLIMITED
        expiry = self.inherited if self.inherited else after(self.now, found.expiration)
        size = RECORD_HEADER + 4 * <size_t>replicated + (24 if timed else 8) + route_size + header_size + body_size
        if size > 0xF0000000:
            raise InvariantError(f"message of {size} octets does not fit a record")
        if be16(header + 12) & 0x0800:      # it has a priority
            make_classes(self, route.queues, header, header_size)
        position = self.sequence + 1
        last = writer.last
        record = p = writer.reserve(size, position)
        offset = <uint32_t>(p - writer.segment.data)
        putle32(p, <uint32_t>size)
        p[4] = OP_ENQUEUE
        p[5] = ((FLAG_PERSISTENT if found.persistent else 0) | (FLAG_TIMED if timed else 0) |
                (FLAG_WHOLE if self.log.whole else 0))
        putle16(p + 6, replicated)
        putle64(p + 8, position)
        for queue in route.queues:
            if timed or queue.levels is not None or ring_full(&queue.main):
                try:
                    queue.room_for(1)
                    if timed:
                        look_at(self, queue, after(min(expiry, after(self.now, queue.ttl)), 1))
                except MemoryError:
                    writer.take_back(size, last)
                    raise
            if queue.replicated:
                putle32(p + at, queue.number)
                at += 4
        self.sequence = position
        if replicated:
            self.position = position
        p += at
        putle16(p, <uint32_t>route_size)
        putle16(p + 2, 0)
        putle32(p + 4, <uint32_t>header_size)
        p += 8
        if timed:
            putle64(p, self.now)
            putle64(p + 8, expiry)
            p += 16
        memcpy(p, exrk, route_size)
        memcpy(p + route_size, header, header_size)
        if body_size:
            memcpy(p + route_size + header_size, body, body_size)
        self.published += 1
        self.slice.units -= <int>(len(route.queues) + (size >> 12))
        for queue in route.queues:
            queue.level_for(record).push(writer.segment, offset, <uint32_t>size, position, flags)
            if not queue.dirty:
                self.mark_queue(queue)
        if route.limited:
            for queue in route.queues:
                if queue.limited():
                    came(self, queue, record)
        return position

    def publish(self, Route route, bytes exchange, bytes routing_key, bytes header, bytes body):
        """A message that the broker itself puts into queues; its position, 0 if no queue takes it."""
        return put(self, route, exchange, routing_key, header, body)

    def move(self, Queue queue, uint64_t limit, route):
        """Moves up to `limit` of the messages that are ready now, in order; answers how many.

        `route(exchange, routing key, header)` says where to, as a Route (without queues: the message goes for good), or
        None to end it here; a full queue that refuses it ends it, too, and so does a message that is not in memory
        (`paging.soon`).  Each leaves in the batch that has its copy."""
        return move_messages(self, queue, limit, route, True, True, None)

    def drain(self, Queue queue, route, waiter=None):
        """As `move` for all that is in a queue which is about to be deleted, handed out or not; its dead letters are
        sent, too.  What a full queue refuses is gone.  False when the queue has to stay for now, with something that has
        to be read first (`waiter` is called when it is worth another attempt; without one it is read at once), or cannot
        be read.  What is in memory or in front of that is sent on meanwhile; what clients hold stays theirs."""
        cdef uint64_t barrier
        if self.pool.paged:
            move_messages(self, queue, UNLIMITED, route, False, waiter is not None, waiter)
            if queue.ready or waits_for_any(self, queue, waiter):
                return False
        barrier = queue.barrier
        send_letters_of(self, queue)
        log_dequeues(self)
        queue.reset()
        if barrier != UNLIMITED:
            queue.hold_from(barrier)
        queue.loose = True
        for level in queue.levels or ():
            (<Queue>level).loose = True
        move_messages(self, queue, UNLIMITED, route, False, False, None)
        send_letters_of(self, queue)
        return True

    def relimit(self, Queue queue):
        """Its limits or its time to live have changed: drops what is too much, and what has expired, in the next turns.
        The log of another primary decides that on a backup."""
        if not self.passive:
            look_at(self, queue, self.now)
            self.mark_queue(queue)

    def settle(self, Queue queue, waiter=None):
        """Sends the dead letters of a queue which is about to be deleted.  False when it has to stay, since one cannot
        be read; `waiter` as for `drain`."""
        send_letters_of(self, queue)
        return not is_stuck(queue, waiter)

    # ---------------------------------------------------------------- messages out

    cdef int drop_message(self, Queue queue, Queue level, uint64_t index, str reason) except -1:
        """A message that was taken leaves without having been consumed: for good, or as a dead letter."""
        self.slice.units -= 1
        if queue.dead_letter is None or queue.deleted:
            if self.on_removed is not None and not queue.shadow:
                self.note_removal(queue, ring_at(&level.main, index), reason, False)
            return self.dequeue(level, index)
        self.letters.append((queue, level, ring_at(&level.main, index).id, index, reason))
        self.want_turn()
        return 0

    cdef int note_removal(self, Queue queue, const Entry* e, str reason, bint dead) except -1:
        if self.removals.note(queue, e, reason, dead):
            self.want_turn()
        return 0

    cdef void mark_queue(self, Queue queue) noexcept:
        if queue.parent is not None:
            queue = queue.parent
        if not queue.dirty:
            queue.dirty = True
            self.dirty_queues.append(queue)
        self.want_turn()

    cdef int dequeue(self, Queue queue, uint64_t index) except -1:
        queue.dequeue(index)
        self.touch(queue, True)
        return 0

    cdef void touch(self, Queue queue, bint soon) noexcept:
        """The queue's dequeues go into the log: with the turn that this asks for, or (not `soon`) with a batch that comes
        anyway, see turn.pyx."""
        if not queue.replicated or queue.deleted:
            return
        if not queue.touched:
            queue.touched = True
            self.touched_queues.append(queue)
        if soon:
            self.soon = True
            self.want_turn()

    def repeat_delivered(self):
        """Logs each queue's delivered position again, for a backup that joined later."""
        cdef Queue queue, level
        for queue in list(self.queues.values()):
            for level in queue.levels or (queue,):
                if level.replicated and level.delivered and (level.ready or level.unacked):
                    log_delivered_of(self, level)

    # ---------------------------------------------------------------- confirms

    cdef int hold_confirm(self, Sender sender, uint64_t tag, uint64_t position, bint refused) except -1:
        """Holds back the confirm of a publish that was put into no replicated queue until `position` is safe."""
        if self.confirms.add(sender, tag, 0 if position <= self.safe else position, self.sequence + 1, True, refused):
            self.want_turn()
        return 0

    cdef int release_confirms(self) except -1:
        """Everything up to `safe` is released; one basic.ack per channel."""
        cdef Channel channel
        if self.confirms.release_to(self.safe):
            self.want_turn()
        while self.confirms.due:
            for channel in self.confirms.take_due():
                channel.write_confirm()
        return 0

    cdef void forget_channel(self, Sender channel) noexcept:
        """Its confirms and held replies can no longer be written."""
        self.confirms.forget(channel)
        self.held.pop(channel, None)

    cdef int confirm_consumed(self) except -1:
        """Confirms, one by one, what was acknowledged behind publishes that still wait (a backup does not answer)."""
        cdef Channel channel
        for channel, tag in self.confirms.acknowledged():
            channel.write_ack(tag, False)
        return 0

    def advance_safe(self, uint64_t position):
        """Operations up to `position` are safe: their confirms and replies go out at the end of the turn."""
        if position > self.safe:
            self.safe = position
            self.safe_moved = True
            self.want_turn()

    def when_safe(self, uint64_t position, call):
        """Calls `call(True)` as soon as `position` is safe (on a backup at once), or `call(False)` if this broker is
        deposed before."""
        if position <= self.safe or self.passive:
            call(True)
        else:
            self.awaited.append((position, call))
            self.want_turn()

    cdef int release_held(self) except -1:
        cdef Channel channel
        cdef uint64_t position
        self.safe_moved = False
        self.slice.begin(self.schedule is None)
        self.release_committed()
        if self.awaited:
            due = [call for awaited, call in self.awaited if <uint64_t>awaited <= self.safe]
            self.awaited = [item for item in self.awaited if <uint64_t>item[0] > self.safe]
            for call in due:
                call(True)
        for channel in list(self.held):
            if channel.held and channel.answer(self.safe):
                self.held.pop(channel, None)
                try:
                    release_channel(channel.connection, channel)
                except MemoryError:
                    channel.connection.starve()
                if self.slice.spent(RELEASE):
                    self.safe_moved = True      # the next turn goes on
                    self.want_turn()
                    break
        return 0

    # ---------------------------------------------------------------- transactions

    cdef int hold_outputs(self, list queues) except -1:
        """What comes into these queues from here on is handed out when `commit_outputs` has its position safe."""
        cdef Queue queue
        for queue in queues:
            queue.hold_from(self.sequence + 1)
        return 0

    cdef int commit_outputs(self, uint64_t position, list queues) except -1:
        self.uncommitted.append((position, queues))
        if position <= self.safe:
            self.release_committed()
        return 0

    cdef int release_committed(self) except -1:
        """Hands out what safe transactions have put into queues; in order of their positions."""
        cdef Queue queue
        while self.uncommitted and <uint64_t>self.uncommitted[0][0] <= self.safe:
            for queue in self.uncommitted[0][1]:
                if queue.timed:
                    look_at(self, queue, self.now)
            for queue in self.uncommitted.popleft()[1]:
                queue.release_held()
                self.mark_queue(queue)
        return 0

    # ---------------------------------------------------------------- the turn

    cdef void want_turn(self) noexcept:
        if not self.turn_wanted:
            self.turn_wanted = True
            if not self.in_turn and self.schedule is not None:
                self.schedule()

    def end_turn(self, bint linger=False):
        """See turn.pyx."""
        end_turn(self, linger)

    cdef int shed(self) except -1:
        return shed(self)

    def flush(self):
        """Seals what is pending; the position of the log's end."""
        log_departures(self)  # a client may have got a message by basic.get in this turn
        self.replicate()
        return self.position

    def removed(self):
        """What left unconsumed since the last call: (queue, reason, goes on as a dead letter, IdRuns) of each kind."""
        return self.removals.take()

    @property
    def removing(self):
        """(queue, reason, goes on as a dead letter) of what `removed` would answer."""
        return list(self.removals.found)

    cdef int replicate(self) except -1:
        cdef Batch batch
        if self.removals.found and self.on_removed is not None:
            self.on_removed()
        batches = self.log.take()
        self.replicated = self.position
        for batch in batches:
            if self.on_batch is not None:
                try:
                    self.on_batch(batch)
                except MemoryError as error:
                    raise InvariantError("no memory for a batch that some backups may have got") from error
        if self.on_batch is None and self.safe < self.position:
            self.safe = self.position
            self.safe_moved = True
        return 0

    def tick(self):
        """Low-frequency duties; call a few times a second.  Confirms what was consumed while backups do not answer, and
        frees memory."""
        if self.confirms.waits_for_any() and self.safe == self.safe_at_tick:
            self.confirm_consumed()
        self.safe_at_tick = self.safe
        try:
            compact(self)
            trim_rings(self)
        except MemoryError:
            self.short = True
        self.pool.trim_idle()
        if self.retained:
            try_again(self)
        self.expiring = self.expiries.waits(self.now)
        if self.turn_wanted or self.touched_queues or self.short or self.expiring:
            self.end_turn()

    def expire_due(self):
        """It is `now`: what has expired leaves, and the turn ends."""
        self.armed = UNLIMITED
        self.expiring = self.expiries.waits(self.now)
        self.end_turn()

    def throttle(self, bint on, str cause):
        """Stops reading from connections that publish, until each cause has ended: this bounds memory."""
        cdef Connection c
        if on:
            self.throttles.add(cause)
        else:
            self.throttles.discard(cause)
        on = self.throttled = bool(self.throttles)
        for c in self.publishers:
            if c.input_paused != on and (on or c.may_read()):
                c.pause_input(on)

    # ---------------------------------------------------------------- roles

    cdef int forget_decisions(self) except -1:
        """That were not carried out when the role changed."""
        for pending in (self.letters, self.retained, self.unlooked, self.refused, self.uncommitted):
            pending.clear()
        return 0

    def begin_epoch(self, uint64_t epoch, uint64_t unsure=0):
        """This broker becomes primary: positions go on counting in the new epoch, every message is ready.  `unsure`: messages
        of epochs before this one may have been handed out, or sent on, by a primary of whose last turns this broker does not
        know.  They say `redelivered`, and what is sent on of them `x-resent`; they have not come back, so nothing counts."""
        cdef Queue queue
        if epoch <= self.sequence >> SEQUENCE_BITS:
            raise InvariantError(f"epoch {epoch} after {self.sequence >> SEQUENCE_BITS}")
        if epoch >> 16:
            raise InvariantError(f"epoch {epoch} is beyond 65535")
        self.flush()
        forget_returns(self)
        self.forget_decisions()
        self.position = self.sequence = (epoch << SEQUENCE_BITS) | (self.sequence & SEQUENCE_MASK)
        self.unsure = unsure << SEQUENCE_BITS
        self.changed = self.replicated = self.position      # nothing of what was taken over is known to be safe
        for queue in self.queues.values():
            queue.reset()
            queue.look_at = UNLIMITED
            if queue.timed:
                look_at(self, queue, self.now)
            if queue.limited():
                taken_over(self, queue)

    def hold_inherited(self, uint64_t known):
        """What a new primary has taken over of transactions above `known` is handed out when all of that is safe:
        another broker may be promoted that has nothing of it, and no client may have seen a part.  `known`: 0 when
        nothing is."""
        cdef Queue queue
        cdef uint64_t first
        cdef list held = []
        for queue in self.queues.values():
            first = queue.first_whole(known)
            if first != UNLIMITED:
                queue.hold_from(first)
                held.append(queue)
        if held:
            self.commit_outputs(self.position, held)

    def demote(self):
        """This broker is no longer primary: nothing that waits is ever confirmed, every message is ready.

        The owner of the connections closes them first."""
        cdef Queue queue
        cdef Channel channel
        for channel in self.confirms.forget_all():
            channel.closing = True
        self.held.clear()
        forget_returns(self)
        forget_waiters(self)
        awaited, self.awaited = self.awaited, []
        for _, call in awaited:
            call(False)
        self.touched_queues = []
        self.soon = False
        self.delivered_queues = []
        self.recounted_queues = []
        self.dirty_queues = []
        self.expiries = Deadlines()
        self.forget_decisions()
        self.log.take()
        for queue in self.queues.values():
            queue.delivery_noted = False
            queue.look_at = UNLIMITED
            if queue.replicated:
                queue.reset()
            else:
                queue.clear()
                queue.reset()
                if queue.window is not None:
                    queue.window.forget()

    # ---------------------------------------------------------------- a backup applies the log

    def apply(self, bytes batch):
        """Applies one batch as it came from the primary (header and records)."""
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(batch)
        cdef size_t n = PyBytes_GET_SIZE(batch)
        if n < LINK_HEADER or le32(p) != LINK_MAGIC or le32(p + 4) != n - LINK_HEADER or not check_link_frame(p, n):
            raise LinkError(f"not a batch: {n} octets")
        self.apply_batch(p, n)

    cdef int apply_batch(self, const uint8_t* p, size_t n) except -1:
        cdef Batch batch = self.apply_to(le64(p + 8), p, n, LINK_HEADER)
        if self.on_applied is not None:
            self.on_applied(batch)
        return 0

    def apply_held(self, uint64_t last, bytes records):
        """Applies a batch that was held back: what came in its frame behind the header, and its position."""
        self.apply_to(last, <const uint8_t*>PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records), 0)

    cdef Batch apply_to(self, uint64_t last, const uint8_t* p, size_t n, size_t start):
        if last <= self.position:
            raise LinkError(f"batch ends at position {last}, the log is at {self.position} already")
        cdef Batch batch = apply_records(self, p, n, start, False)
        self.position = self.sequence = batch.last = last
        return batch

    def apply_slice(self, bytes records):
        """Messages of the difference, older than the live stream, in order for each queue."""
        apply_records(self, <const uint8_t*>PyBytes_AS_STRING(records), PyBytes_GET_SIZE(records), 0, True)

    def drop(self, uint32_t number, bytes ids):
        """Removes the messages that a joining backup holds and the primary does not."""
        drop_ids(self, number, ids)

    def merge(self, uint32_t number):
        """The difference of one queue is complete."""
        cdef Queue queue = find_queue(self, number)
        queue.merge()
        if queue.window is not None:
            queue.window.settle()

    def set_position(self, uint64_t position):
        """A backup that joins takes over the primary's end of the log (the cut)."""
        self.position = self.sequence = position
