# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The commit of a transaction: all of it in one batch of the log, or nothing.

First everything that can fail: routes are looked up anew where bindings changed, full queues refuse, and all memory that
the log, the queues and their removals need is taken.  Then nothing fails any more.  Dead letters of what was rejected
are in the batch if there is memory for them, too; else each follows in a batch of its own, as always.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

from qpidd_py.core.batch cimport RECORD_HEADER
from qpidd_py.core.channel cimport REQUEUE
from qpidd_py.core.classes cimport HIGH
from qpidd_py.core.connection cimport Connection
from qpidd_py.core.departures cimport log_dequeues
from qpidd_py.core.duplicates cimport entering
from qpidd_py.core.engine cimport Engine
from qpidd_py.core.kinds cimport make_classes
from qpidd_py.core.letters cimport refuses, send_letters
from qpidd_py.core.numbering cimport room_of
from qpidd_py.core.properties cimport addressed
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ranges cimport ranges_room
from qpidd_py.core.ring cimport priority_in
from qpidd_py.core.routes cimport Publication, Route
from qpidd_py.core.settlements cimport settle_one, trim

from qpidd_py.errors import InvariantError


cdef uint64_t commit(Channel channel) except? 0:
    """See `Channel.tx_commit`.  When it fails the channel (an exchange is gone, a queue is full), nothing is applied; the
    owner has been informed.  A MemoryError changes nothing."""
    cdef Engine engine = channel.connection.engine
    cdef list publishes = current(channel, channel.publishes), acks = channel.acks, queues
    cdef dict counts
    cdef size_t more = 0        # octets, of publishes that are numbered
    if publishes is None:
        return 0
    counts = admitted(channel, publishes, &more)
    if counts is None:
        return 0
    queues = list(counts)
    log_dequeues(engine)
    take_memory(channel, publishes, acks, counts, more)
    channel.publishes = []
    channel.acks = []
    channel.gathered = 0
    channel.committing = engine.log.whole = True
    if queues:
        engine.hold_outputs(queues)
    try:
        apply(channel, publishes, acks)
    except MemoryError as error:
        raise InvariantError("no memory in the middle of a transaction") from error
    finally:
        channel.committing = engine.log.whole = False
        if queues:
            engine.commit_outputs(engine.position, queues)
    trim(channel)
    return engine.witness() if publishes or acks else 0


cdef int apply(Channel channel, list publishes, list acks) except -1:
    cdef Engine engine = channel.connection.engine
    cdef Publication p
    cdef bytes header, body
    for p, header, body in publishes:
        channel.publish(p, <const uint8_t*>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header),
                        <const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body),
                        addressed(<const uint8_t*>PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header)))
    for tag, action in acks:
        settle_one(channel, tag, action)
    log_dequeues(engine)
    try:
        send_letters(engine, -1)
        log_dequeues(engine)
    except MemoryError:
        engine.want_turn()
    return 0


cdef int take_memory(Channel channel, list publishes, list acks, dict counts, size_t octets) except -1:
    """For all that `apply` does, but for the letters."""
    cdef Engine engine = channel.connection.engine
    cdef Publication p
    cdef Queue queue
    cdef bytes header, body, high = b""
    removed = {}
    for p, header, body in publishes:
        octets += RECORD_HEADER + 24 + p.length + len(header) + len(body)
        if not high and priority_in(<const uint8_t*>PyBytes_AS_STRING(header), len(header)) >= HIGH:
            high = header
    if high:
        make_classes(engine, list(counts), <const uint8_t*>PyBytes_AS_STRING(high), len(high))
    for queue, (count, _) in counts.items():
        octets += 4 * <size_t>count
        queue.room_for(count)
        if queue.window is not None:
            queue.window.room_for(count)
        if queue.delays is not None:
            queue.delays.room_for(count)
        if queue.limited():
            removed[queue] = count
    for tag, action in acks:
        if action != REQUEUE:
            queue = <Queue>channel.slot(tag).queue
            removed[queue] = removed.get(queue, 0) + 1
    for queue, count in removed.items():
        removal_room(queue, count)
        octets += (RECORD_HEADER + 24) * <size_t>count
    engine.log.ensure(octets)
    if [queue for queue in counts if not queue.replicated]:
        engine.local.ensure(octets)
    return 0


cdef int removal_room(Queue queue, size_t count) except -1:
    cdef Queue level
    ranges_room(&queue.gone, count)
    for level in queue.levels or ():
        ranges_room(&level.gone, count)
    return 0


cdef dict admitted(Channel channel, list publishes, size_t* more):
    """(messages, octets) that each queue gets; None when one of them is full and refuses."""
    cdef Publication p
    cdef Route route
    cdef Queue queue
    counts = {}
    for p, header, body in publishes:
        route = p.route
        if route.handler is None and addressed(
                <const uint8_t*>PyBytes_AS_STRING(header), len(header)):
            found = channel.addressed(p, header)
            if found is None:
                return None
            route = found[0]
        elif route.by_header is not None:
            route = channel.route_by_header(p, header)
            if route is None:
                return None
        if route.windows:
            route = entering(channel.connection.engine, route, <const uint8_t*>PyBytes_AS_STRING(header), len(header),
                             NULL)
        more[0] += room_of(route, p.length + len(header) + len(body))
        for queue in route.queues:
            count, octets = counts.get(queue, (0, 0))
            counts[queue] = count + 1, octets + len(body)
    for queue, (count, octets) in counts.items():
        if refuses(channel.connection.engine, queue, count, octets):
            text = f"queue '{queue.name}' is full: {queue.ready} messages, the transaction has {count} more"
            channel.connection.fail(channel.number, 406, "PRECONDITION_FAILED - " + text, 90, 20)
            return None
    return counts


cdef list current(Channel channel, list publishes):
    """The publishes with routes that are valid now, or None."""
    cdef Publication p
    cdef Connection connection = channel.connection
    found = []
    for p, header, body in publishes:
        if p.generation != connection.engine.generation:
            p = connection.publication(channel, <const uint8_t*>PyBytes_AS_STRING(p.method),
                                       <uint32_t>PyBytes_GET_SIZE(p.method))
            if p is None:
                return None
        found.append((p, header, body))
    return found
