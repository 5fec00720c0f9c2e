from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int64_t

from qpidd_py.core.batch cimport LogWriter, Segment
from qpidd_py.core.delays cimport Delays
from qpidd_py.core.heap cimport Heap, heap_pop
from qpidd_py.core.ranges cimport Ranges
from qpidd_py.core.ring cimport Entry, Ring, ring_at
from qpidd_py.core.runs cimport IdRuns
from qpidd_py.core.window cimport Window

cdef uint64_t UNLIMITED

cdef class Queue:
    cdef readonly uint32_t number
    cdef readonly str name
    cdef readonly str host                  # virtual host
    cdef readonly bint replicated
    cdef readonly bint deleted
    cdef readonly uint64_t ready
    cdef readonly uint64_t unacked
    cdef readonly uint64_t bytes            # octets of the records waiting
    cdef readonly uint64_t unreadable       # messages that cannot be read back (`Segment.rotten`)
    cdef readonly uint64_t enqueued         # messages ever
    cdef readonly uint64_t dequeued
    cdef readonly uint64_t ready_bytes      # octets of the bodies that are ready
    cdef public object owner                # the broker's record of this queue
    cdef public uint64_t max_count          # limits on what is ready; UNLIMITED = none
    cdef public uint64_t max_bytes
    cdef public uint64_t ttl                # milliseconds; UNLIMITED = none
    cdef public uint32_t patience           # quarters of a second that a client may keep a delivery; 0 = the broker's
    cdef public bint rejects                # a full queue refuses the newest instead of dropping the oldest
    cdef public bint keeps                  # its dead letters stay until they have another queue (see retained.pyx)
    cdef public bint refused_die            # what it refuses goes to the dead letters
    cdef public bint shadow                 # of an exchange: has copies only, of what goes elsewhere (see shadows.pyx)
    cdef public Delays delays               # of a queue whose messages wait for their time (see waiting.pyx); else None
    cdef public object watch                # a Watch (see watch.pyx), or None
    cdef public object kind                 # LastValues or Groups (see kinds.pyx), or None
    cdef public object shares               # of its levels (see shares.pyx), or None
    cdef public Window window               # of the keys that it remembers (see duplicates.pyx); None: it takes all
    cdef public object dead_letter          # None, or where a message goes that is not consumed (see letters.pyx)
    cdef readonly list levels               # one queue for each priority, lowest first; None without priorities
    cdef public bint weighted               # gets two levels with its first high message (see classes.pyx)
    cdef uint64_t run                       # high messages that were handed out while a normal one waited
    cdef Queue parent                       # of a level
    cdef bint timed                         # some message may expire
    cdef uint64_t look_at                   # when its head is looked at next (see expiry.pyx); UNLIMITED = never
    cdef uint64_t looked_at, arrival, expiry    # id and times, in ms since 1970, of the one that `expired` saw last
    cdef Ring main
    cdef Ring side                          # a joining backup: messages of the difference, older than the live stream
    cdef void* reads_in                     # segment that the pump has read ahead of; may be gone
    cdef bint joining
    cdef uint64_t next                      # first index never handed out
    cdef readonly bint counts               # how often messages come back (see returns.pyx)
    cdef readonly uint64_t most_returns     # UNLIMITED = no limit
    cdef Ranges recounted                   # ids whose count, or place, changed in this turn
    cdef uint64_t recount_index
    cdef bint recount_noted
    cdef Heap returned                      # indexes of requeued entries below next
    cdef Ranges gone                        # ids dequeued in this turn, not yet in the log
    cdef uint64_t gone_index
    cdef uint64_t rerouted                  # generation of routes since which its bindings are others
    cdef uint64_t barrier                   # messages from this id on are not handed out; UNLIMITED = all are
    cdef list barriers                      # one for each transaction whose outputs wait, oldest first
    cdef uint64_t last_whole                # id of the newest message with FLAG_WHOLE
    cdef uint64_t delivered                 # highest id handed out
    cdef uint64_t delivered_logged
    cdef bint dirty                         # waits for the pump
    cdef int returning                      # ended channels that have yet to give back messages; it hands out nothing
    cdef bint delivery_noted
    cdef bint loose                         # was emptied to be deleted: who was handed a message may not have it any more
    cdef bint touched                       # has entries in `gone`
    cdef object roomy                       # of the engine: queues with room in their rings that they may not need
    cdef bint is_roomy                      # it is in there
    cdef uint64_t seen                      # its tail when `give_back` looked last
    cdef readonly list stuck                # (level, id) of dead letters that cannot be read; not of a level
    cdef list consumers
    cdef public bint single                 # only one consumer at a time gets messages
    cdef object chosen                      # this one; None without consumers
    cdef public bint fenced                 # it gets a token (see fencing.pyx)
    cdef object holder                      # the consumer that has the token
    cdef uint64_t token                     # position; 0 = none yet
    cdef size_t turn                        # whose turn it is
    cdef bint ranked                        # some consumer has a priority; consumers stand in their order then
    cdef inline Queue level_for(self, const uint8_t* record):
        """Where the message of this record belongs: a queue without levels is its own."""
        return self if self.levels is None else self.level_of(record)
    cdef Queue level_of(self, const uint8_t* record)
    cdef void trim(self, Ring* ring) noexcept
    cdef void note_room(self) noexcept
    cdef bint give_back(self) noexcept
    cdef inline Queue leaf(self):
        """Where the messages are of which somebody has noted that they are here."""
        return self if self.levels is None else <Queue>self.levels[0]
    cdef Queue head(self)
    cdef Queue tail(self)
    cdef inline bint limited(self) noexcept:
        """Whether a message that comes has more to do than to take its place."""
        return (self.max_count != UNLIMITED or self.max_bytes != UNLIMITED or self.watch is not None
                or self.kind is not None or self.window is not None or self.delays is not None)
    cdef inline bint over(self, uint64_t count, uint64_t octets) noexcept:
        """Beyond its limits with that much more?"""
        return self.ready + count > self.max_count or self.ready_bytes + octets > self.max_bytes
    cdef void count(self, int64_t ready, int64_t unacked, int64_t octets, int64_t body) noexcept
    cdef bint expired(self, uint64_t index, uint64_t now) except -1
    cdef uint64_t expiry_at(self, uint64_t index, uint64_t otherwise) except 0
    cdef void set_delivered(self, uint64_t id, uint32_t rank) noexcept
    cdef uint32_t rank(self) noexcept
    cdef int push(self, Segment segment, uint32_t offset, uint32_t size, uint64_t id, uint8_t flags) except -1
    cdef void flag(self, Entry* e, uint8_t flags) noexcept
    cdef int room_for(self, uint64_t more) except -1
    cdef int grow(self) except -1
    cdef int64_t first_ready(self) noexcept nogil
    cdef inline int64_t peek_ready(self) noexcept nogil:
        """The index of the message to hand out next, or -1."""
        cdef int64_t index = self.first_ready()
        return -1 if index >= 0 and ring_at(&self.main, index).id >= self.barrier else index
    cdef int hold_from(self, uint64_t id) except -1
    cdef int release_held(self) except -1
    cdef uint64_t first_whole(self, uint64_t known) noexcept
    cdef void take(self, uint64_t index) noexcept
    cdef inline void skip(self, uint64_t index) noexcept:
        """What `first_ready` answered is not ready any more."""
        if self.returned.count and self.returned.items[self.returned.start] == index:
            heap_pop(&self.returned)
        elif self.next <= index:
            self.next = index + 1
    cdef int64_t locate(self, uint64_t id, uint64_t hint) noexcept nogil
    cdef int requeue(self, uint64_t index) noexcept
    cdef void look_from(self, uint64_t index) noexcept
    cdef int dequeue(self, uint64_t index) except -1
    cdef void release(self, Entry* e) noexcept
    cdef void count_unreadable(self, int64_t more) noexcept
    cdef int remove_range(self, uint64_t low, uint64_t high) except -1
    cdef void squeeze(self) noexcept
    cdef void remove_from(self, Ring* ring, uint64_t low, uint64_t high) noexcept
    cdef int clear(self) except -1
    cdef int reset(self) except -1
    cdef int push_side(self, Segment segment, uint32_t offset, uint32_t size, uint64_t id, uint8_t flags) except -1
    cdef int merge(self) except -1
    cdef Ranges ids_of_levels(self, uint64_t first, uint64_t last) except *
    cdef bint follows(self, uint64_t index, uint64_t id) noexcept
    cdef uint64_t sweep(self, LogWriter writer, uint64_t start, uint64_t most) except? 0
    cdef Ranges ids(self, uint64_t low, uint64_t high) except *
