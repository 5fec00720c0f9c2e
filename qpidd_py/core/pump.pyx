# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What is ready goes to consumers; what has expired on the way, or is beyond a limit, goes out of its queue.

A turn hands out `PUMPED` octets; the queues that it has not come to are first in the next one.  What a limit needs (`now`)
is not put off.
"""
from libc.stdint cimport uint64_t

from qpidd_py.core.channel cimport Consumer
from qpidd_py.core.expiry cimport expire_queue
from qpidd_py.core.fencing cimport token_stands
from qpidd_py.core.groups cimport Groups, pump_groups
from qpidd_py.core.paging cimport at_hand
from qpidd_py.core.returns cimport spent

cdef enum:
    DROPS = 2000    # messages beyond a limit, of one queue in one go


cdef int pump(Engine engine, Queue queue, bint now=False) except -1:
    """Hands out what is ready, in runs: one consumer takes its share, then the next; `now`: without an end of the turn's
    share.  Messages that are not in memory are handed out later."""
    cdef size_t n = len(queue.consumers), idle = 0, asked = 0
    cdef uint64_t share = 1, k
    cdef int64_t index
    cdef Consumer c
    cdef Queue level
    if queue.returning:
        return 0
    if queue.ranked:
        if isinstance(queue.kind, Groups):
            return pump_groups(engine, queue, now)
        return pump_single(engine, queue, now) if queue.single else pump_ranked(engine, queue, now)
    while idle < n:
        if asked % n == 0:
            share = queue.ready // n
            share = 1 if share == 0 else (64 if share > 64 and n > 1 else share)
        if queue.turn >= n:
            queue.turn = 0
        c = <Consumer>queue.consumers[queue.turn]
        queue.turn += 1
        asked += 1
        idle += 1
        k = share
        while k and (now or engine.pump_left > 0) and c.ready():
            index = next_message(engine, queue, queue)
            if index < 0:
                return 0
            if not c.channel.deliver(c, queue.head(), index, True):
                break
            k -= 1
            idle = 0
        if engine.pump_left <= 0 and not now:
            return put_off(engine, queue)
    return 0


cdef int pump_single(Engine engine, Queue queue, bint now) except -1:
    """All to the consumer that is chosen; the others wait until it is gone, also while it can take nothing."""
    cdef int64_t index
    cdef Consumer c = queue.chosen
    if queue.fenced and c is not None and not token_stands(engine, queue, c):
        return 0
    while c is not None and c.ready():
        if engine.pump_left <= 0 and not now:
            return put_off(engine, queue)
        index = next_message(engine, queue, queue)
        if index < 0 or not c.channel.deliver(c, queue.head(), index, True):
            break
    return 0


cdef int put_off(Engine engine, Queue queue) except -1:
    """The next turn goes on with it; this one hands out nothing more, or it would come to this queue again and again."""
    engine.pump_left = 0
    queue.dirty = True
    engine.dirty_queues.append(queue)
    return 0


cdef int pump_ranked(Engine engine, Queue queue, bint now) except -1:
    """One by one to the consumers with the highest priority that can take it; equal ones take turns."""
    cdef size_t n = len(queue.consumers), i = 0
    cdef int64_t index
    cdef Consumer c
    while i < n:
        c = <Consumer>queue.consumers[i]
        if not c.ready():
            i += 1
            continue
        if engine.pump_left <= 0 and not now:
            return put_off(engine, queue)
        index = next_message(engine, queue, queue)
        if index < 0:
            return 0
        if not c.channel.deliver(c, queue.head(), index, True):
            continue
        take_turns(queue, i)
        i = 0
    return 0


cdef int take_turns(Queue queue, size_t i) except -1:
    """This consumer got a message: those with its priority come before it."""
    cdef size_t n = len(queue.consumers), last = i
    cdef int64_t priority = (<Consumer>queue.consumers[i]).priority
    while last + 1 < n and (<Consumer>queue.consumers[last + 1]).priority == priority:
        last += 1
    queue.consumers.insert(last, queue.consumers.pop(i))
    return 0


cdef int64_t next_message(Engine engine, Queue queue, waiter) except -2:
    """The index (in `queue.head()`) of what to hand out next; drops what has expired on the way.  -1 for none, and for
    one that is not in memory: `waiter` goes on then (`Paging.want`)."""
    cdef Queue level
    cdef int64_t index
    while True:
        level = queue.head()
        index = level.peek_ready()
        if index >= 0 and engine.pool.paged and not at_hand(level, index, waiter):
            return -1
        if index < 0:
            return index
        if level.timed and level.expired(index, engine.now):
            take_and_drop(engine, queue, level, index, "expired")
        elif level.counts and spent(level, index):
            take_and_drop(engine, queue, level, index, "delivery_limit")
        else:
            return index


cdef int take_and_drop(Engine engine, Queue queue, Queue level, uint64_t index, str reason) except -1:
    """See `drop_message`; after a MemoryError the message is ready as before."""
    level.take(index)
    try:
        return engine.drop_message(queue, level, index, reason)
    except MemoryError:
        level.requeue(index)
        raise


cdef int enforce(Engine engine, Queue queue, bint consumed) except -1:
    """Drops what has expired, then the oldest until the queue is within its limits; if `consumed`, consumers that can
    take them come first.  Without memory for what is dropped the queue stays larger for now, and what is much too large
    becomes smaller over some turns."""
    cdef Queue level
    cdef int64_t index
    cdef int left = DROPS
    if queue.rejects or not queue.over(0, 0):
        return 0
    try:
        if queue.timed:
            expire_queue(engine, queue)
        if consumed and queue.consumers and queue.over(0, 0):
            pump(engine, queue, True)
        while queue.ready and queue.over(0, 0):
            if left == 0:
                engine.pump_left = 0
                engine.mark_queue(queue)
                break
            left -= 1
            level = queue.tail()
            index = level.first_ready()
            take_and_drop(engine, queue, level, index, "maxlen")
    except MemoryError:
        pass
    return 0
