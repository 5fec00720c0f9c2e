# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Message groups (`qpid.group_header_key`): messages of one group are with one client at a time, in their order.

Theory.  The consumer that gets a message of a group owns the group until it holds none of its messages any more, acknowledged or
given back; meanwhile others get messages of other groups, so a message may be handed out before an older one.  The
queue's messages are noted group by group, oldest first, and no further than somebody looks for one that it may have
(`seen`): each message's header is read once.  The first that waits of each group stands in a heap, that of the free
groups or that of the owner's; what is out of date there is recognized when it comes to the front.

The rest of the queue does not know of groups: limits, expiry and purge take the oldest, and what they have taken is
passed over here.  So `Queue.next` stays in front of what is ready (`group_taken`), and what comes back is looked for from
there instead of standing in `Queue.returned`.

Nothing of this is in the log.  After a change of role no consumer holds anything, and all groups are free.
"""
from heapq import heappop, heappush

from qpidd_py.core.channel cimport Consumer
from qpidd_py.core.paging cimport at_hand
from qpidd_py.core.properties cimport header_value
from qpidd_py.core.pump cimport put_off, take_and_drop, take_turns
from qpidd_py.core.ring cimport READY, Entry, content_of, ring_after, ring_at

from qpidd_py.errors import InvariantError

cdef enum:
    FEW = 4096                  # notes of messages that have left, that do not matter

DEFAULT_GROUP = b"qpid.no-group"


cdef class Group:
    """See groups.pxd."""


cdef class Groups:
    """Of one queue, before its first message."""

    def __cinit__(self, str key):
        self.key = key
        self.name = key.encode()
        self.groups, self.holders, self.free, self.owned, self.owning = {}, {}, [], {}, {}

    @property
    def count(self):
        """Groups that have messages that are noted."""
        return len(self.groups)


def group_by(Queue queue, str key):
    """Makes it a queue with groups."""
    if queue.levels is not None or queue.kind is not None or queue.enqueued:
        raise InvariantError(f"queue {queue.name} has another order, or messages already")
    queue.kind = Groups(key)
    queue.ranked = True


cdef int offer(Groups g, Group group) except -1:
    """It stands where its owner, or everybody, looks."""
    if group.waiting:
        heappush(g.free if group.owner is None else g.owned[group.owner], (group.waiting[0], group))
    return 0


cdef Group front(list heap, object owner):
    """The group with the oldest message; what is out of date goes."""
    cdef Group group
    while heap:
        id, group = heap[0]
        if group.owner is owner and group.waiting and group.waiting[0] == id:
            return group
        heappop(heap)
    return None


cdef Group best(Groups g, object owner):
    cdef Group free = front(g.free, None)
    cdef list heap = g.owned.get(owner)
    cdef Group own = None if heap is None else front(heap, owner)
    if free is None or own is None:
        return own if free is None else free
    return free if free.waiting[0] < own.waiting[0] else own


cdef int64_t next_of_group(Engine engine, Queue queue, object owner, object waiter, bint endless) except -3:
    """The index of the oldest message that this consumer or channel may have, NONE or LATER; drops what has expired on
    the way.  `endless`: looks at all messages if need be, and not in slices."""
    cdef Groups g = <Groups>queue.kind
    cdef Group group
    cdef int64_t index
    cdef uint64_t next
    if queue.returned.count:
        queue.look_from(queue.returned.items[queue.returned.start])
    if g.lost or g.noted > 2 * queue.ready + FEW:
        forget_waiting(g)
    while True:
        group = best(g, owner)
        if group is None:
            index = note_more(engine, queue, g, owner, waiter, endless)
            if index < 0:
                return index
            continue
        index = queue.locate(group.waiting[0], 0)
        if index < 0 or ring_at(&queue.main, index).state != READY:
            pass_over(g, group)
            continue
        if ring_at(&queue.main, index).id >= queue.barrier:
            return NONE
        if engine.pool.paged and not at_hand(queue, index, waiter):
            return LATER
        if not queue.timed or not queue.expired(index, engine.now):
            return index
        next = queue.next
        take_and_drop(engine, queue, queue, index, "expired")
        queue.next = max(next, queue.main.head)


cdef int pass_over(Groups g, Group group) except -1:
    heappop(group.waiting)
    g.noted -= 1
    if not group.waiting and not group.held:
        del g.groups[group.name]
    return offer(g, group)


cdef int64_t note_more(Engine engine, Queue queue, Groups g, object owner, object waiter, bint endless) except -3:
    """Up to one that the owner may have: 0; NONE, LATER.  A MemoryError leaves the last one to be noted again."""
    cdef uint64_t i = ring_after(&queue.main, g.seen)
    cdef Entry* e
    while i < queue.main.tail:
        e = ring_at(&queue.main, i)
        if e.id >= queue.barrier:
            return NONE
        if e.state == READY:
            if not endless and engine.slice.spent(1):
                g.more = True
                return NONE
            if engine.pool.paged and not at_hand(queue, i, waiter):
                return LATER
            if note(g, e, owner):
                return 0
        g.seen = e.id
        i += 1
    return NONE


cdef bint note(Groups g, Entry* e, object owner) except -1:
    """Whether that gives the owner something."""
    cdef Group group
    name = header_value(content_of(e, 0)[2], g.name)
    if name is None:
        name = DEFAULT_GROUP
    group = g.groups.get(name)
    if group is None:
        group = Group.__new__(Group)
        group.name, group.waiting = name, []
        g.groups[name] = group
    heappush(group.waiting, e.id)
    g.noted += 1
    g.seen = e.id
    if len(group.waiting) > 1:
        return False
    try:
        offer(g, group)
    except MemoryError:
        g.lost = True
        raise
    return group.owner is None or group.owner is owner


cdef int forget_waiting(Groups g) except -1:
    """What is handed out stays with its owner."""
    cdef Group group
    for group in g.groups.values():
        group.waiting = []
    g.groups = {name: group for name, group in g.groups.items() if (<Group>group).held}
    g.free, g.owned = [], {owner: [] for owner in g.owning}
    g.seen = g.noted = 0
    g.lost = False
    return 0


cdef int group_taken(Queue queue, uint64_t index, uint64_t next, object owner) except -1:
    """What `next_of_group` answered was handed out; `next` was that of the queue before."""
    cdef Groups g = <Groups>queue.kind
    cdef Group group
    cdef uint64_t id = ring_at(&queue.main, index).id
    queue.next = max(next, queue.main.head)
    try:
        group = best(g, owner)
        heappop(group.waiting)
        g.noted -= 1
        group.held += 1
        g.holders[id] = group
        if group.owner is None:
            g.owning[owner] = g.owning.get(owner, 0) + 1
            g.owned.setdefault(owner, [])
            group.owner = owner
        offer(g, group)
    except MemoryError:
        g.lost = True
    return 0


cdef int group_settled(Engine engine, Queue queue, uint64_t id) except -1:
    """A message was acknowledged or rejected, or is ready again.  Without memory all is looked for again."""
    cdef Groups g = <Groups>queue.kind
    cdef Group group = g.holders.pop(id, None)
    cdef int64_t index = queue.locate(id, 0)
    if group is None:
        return 0
    group.held -= 1
    try:
        if index >= 0 and ring_at(&queue.main, index).state == READY:
            heappush(group.waiting, id)
            g.noted += 1
        if not group.held:
            disown(g, group)
            if queue.ready:
                engine.mark_queue(queue)
        offer(g, group)
    except MemoryError:
        g.lost = True
    return 0


cdef int disown(Groups g, Group group) except -1:
    owner, group.owner = group.owner, None
    g.owning[owner] -= 1
    if not g.owning[owner]:
        del g.owning[owner]
        del g.owned[owner]
    if not group.waiting:
        del g.groups[group.name]
    return 0


cdef int pump_groups(Engine engine, Queue queue, bint now) except -1:
    """One by one to the consumers with the highest priority that can take it; equal ones take turns."""
    cdef size_t n = len(queue.consumers), i = 0
    cdef int64_t index
    cdef uint64_t next
    cdef Consumer c
    (<Groups>queue.kind).more = False
    while i < n:
        c = <Consumer>queue.consumers[i]
        if not c.ready():
            i += 1
            continue
        if engine.pump_left <= 0 and not now:
            return put_off(engine, queue)
        index = next_of_group(engine, queue, c, queue, now)
        next = queue.next
        if index < 0:
            i += 1
            continue
        if not c.channel.deliver(c, queue, index, True):
            continue
        group_taken(queue, index, next, c)
        take_turns(queue, i)
    if (<Groups>queue.kind).more:
        return put_off(engine, queue)
    return 0
