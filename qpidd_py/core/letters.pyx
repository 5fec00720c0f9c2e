# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages that leave a queue for another: dead letters, moved ones, what a deleted queue leaves.

Theory.  A message that is not consumed (rejected, expired, pushed out, refused) is noted in `Engine.letters`; it
keeps its place in its queue, as if it were handed out, until the letter is sent: at the beginning of the next round
of a turn, so many in each turn, which asks for the next one.  So there is no recursion, however queues push messages into one another, and no loop of letters
stops the broker. `Queue.dead_letter(reason, exchange, routing key, header, body)` answers (Route, exchange, routing
key, header) of what to publish, or None to drop the message.  The copy and the removal stand in one batch of the log:
after a fail-over the message is in its queue or where it was sent to, never in both, never in none.  A backup applies
both and decides nothing. A role change empties `letters`: the messages are still in their queues.  So they are, noted as
`Queue.stuck`, when they cannot be read. What a full queue
refuses (x-overflow reject-publish-dlx) is noted in `Engine.refused` with its content, for it is nowhere else.  If it
is itself the copy of a letter, it is sent on in the same batch: `refused` is empty when `transfer` ends.  A letter for
which there is no memory waits for a later turn, and all wait for one whose message must be read from the page file.
"""
from collections import deque
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

from qpidd_py.core.batch cimport RECORD_HEADER, Segment, lengths_of
from qpidd_py.core.departures cimport log_delivered_of, log_queue_dequeues
from qpidd_py.core.duplicates cimport make_room
from qpidd_py.core.expiry cimport expire_queue
from qpidd_py.core.numbering cimport count
from qpidd_py.core.paging cimport at_hand
from qpidd_py.core.pump cimport pump, take_and_drop
from qpidd_py.core.ranges cimport ranges_room
from qpidd_py.core.retained cimport lands, one_more, retain
from qpidd_py.core.ring cimport ENTRY_TIMED, GONE, Entry, content_of, record_of, ring_at
from qpidd_py.core.shadows cimport shadows_of
from qpidd_py.core.stamps cimport with_resent
from qpidd_py.core.watch cimport note_overflow
from qpidd_py.core.wire cimport le64

from qpidd_py.errors import InvariantError, PageError


cdef enum:
    COST = 16                   # units of a letter, for which Python is asked


cdef size_t send_letters(Engine engine, size_t most) except? 0:
    """Sends up to `most` letters that wait; how many.  What these cause in turn waits for the next time."""
    cdef size_t n, sent = send_refused(engine, most)
    for n in range(min(most - sent, <size_t>len(engine.letters))):
        if readable(engine, engine.letters[0]):
            send_letter(engine, engine.letters[0])
            sent += 1
        elif engine.letters_wait:
            break
        engine.letters.popleft()
        if most != <size_t>-1 and engine.slice.spent(COST):
            return most         # of this turn
    return sent


cdef bint readable(Engine engine, tuple note) except -1:
    """False when the letter's message is not in memory: all letters wait until it has been read.  One that cannot be
    read is no letter any more: it stays where it is, as if it were handed out, until the role changes or it is given up."""
    cdef Queue queue = note[0], level = (<Queue>note[1]).leaf()
    cdef int64_t index = -1 if queue.deleted else level.locate(note[2], note[3])
    if index >= 0 and engine.pool.paged and not at_hand(level, index, engine):
        engine.letters_wait = not (<Segment>ring_at(&level.main, index).segment).rotten
        if not engine.letters_wait:
            queue.stuck.append((level, note[2]))
        return False
    return not engine.letters_wait


cdef size_t send_refused(Engine engine, size_t most) except? 0:
    """Sends the messages that full queues refused; this ends, since no message reaches a queue twice this way."""
    cdef Queue queue
    cdef size_t sent = 0
    while engine.refused and sent < most:
        sent += 1
        queue, content = engine.refused[0]
        letter = None if queue.deleted else queue.dead_letter("maxlen", *content)
        if letter is not None:
            route, exchange, routing_key, header = letter
            put(engine, route, exchange, routing_key, header, content[3])
        engine.refused.popleft()
        if most != <size_t>-1 and engine.slice.spent(COST):
            return most
    return sent


cdef int send_letters_of(Engine engine, Queue queue) except -1:
    """Sends the letters of one queue, before it is deleted."""
    waiting = deque([letter for letter in engine.letters if letter[0] is queue])
    if waiting:
        engine.letters = deque([letter for letter in engine.letters if letter[0] is not queue])
    try:
        while waiting:
            try:
                send_letter(engine, waiting[0])
            except PageError:
                queue.stuck.append((waiting[0][1], waiting[0][2]))
            waiting.popleft()
    finally:
        engine.letters.extend(waiting)
    return 0


cdef bint waits_for_any(Engine engine, Queue queue, waiter) except -1:
    """Whether a queue that is to be deleted holds something that cannot be read, of what clients hold and of its letters;
    `waiter` looks again then.  The rest is in memory after that."""
    cdef Queue level
    cdef uint64_t i
    for level in queue.levels if queue.levels is not None else (queue,):
        for i in range(level.main.head, level.main.tail):
            if ring_at(&level.main, i).state != GONE and not at_once(level, i):
                if waiter is not None:
                    at_hand(level, i, waiter)
                return True
    return False


cdef bint is_stuck(Queue queue, waiter) except -1:
    """Whether it has letters that cannot be read; `waiter` looks again then."""
    cdef Queue level
    if queue.stuck and waiter is not None:
        level, id = queue.stuck[0]
        level = level.leaf()
        at_hand(level, level.locate(id, 0), waiter)
    return bool(queue.stuck)


cdef uint64_t give_up_stuck(Engine engine, Queue queue, str reason) except? 0:
    """Drops the letters that cannot be read; how many.  After a MemoryError the rest is still noted."""
    cdef Queue level
    cdef int64_t index
    cdef uint64_t count = 0
    while queue.stuck:
        level, id = queue.stuck[0]
        level = level.leaf()
        index = level.locate(id, 0)
        if index < 0:
            raise InvariantError(f"dead letter {id} is not in queue {queue.name}")
        if engine.on_removed is not None:
            engine.note_removal(queue, ring_at(&level.main, index), reason, False)
        engine.dequeue(level, index)
        del queue.stuck[0]
        count += 1
    return count


cdef bint at_once(Queue level, uint64_t index) except -1:
    """False when it cannot be read."""
    try:
        record_of(ring_at(&level.main, index))
    except PageError:
        return False
    return True


cdef int send_letter(Engine engine, tuple note) except -1:
    cdef Queue queue, level
    cdef int64_t index
    queue, level, id, hint, reason = note
    level = level.leaf()
    if queue.deleted:
        return 0
    index = level.locate(id, hint)
    if index < 0:
        raise InvariantError(f"dead letter {id} is not in queue {queue.name}")
    content = content_of(ring_at(&level.main, index))
    letter = queue.dead_letter(reason, *content)
    if queue.keeps and letter is not None and not lands(engine, queue, letter[0], len(content[3])):
        return retain(engine, note)
    index = level.locate(id, index)         # a consumer of a target may have made room
    if engine.on_removed is not None:
        engine.note_removal(queue, ring_at(&level.main, index), reason, letter is not None)
    if letter is None:
        return engine.dequeue(level, index)
    route, exchange, routing_key, header = letter
    transfer(engine, level, index, route, exchange, routing_key, header, content[3])
    return one_more(engine, queue) if queue.keeps else 0


cdef int transfer(Engine engine, Queue level, uint64_t index, Route route, bytes exchange, bytes routing_key,
                  bytes header, bytes body, Queue moved_from=None) except -1:
    """Publishes the copy and removes the message, in one batch; a moved one (not a letter) may find no queue.
    A copy that an earlier primary may have made as well says so."""
    cdef bint whole = engine.log.whole
    cdef uint64_t taken, id = ring_at(&level.main, index).id
    cdef bint held = id >= level.barrier        # of a transaction that is not safe: the copy waits as well
    cdef size_t room
    if id < engine.unsure:
        header = with_resent(header, engine.frame_max)
    room = (4 * RECORD_HEADER + 128 + 4 * len(route.queues) + len(exchange) + len(routing_key) + len(header)
            + len(body) + 16 * level.gone.count)
    ranges_room(&level.gone, 1)
    engine.log.ensure(room)
    engine.log.whole = True
    if held:
        engine.hold_outputs(route.queues)
    try:
        taken = put(engine, route, exchange, routing_key, header, body)
        if (not taken or route.nowhere) and moved_from is not None and engine.on_removed is not None:
            engine.note_removal(moved_from, ring_at(&level.main, level.locate(id, index)), "unroutable", False)
        try:
            send_refused(engine, -1)
        except MemoryError:
            engine.want_turn()
        level = level.leaf()                                # the copy, or what was refused, may have split its queue
        engine.dequeue(level, level.locate(id, index))      # or have moved it
        try:
            if level.gone.count:
                log_queue_dequeues(engine, level)
                level.gone.count = 0
        except MemoryError:
            engine.want_turn()                              # it is noted, and goes into the log then
    finally:
        engine.log.whole = whole
        if held:
            engine.commit_outputs(engine.position, route.queues)
    return 0


cdef uint64_t put(Engine engine, Route route, bytes exchange, bytes routing_key, bytes header, bytes body) except? 0:
    """A publish by the broker itself; its position, 0 when no queue takes it."""
    cdef bytes exrk = bytes((len(exchange),)) + exchange + bytes((len(routing_key),)) + routing_key
    cdef const uint8_t* e = <const uint8_t*>PyBytes_AS_STRING(exrk)
    cdef const uint8_t* h = <const uint8_t*>PyBytes_AS_STRING(header)
    cdef const uint8_t* b = <const uint8_t*>PyBytes_AS_STRING(body)
    if route.limited:
        route = admitting(engine, route, e, h, len(header), b, len(body))
        make_room(route)
    elif not route.queues and route.numbering is not None:
        count(engine, route, 0)
    if not route.queues:
        return 0
    return engine.enqueue(route, e, len(exrk), h, len(header), b, len(body))


cdef bint refuses(Engine engine, Queue queue, uint64_t count, size_t octets) except -1:
    """True if the queue has no room for so many messages and refuses; consumers that can take messages make room
    first."""
    if not queue.rejects or not queue.over(count, octets):
        return False
    if queue.timed:
        expire_queue(engine, queue)
    if queue.consumers:
        pump(engine, queue, True)
    if not queue.over(count, octets):
        return False
    if queue.watch is not None:
        note_overflow(engine, queue)
    return True


cdef Route admitting(Engine engine, Route route, const uint8_t* exrk, const uint8_t* header, size_t header_size,
                     const uint8_t* body, size_t body_size):
    """The route less the full queues that refuse (x-overflow reject-publish); what they refuse may be a dead letter."""
    cdef Queue queue
    cdef Route rest
    full = [queue for queue in route.queues if refuses(engine, queue, 1, body_size)]
    if not full:
        return route
    for queue in full:
        if queue.refused_die and queue.dead_letter is not None:
            content = (exrk[1:1 + exrk[0]], exrk[2 + exrk[0]:2 + exrk[0] + exrk[1 + exrk[0]]],
                       PyBytes_FromStringAndSize(<const char*>header, header_size),
                       PyBytes_FromStringAndSize(<const char*>body, body_size))
            engine.refused.append((queue, content))
            engine.want_turn()
    refused = {*full, *shadows_of(route, full)}
    rest = Route([queue for queue in route.queues if queue not in refused], numbering=route.numbering)
    if rest.nowhere:
        rest = Route([], numbering=route.numbering)
    rest.refusing = True
    if not rest.queues and rest.numbering is not None:
        count(engine, rest, 0)
    return rest


cdef uint64_t move_messages(Engine engine, Queue queue, uint64_t limit, route, bint careful, bint soon, waiter) except? 0:
    """See Engine.move; `careful`: no message is lost to a full queue.  What comes back to the queue is not moved
    again.  Ends at a message that cannot be read; `soon`: also at one that is not in memory, and `waiter` goes on."""
    cdef uint64_t moved = 0, last = engine.sequence
    cdef int64_t index
    cdef Queue level
    for level in list(reversed(queue.levels)) if queue.levels is not None else [queue]:
        while moved < limit:
            level = level.leaf()
            index = level.first_ready()
            if index < 0 or ring_at(&level.main, index).id > last:
                break
            if not (at_hand(level, index, waiter) if soon else at_once(level, index)):
                return moved
            if level.timed and level.expired(index, engine.now):
                take_and_drop(engine, queue, level, index, "expired")
                continue
            content = content_of(ring_at(&level.main, index))
            to = route(content[0], content[1], content[2])
            if to is None or (careful and [full for full in to.queues if refuses(engine, full, 1, len(content[3]))]):
                return moved
            if level.first_ready() != index:    # a consumer took it, to make room
                continue
            level.take(index)
            engine.inherited = expiry_of(level, index)
            try:
                transfer(engine, level, index, to, content[0], content[1], content[2], content[3], queue)
            except MemoryError:
                level.leaf().requeue(index)
                raise
            finally:
                engine.inherited = 0
            moved += 1
    return moved


cdef uint64_t expiry_of(Queue level, uint64_t index) except? 0:
    """Milliseconds since 1970; 0 if the record has none."""
    cdef Entry* e = ring_at(&level.main, index)
    return le64(lengths_of(record_of(e)) + 16) if e.flags & ENTRY_TIMED else 0


def hand_out(Engine engine, Queue queue, uint64_t id):
    """Messages up to `id` were handed out in an earlier life: they say redelivered.  The queue has no consumer."""
    queue.set_delivered(id, 0)
    queue.reset()
    log_delivered_of(engine, queue)
