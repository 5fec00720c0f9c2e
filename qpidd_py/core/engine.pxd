from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int64_t

from qpidd_py.core.batch cimport Batch, LogWriter, Pool
from qpidd_py.core.confirms cimport Confirms, Sender
from qpidd_py.core.deadlines cimport Deadlines
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.removals cimport Removals
from qpidd_py.core.ring cimport Entry
from qpidd_py.core.routes cimport Publications, Route
from qpidd_py.core.slices cimport Slice

cdef class Engine:
    cdef readonly Pool pool
    cdef LogWriter log
    cdef LogWriter local
    cdef readonly uint64_t position         # of the newest operation in the log
    cdef readonly uint64_t sequence         # the newest message id; beyond position after local publishes
    cdef readonly uint64_t safe
    cdef readonly uint64_t changed          # position of the newest operation of the configuration
    cdef uint64_t replicated                # end of what `on_batch` has got
    cdef dict rotting                       # queues with messages that cannot be read back, and some that had any
    cdef public bint passive                # a backup: decides nothing, and nothing becomes safe
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef public uint64_t now                # milliseconds since 1970, set by the shell once a turn
    cdef public uint32_t clock              # quarters of a second, set by the owner; never goes back
    cdef readonly Deadlines expiries        # when to look at the heads of queues, see expiry.pyx
    cdef public object on_deadline          # called with the time, in ms since 1970, at which `expire_due` is wanted
    cdef uint64_t armed                     # what it was called with last; UNLIMITED = nothing is to come
    cdef bint expiring                      # more heads have expired than one turn looks at
    cdef bint expired                       # this turn has looked
    cdef size_t letters_left                # that this turn may send
    cdef object letters                     # messages that leave unconsumed, not yet sent on (see letters.pyx)
    cdef bint letters_wait                  # until the message of the first one has been read
    cdef set unlooked                       # last-value queues that a new primary looks through, see values.pyx
    cdef dict retained                      # letters that stay until they have another queue, see retained.pyx
    cdef uint64_t retry_at                  # when they are tried again
    cdef object refused                     # (queue, content) of publishes that a full queue has refused
    cdef readonly uint64_t unsure           # messages below may be known to clients of an earlier primary, see `begin_epoch`
    cdef uint64_t inherited                 # expiry of a message that moves to another queue; 0 = by its properties
    cdef public uint64_t max_message_size
    cdef public size_t frame_max            # octets of the largest frame that any client may take
    cdef public size_t max_transaction          # publishes and settlements; 0: no limit
    cdef public size_t max_transaction_size     # octets of its publishes, if it has several; 0: no limit
    cdef public object on_batch
    cdef public object on_applied           # a batch of the primary was applied as it arrived
    cdef public object on_config
    cdef public object on_membership
    cdef public object on_removed           # see removals.pyx
    cdef Removals removals
    cdef public object schedule
    cdef readonly dict queues
    cdef uint64_t generation                # of routes
    cdef readonly Publications publications
    cdef Queue last_queue
    cdef list dirty_queues, touched_queues, delivered_queues
    cdef list recounted_queues              # see returns.pyx
    cdef object watched                     # queues that are at one of their levels, or None, see watch.pyx
    cdef list relieved                      # channels, see Channel.relieved
    cdef int64_t pump_left                  # octets that this turn may still hand out
    cdef list dirty_connections, dirty_links
    cdef dict held                          # channels whose replies wait, in order of their first
    cdef list awaited                       # (position, callback), see when_safe
    cdef object uncommitted                 # (position, queues) of transactions whose outputs wait, oldest first
    cdef bint safe_moved, in_turn, turn_wanted
    cdef bint soon                          # dequeues do not wait for a batch that comes anyway
    cdef readonly bint throttled
    cdef set publishers
    cdef set throttles                      # causes for which publishers are not read
    cdef object paging                      # a Paging; None: every segment stays in memory
    cdef public uint64_t room               # `on_full` is called when segments hold more octets
    cdef public object on_full
    cdef public object on_short             # called when a turn lacks memory
    cdef public Slice slice                 # of the turn, see slices.pyx
    cdef object returns                     # ended channels that have yet to give back messages, in the order of their turns
    cdef object unfinished                  # connections whose input is parsed in slices, in the order of their turns
    cdef list starved                       # connections for which there was no memory, to be closed
    cdef bint short                         # the last turn was not completed
    cdef bint lacked                        # memory, since the last turn ended
    cdef public bint torn                   # a backup has applied a part of a batch: it is not whole
    cdef Confirms confirms
    cdef uint64_t safe_at_tick
    cdef object roomy                       # queues that may give back memory, see `trim_rings`
    cdef list sweeping                      # queues that the compaction has yet to visit
    cdef uint64_t sweep_at
    cdef public uint64_t sweep_most         # index entries that the compaction looks at in one tick
    cdef uint64_t enqueue(self, Route route, const uint8_t* exrk, size_t route_size, const uint8_t* header,
                          size_t header_size, const uint8_t* body, size_t body_size) except 0
    cdef uint64_t log_payload(self, int operation, bytes payload) except 0
    cdef uint8_t* record(self, int operation, size_t size, uint32_t queues) except NULL
    cdef void touch(self, Queue queue, bint soon) noexcept
    cpdef uint64_t witness(self) except? 0
    cdef int hold_outputs(self, list queues) except -1
    cdef int commit_outputs(self, uint64_t position, list queues) except -1
    cdef int release_committed(self) except -1
    cdef int forget_decisions(self) except -1
    cdef int hold_confirm(self, Sender sender, uint64_t tag, uint64_t position, bint refused) except -1
    cdef void mark_queue(self, Queue queue) noexcept
    cdef int dequeue(self, Queue queue, uint64_t index) except -1
    cdef int drop_message(self, Queue queue, Queue level, uint64_t index, str reason) except -1
    cdef int note_removal(self, Queue queue, const Entry* e, str reason, bint dead) except -1
    cdef int release_confirms(self) except -1
    cdef int release_held(self) except -1
    cdef int replicate(self) except -1
    cdef int apply_batch(self, const uint8_t* p, size_t n) except -1
    cdef Batch apply_to(self, uint64_t last, const uint8_t* p, size_t n, size_t start)
    cdef void want_turn(self) noexcept
    cdef inline void note_delivered(self, Queue queue) noexcept:
        if queue.replicated and not queue.delivery_noted:
            queue.delivery_noted = True
            self.delivered_queues.append(queue)
    cdef void forget_channel(self, Sender channel) noexcept
    cdef int shed(self) except -1
    cdef int confirm_consumed(self) except -1
