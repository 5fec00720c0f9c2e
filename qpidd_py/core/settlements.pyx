# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Deliveries are settled: by the client, with the octets that have left, or because their channel ends.

One frame may settle all that a channel holds: it is carried out in slices (`settle_at`, `settle_to`), in which the frame
is looked at again and the rest of its connection waits.
"""
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from qpidd_py.core.channel cimport forget_slot, outstanding_slot
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.expiry cimport look_at
from qpidd_py.core.kinds cimport settled
from qpidd_py.core.returns cimport comes_back
from qpidd_py.core.ring cimport ENTRY_REDELIVERED, ENTRY_SHARED, ring_at
from qpidd_py.core.slices cimport Slice

from qpidd_py.errors import InvariantError

cdef enum:
    MANY = 32768                # slots whose memory is given back when the client has settled all


cdef int settle(Channel channel, uint64_t tag, bint multiple, int action, uint16_t method) except -1:
    """basic.ack, nack and reject, as far as a slice goes.  An unknown tag closes the channel (406), as in RabbitMQ."""
    cdef uint64_t t, first = channel.unacked_head if multiple else tag
    cdef Slice slice = channel.connection.engine.slice
    if channel.settle_to:
        first, tag, channel.settle_to = channel.settle_at, channel.settle_to, 0
    elif tag == 0 and multiple:
        tag = channel.unacked_tail - 1
    elif not channel.unacked_head <= tag < channel.unacked_tail or not outstanding_slot(channel.slot(tag)):
        return channel.connection.fail(channel.number, 406, f"PRECONDITION_FAILED - unknown delivery tag {tag}", 60, method)
    for t in range(first, tag + 1):
        if multiple and slice.spent(1):
            channel.settle_at, channel.settle_to, channel.connection.again = t, tag, True
            break
        if not outstanding_slot(channel.slot(t)):
            continue
        if channel.transactional:
            if not channel.gathers(0, method):
                return 0
            channel.slot(t).pending = IN_TRANSACTION
            channel.acks.append((t, action))
        else:
            settle_one(channel, t, action)
    trim(channel)
    return 0


cdef int settle_one(Channel channel, uint64_t tag, int action) except -1:
    """A MemoryError changes nothing."""
    cdef bint confirms
    cdef Unacked* u = channel.slot(tag)
    cdef Queue queue = (<Queue>u.queue).leaf()
    cdef Consumer consumer
    cdef Engine engine = channel.connection.engine
    cdef int64_t index
    cdef bint spent = False
    if not queue.deleted:
        index = queue.locate(u.id, u.index)
        if index < 0:
            raise InvariantError(f"unacknowledged message {u.id} is not in queue {queue.name}")
        if action == REQUEUE and queue.counts and not queue.loose and not comes_back(
                engine, queue, index, u.pending != AUTO):
            action, spent = DISCARD, True
        if action == REQUEUE:
            if queue.timed:
                look_at(engine, queue, engine.now)
            queue.requeue(index)
            engine.mark_queue(queue)
        elif action == DISCARD:
            engine.drop_message(queue if queue.parent is None else queue.parent, queue, index,
                                "delivery_limit" if spent else "rejected")
        else:
            # Inside a transaction the acknowledgement is not final yet.
            confirms = (u.id > engine.safe and not channel.committing
                        and not ring_at(&queue.main, index).flags & ENTRY_SHARED)
            queue.dequeue(index)
            engine.touch(queue, channel.committing)
            engine.want_turn()
            if confirms:
                engine.confirms.acknowledge(u.id)
        if queue.kind is not None:
            settled(engine, queue, u.id, action == REQUEUE)
    if u.consumer != NULL:
        consumer = <Consumer>u.consumer
        consumer.unacked -= 1
        channel.outstanding -= 1
        if channel.prefetch and not channel.relieved:
            channel.relieved = True
            engine.relieved.append(channel)
            engine.want_turn()
        elif consumer.queue.ready:
            engine.mark_queue(consumer.queue)
    forget_slot(u)
    return 0


cdef int settle_sent(Channel channel, uint64_t sent) except -1:
    """Settles what needs no acknowledgement and has left the socket with the first `sent` octets.

    This confirms nothing, since the octets may never arrive, and requests no turn; until the dequeue is in the log,
    a fail-over delivers the message again."""
    cdef Engine engine = channel.connection.engine
    cdef Unacked* u
    cdef Queue queue
    if channel.auto_head < channel.unacked_head:
        channel.auto_head = channel.unacked_head
    while channel.auto_count and channel.auto_head < channel.unacked_tail:
        u = channel.slot(channel.auto_head)
        if u.queue != NULL and u.pending == AUTO:
            if u.end > sent:
                break
            queue = (<Queue>u.queue).leaf()
            if not queue.deleted:
                queue.dequeue(queue.locate(u.id, u.index))
                engine.touch(queue, False)
                if queue.kind is not None:
                    settled(engine, queue, u.id, False)
            channel.auto_count -= 1
            forget_slot(u)
        channel.auto_head += 1
    trim(channel)
    return 0


cdef void trim(Channel channel) noexcept:
    while channel.unacked_head < channel.unacked_tail and channel.slot(channel.unacked_head).queue == NULL:
        channel.unacked_head += 1
    if channel.unacked_head == channel.unacked_tail and channel.unacked_mask >= MANY:
        free(channel.unacked)
        channel.unacked, channel.unacked_mask = NULL, 0


cdef int recover(Channel channel, bint requeue) except -1:
    """basic.recover: back to the queues, or (requeue false) again to the same consumers."""
    cdef uint64_t tag, last = channel.unacked_tail
    cdef Unacked* u
    cdef Queue queue
    cdef Consumer consumer
    for tag in range(channel.unacked_head, last):
        u = channel.slot(tag)
        if not outstanding_slot(u):
            continue
        consumer = <Consumer>u.consumer if u.consumer != NULL else None
        queue = (<Queue>u.queue).leaf()
        if requeue or consumer is None or not consumer.active or queue.deleted:
            settle_one(channel, tag, REQUEUE)
        else:
            redeliver(channel, tag, queue, consumer)
    trim(channel)
    return 0


cdef int redeliver(Channel channel, uint64_t tag, Queue queue, Consumer consumer) except -1:
    cdef int64_t index = queue.locate(channel.slot(tag).id, channel.slot(tag).index)
    ring_at(&queue.main, index).flags |= ENTRY_REDELIVERED
    if channel.deliver(consumer, queue, index, False):
        consumer.unacked -= 1
        channel.outstanding -= 1
        forget_slot(channel.slot(tag))
    return 0


cdef int release_all(Channel channel) except -1:
    """The channel ends: everything unsettled goes back to its queue, now or in slices of the turns that follow.  Until then
    these queues hand out nothing, so that the order holds."""
    cdef Engine engine = channel.connection.engine
    channel.auto_count = 0
    channel.drop_assembly()
    channel.publishes = channel.acks = None
    channel.held = False
    channel.answers = ()
    if not release_some(channel):
        sources(channel, 1)
        engine.returns.append(channel)
        engine.want_turn()
    return 0


cdef bint release_some(Channel channel) except -1:
    """As far as a slice goes; whether that was all."""
    cdef Slice slice = channel.connection.engine.slice
    while channel.unacked_head < channel.unacked_tail:
        if slice.spent(1):
            return False
        if channel.slot(channel.unacked_head).queue != NULL:
            settle_one(channel, channel.unacked_head, REQUEUE)
        channel.unacked_head += 1
    return True


cdef int go_on_releasing(Engine engine) except -1:
    """A slice for the channel that has waited longest."""
    cdef Channel channel = engine.returns.popleft()
    engine.slice.begin(engine.schedule is None)
    try:
        if release_some(channel):
            sources(channel, -1)
            channel = None
    finally:
        if channel is not None:
            engine.returns.append(channel)
    return 0


cdef int sources(Channel channel, int more) except -1:
    """The queues whose messages it holds have one more, or one less, to wait for."""
    cdef Queue queue, last = None
    cdef uint64_t tag
    if more > 0:
        channel.sources = set()
        for tag in range(channel.unacked_head, channel.unacked_tail):
            queue = <Queue>channel.slot(tag).queue if channel.slot(tag).queue != NULL else None
            if queue is not None and queue is not last:
                last = queue
                channel.sources.add(queue if queue.parent is None else queue.parent)
    for queue in channel.sources:
        queue.returning += more
        if not queue.returning:
            channel.connection.engine.mark_queue(queue)
    return 0


cdef int forget_returns(Engine engine) except -1:
    """The role changes, and with it every message is ready."""
    cdef Channel channel
    while engine.returns:
        channel = engine.returns.popleft()
        while channel.unacked_head < channel.unacked_tail:
            forget_slot(channel.slot(channel.unacked_head))
            channel.unacked_head += 1
        sources(channel, -1)
    return 0
