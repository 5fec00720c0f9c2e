from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int64_t

from qpidd_py.core.batch cimport Batch, LogWriter, Pool, Segment
from qpidd_py.core.confirms cimport Confirms, Sender
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.runs cimport IdRuns
from qpidd_py.core.wire cimport Frame

cdef enum:                      # what a connection expects next
    EXPECT_HEADER = 0           # the eight octets of the protocol header
    EXPECT_FRAMES = 1
    STOPPED = 2                 # closing: only methods are passed on
    LINK = 3                    # frames of the replication protocol
    DEAD = 4

cdef struct Unacked:
    void* queue                 # counted; NULL when settled
    void* consumer              # counted; NULL for basic.get
    uint64_t id
    uint64_t index
    uint64_t end                # AUTO: what the connection has sent when the delivery has left the socket, in octets
    uint32_t pending            # one of the following; 0 = the client has yet to settle it

cdef enum:
    IN_TRANSACTION = 1          # settled inside an open transaction
    AUTO = 2                    # settled by itself when its octets have left the socket

cdef class Route:
    cdef readonly list queues
    cdef readonly object by_header
    cdef readonly object handler
    cdef uint32_t replicated    # how many of the queues are
    cdef bint limited           # some queue has a limit
    cdef bint timed             # some queue has a time to live
    cdef bint refusing          # a full queue was left out

cdef class Publication:         # what a basic.publish method frame asks for, kept by its octets
    cdef Route route
    cdef bytes method           # payload of the frame
    cdef bint mandatory
    cdef uint32_t start         # exchange and routing key as they stand in the payload
    cdef uint32_t length
    cdef uint64_t generation

cdef class Consumer:
    cdef readonly Channel channel
    cdef readonly Queue queue
    cdef readonly str tag
    cdef readonly bint no_ack
    cdef readonly uint32_t prefetch
    cdef readonly uint32_t unacked
    cdef readonly int64_t priority
    cdef bytes prefix           # class, method and consumer tag of basic.deliver
    cdef bint active
    cdef bint ready(self) noexcept

cdef class Channel(Sender):
    cdef readonly Connection connection
    cdef readonly uint16_t number
    cdef public bint closing
    cdef bint _active
    cdef readonly bint confirming
    cdef readonly bint transactional
    cdef readonly bint held
    cdef public uint32_t prefetch
    cdef readonly uint32_t outstanding      # deliveries to consumers, not yet settled
    cdef readonly dict consumers
    # deliveries
    cdef Unacked* unacked
    cdef uint64_t unacked_mask, unacked_head, unacked_tail      # delivery tag t lies at t
    cdef uint64_t auto_head                 # no AUTO slot lies before it
    cdef uint64_t auto_count                # AUTO slots
    # publishes
    cdef Publication last
    cdef uint64_t publish_tag
    # a message that arrives in pieces
    cdef Publication assembling
    cdef bytes assembling_header
    cdef uint8_t* body
    cdef uint64_t body_size, body_got
    # a transaction
    cdef bint committing                    # the transaction is being applied
    cdef list publishes
    cdef list acks
    cdef bytearray stash
    cdef int publish(self, Publication p, const uint8_t* header, size_t header_size, const uint8_t* body,
                     size_t body_size) except -1
    cdef int settle(self, uint64_t tag, bint multiple, int action, uint16_t method) except -1
    cdef void mark_consumers(self)
    cdef int hand_out(self, Consumer consumer, Queue queue, uint64_t index, bint no_ack) except -1
    cdef list commit_publications(self, list publishes)
    cdef list commit_queues(self, list publishes)
    cdef Route route_by_header(self, Route route, bytes header)
    cdef int refuse(self, error) except -1
    cdef int unrouted(self, Publication p, Route route, const uint8_t* header, size_t header_size,
                      const uint8_t* body, size_t body_size) except -1
    cdef int assembled(self) except -1
    cdef int redeliver(self, uint64_t tag, Queue queue, Consumer consumer) except -1
    cdef inline Unacked* slot(self, uint64_t tag) noexcept:
        return &self.unacked[tag & self.unacked_mask]
    cdef int settle_one(self, uint64_t tag, int action) except -1
    cdef Unacked* add_unacked(self) except NULL
    cdef void trim(self) noexcept
    cdef int deliver(self, Consumer consumer, Queue queue, uint64_t index) except -1
    cdef int write_content(self, const uint8_t* record) except -1
    cdef int confirm_at(self, uint64_t tag, uint64_t position) except -1
    cdef int settle_sent(self, uint64_t sent) except -1
    cdef int write_confirm(self) except -1
    cdef int nack(self, uint64_t tag) except -1
    cdef int header_frame(self, const uint8_t* p, size_t n) except -1
    cdef int body_frame(self, const uint8_t* p, size_t n) except -1
    cdef void drop_assembly(self) noexcept

