from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, int64_t

from cpython.ref cimport Py_DECREF

from qpidd_py.core.confirms cimport Sender
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ring cimport Entry
from qpidd_py.core.routes cimport Publication, Route

cdef class Channel(Sender)      # it and Connection know each other

from qpidd_py.core.connection cimport Connection

cdef enum:                      # what a settlement does with the message
    ACK = 0
    REQUEUE = 1
    DISCARD = 2

cdef struct Unacked:
    void* queue                 # counted; NULL when settled
    void* consumer              # counted; NULL for basic.get
    uint64_t id
    uint64_t index
    uint64_t end                # AUTO: what the connection has sent when the delivery has left the socket, in octets
    uint32_t since              # `Engine.clock` when it was handed out
    uint32_t pending            # one of the following; 0 = the client has yet to settle it

cdef enum:
    IN_TRANSACTION = 1          # settled inside an open transaction
    AUTO = 2                    # settled by itself when its octets have left the socket

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
    cdef object answers                     # deque of (position, reply): they wait, see `hold`
    cdef public uint32_t prefetch
    cdef readonly uint32_t outstanding      # deliveries to consumers, not yet settled
    cdef readonly dict consumers
    cdef bint relieved                      # its consumers may take more again: the end of the turn marks their queues
    # deliveries
    cdef Unacked* unacked
    cdef readonly uint64_t unacked_mask
    cdef uint64_t unacked_head, unacked_tail                    # delivery tag t lies at t
    cdef uint64_t auto_head                 # no AUTO slot lies before it
    cdef uint64_t auto_count                # AUTO slots
    cdef set sources                        # queues that wait until all that an ended channel held is back
    cdef uint64_t settle_at, settle_to      # a settlement that goes on in the next slice: from here, up to there; 0: none
    # publishes
    cdef Publication last
    cdef readonly uint64_t publish_tag      # of the last publish since confirm.select; 0 = none
    # a message that arrives in pieces
    cdef Publication assembling
    cdef bytes assembling_header
    cdef uint8_t* body
    cdef uint64_t body_size, body_got
    # a transaction
    cdef bint committing                    # the transaction is being applied
    cdef list publishes
    cdef list acks
    cdef size_t gathered        # octets of the publishes
    cdef bint gathers(self, size_t octets, int method) except -1
    cdef int publish(self, Publication p, const uint8_t* header, size_t header_size, const uint8_t* body,
                     size_t body_size, bint asks) except -1
    cdef void mark_consumers(self)
    cdef int hand_out(self, Consumer consumer, Queue queue, uint64_t index, Entry* e, bint no_ack) except -1
    cdef Route route_by_header(self, Publication p, bytes header)
    cdef tuple addressed(self, Publication p, bytes header)
    cdef int refuse(self, error) except -1
    cdef int unrouted(self, Publication p, Route route, const uint8_t* header, size_t header_size,
                      const uint8_t* body, size_t body_size) except -1
    cdef int assembled(self) except -1
    cdef inline Unacked* slot(self, uint64_t tag) noexcept:
        return &self.unacked[tag & self.unacked_mask]
    cdef bint slot_room(self) noexcept
    cdef uint8_t* room_to_deliver(self, uint32_t method_size, const uint8_t* record, size_t more) noexcept
    cdef int deliver(self, Consumer consumer, Queue queue, uint64_t index, bint ready) except -1
    cdef void write_content(self, uint8_t* p, const uint8_t* record, int64_t count, uint64_t token) noexcept
    cdef int confirm_at(self, uint64_t tag, uint64_t position) except -1
    cdef int write_confirm(self) except -1
    cdef int write_ack(self, uint64_t tag, bint multiple) except -1
    cdef bint answer(self, uint64_t safe) except -1
    cdef int nack(self, uint64_t tag) except -1
    cdef int header_frame(self, const uint8_t* p, size_t n) except -1
    cdef int body_frame(self, const uint8_t* p, size_t n) except -1
    cdef void drop_assembly(self) noexcept

cdef inline bint outstanding_slot(const Unacked* u) noexcept:
    return u.queue != NULL and not u.pending

cdef inline void forget_slot(Unacked* u) noexcept:
    if u.queue != NULL:
        Py_DECREF(<object>u.queue)
    if u.consumer != NULL:
        Py_DECREF(<object>u.consumer)
    u.queue = u.consumer = NULL
    u.pending = 0