cdef class Connection:
    cdef readonly Engine engine
    cdef public object owner
    cdef public uint32_t frame_max
    cdef readonly uint64_t received
    cdef readonly uint64_t sent
    cdef readonly bint publisher
    cdef readonly int state
    cdef bint dirty
    cdef bint choked                        # its consumers wait for output to drain
    cdef readonly bint input_paused
    cdef size_t stashed
    cdef list auto_channels                 # channels with deliveries that settle themselves
    cdef list channels
    cdef dict publications
    cdef uint8_t* input
    cdef size_t input_used, input_capacity
    cdef uint8_t* output
    cdef size_t output_start, output_end, output_capacity
    cdef object out                         # a link's output: batches and frames, in order
    cdef size_t out_offset, out_octets
    cdef Transport transport
    cdef public int fd
    cdef public bint want_write
    cdef public bint receives_batches       # of the log, to be applied at once; else they are frames like others
    cdef uint8_t* room(self, size_t n) except NULL
    cdef int input_data(self, const uint8_t* p, size_t n) except -1
    cdef int input_grown(self) except -1
    cdef uint8_t* input_room(self, size_t n) except NULL
    cdef int header_received(self, bytes header) except -1
    cdef int keep_aside(self, Channel channel, const uint8_t* p, size_t n) except -1
    cdef int pause_input(self, bint paused) except -1
    cdef int replay(self, Channel channel) except -1
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

cdef class Engine:
    cdef readonly Pool pool
    cdef LogWriter log
    cdef LogWriter local
    cdef readonly uint64_t position         # of the newest operation in the log
    cdef readonly uint64_t sequence         # the newest message id; beyond position after local publishes
    cdef readonly uint64_t safe
    cdef readonly uint64_t changed          # position of the newest operation of the configuration
    cdef uint64_t replicated                # end of what `on_batch` has got
    cdef public bint passive                # a backup: decides nothing, and nothing becomes safe
    cdef readonly uint64_t published
    cdef readonly uint64_t delivered
    cdef public uint64_t now                # milliseconds since 1970, set by the shell once a turn
    cdef list expiring                      # queues with messages that may expire
    cdef object letters                     # messages that leave unconsumed, not yet sent on (see letters.pxi)
    cdef object refused                     # (queue, content) of publishes that a full queue has refused
    cdef uint64_t inherited                 # expiry of a message that moves to another queue; 0 = by its properties
    cdef public uint64_t max_message_size
    cdef public object on_batch
    cdef public object on_config
    cdef public object on_membership
    cdef public object on_removed           # see removals.pxi
    cdef dict removals                      # (queue, reason, dead) -> IdRuns
    cdef IdRuns noted                       # the last ones, and whose they are
    cdef Queue noted_queue
    cdef str noted_reason
    cdef bint noted_dead
    cdef public object schedule
    cdef readonly dict queues
    cdef uint64_t generation                # of routes
    cdef Queue last_queue
    cdef list dirty_queues, touched_queues, delivered_queues
    cdef list dirty_connections, dirty_links
    cdef list held
    cdef list awaited                       # (position, callback), see when_safe
    cdef object uncommitted                 # (position, queues) of transactions whose outputs wait, oldest first
    cdef bint safe_moved, in_turn, turn_wanted
    cdef readonly bint throttled
    cdef set publishers
    cdef Confirms confirms
    cdef uint64_t safe_at_tick
    cdef list sweeping                      # queues that the compaction has yet to visit
    cdef uint64_t sweep_at
    cdef public uint64_t sweep_most         # index entries that the compaction looks at in one tick
    cdef int compact(self) except -1
    cdef uint64_t enqueue(self, Route route, const uint8_t* exrk, size_t route_size, const uint8_t* header,
                          size_t header_size, const uint8_t* body, size_t body_size) except 0
    cdef uint64_t log_payload(self, int operation, bytes payload) except 0
    cdef uint8_t* record(self, int operation, size_t size, uint32_t queues) except NULL
    cdef void touch(self, Queue queue, bint soon) noexcept
    cdef uint64_t witness(self) except? 0
    cdef int hold_outputs(self, list queues) except -1
    cdef int commit_outputs(self, uint64_t position, list queues) except -1
    cdef int release_committed(self) except -1
    cdef int hold_confirm(self, Channel channel, uint64_t tag, uint64_t position, bint refused) except -1
    cdef void mark_queue(self, Queue queue) noexcept
    cdef int dequeue(self, Queue queue, uint64_t index) except -1
    cdef int log_dequeues(self) except -1
    cdef int log_queue_dequeues(self, Queue queue) except -1
    cdef int64_t next_message(self, Queue queue) except -2
    cdef int drop_message(self, Queue queue, Queue level, uint64_t index, str reason) except -1
    cdef int enforce(self, Queue queue) except -1
    cdef void note_timed(self, Queue queue) noexcept
    cdef int expire_heads(self) except -1
    cdef int pump(self, Queue queue) except -1
    cdef int pump_ranked(self, Queue queue) except -1
    cdef int pump_all(self) except -1
    cdef int release_confirms(self) except -1
    cdef int release_held(self) except -1
    cdef int replicate(self) except -1
    cdef int flush_connections(self) except -1
    cdef int apply_records(self, const uint8_t* p, size_t n, size_t start, bint side) except -1
    cdef int apply_batch(self, const uint8_t* p, size_t n) except -1
    cdef int apply_to(self, uint64_t last, const uint8_t* p, size_t n, size_t start) except -1
    cdef void want_turn(self) noexcept
    cdef inline void note_delivered(self, Queue queue) noexcept:
        if queue.replicated and not queue.delivery_noted:
            queue.delivery_noted = True
            self.delivered_queues.append(queue)
    cdef void forget_channel(self, Channel channel) noexcept
    cdef int apply_enqueue(self, Segment segment, const uint8_t* p, bint side) except -1
    cdef int turn(self) except -1
    cdef int log_delivered(self) except -1
    cdef int log_delivered_of(self, Queue queue) except -1
    cdef int confirm_consumed(self) except -1
    cdef Queue find_queue(self, uint32_t number)
