# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Queues whose publishers wait while they are full enough, or that tell when they are (`qpid.flow_stop_count`,
`qpid.alert_count` and their kin), or that end with their limit (`qpid.policy_type` self-destruct).

Theory.  Each message that comes to such a queue compares its depth with the levels.  Once one is passed the queue stands
in `Engine.watched`, and the end of each turn looks at some of these, in rotation, until it has come below again.  A
connection that publishes to a queue which is `stopped` is told (`owner.flow`), and is not read if it takes no messages:
one that does has to be read, since it may be what empties the queue.  `on_change` is called at the end of a turn, before
its batch leaves, so what it logs is in the batch of the message.

Depth is what is ready, as for limits.  Nothing is replicated: a new primary looks for itself (`Engine.begin_epoch`).
"""
from collections import deque

from qpidd_py.core.connection cimport DEAD
from qpidd_py.core.queue cimport UNLIMITED

cdef enum:
    LOOKS = 64                  # at queues, of one turn


cdef class Watch:
    """Of one queue; set on it before its first message."""

    def __cinit__(self, object flow=(None, None), object resume=(None, None), object alert=(None, None)):
        """(messages, octets) above which publishers wait, down to which they do, and from which it tells; None: never."""
        self.stop_count, self.stop_bytes = level(flow[0]), level(flow[1])
        self.resume_count, self.resume_bytes = level(resume[0]), level(resume[1])
        self.alert_count, self.alert_bytes = level(alert[0]), level(alert[1])
        self.waiting = set()


cdef bint changed(Watch w) noexcept:
    return w.stopped != w.was_stopped or w.alerting != w.was_alerting or w.overflown != w.was_overflown


cdef uint64_t level(value):
    return UNLIMITED if value is None else <uint64_t>value


cdef int note_depth(Engine engine, Queue queue) except -1:
    """A message has come, or all of them with a change of role."""
    cdef Watch w = <Watch>queue.watch
    cdef bint stops = queue.ready > w.stop_count or queue.ready_bytes > w.stop_bytes
    cdef bint alerts = queue.ready >= w.alert_count or queue.ready_bytes >= w.alert_bytes
    if (stops and not w.stopped) or (alerts and not w.alerting):
        if note(engine, queue, w):
            w.stopped = w.stopped or stops
            w.alerting = w.alerting or alerts
    return 0


cdef int note_overflow(Engine engine, Queue queue) except -1:
    """A message was refused: a queue that destructs itself has to go."""
    cdef Watch w = <Watch>queue.watch
    if w.destructs and not w.overflown:
        w.overflown = note(engine, queue, w)
    return 0


cdef bint note(Engine engine, Queue queue, Watch w) except -1:
    """The end of the turn looks at it.  False when there is no memory: the next message will note it."""
    if not w.noted:
        try:
            if engine.watched is None:
                engine.watched = deque()
            engine.watched.append(queue)
        except MemoryError:
            return False
        w.noted = True
    engine.want_turn()
    return True


cdef int look_at_depths(Engine engine) except -1:
    """The end of a turn."""
    cdef Queue queue
    cdef Watch w
    cdef size_t n
    for n in range(min(LOOKS, <size_t>len(engine.watched))):
        queue = engine.watched.popleft()
        w = <Watch>queue.watch
        if w.stopped and queue.ready <= w.resume_count and queue.ready_bytes <= w.resume_bytes:
            w.stopped = False
        if w.alerting and queue.ready < w.alert_count and queue.ready_bytes < w.alert_bytes:
            w.alerting = False
        if queue.deleted or engine.passive:
            w.stopped = w.alerting = w.overflown = False
        if not w.stopped and w.waiting:
            release(queue, w)
        if w.stopped or w.alerting:
            engine.watched.append(queue)
        else:
            w.noted = False
        if changed(w):
            w.was_stopped, w.was_alerting, w.was_overflown = w.stopped, w.alerting, w.overflown
            if w.on_change is not None:
                w.on_change()
    return 0


cdef int release(Queue queue, Watch w) except -1:
    """Its publishers go on."""
    cdef Connection c
    waiting, w.waiting = w.waiting, set()
    for c in waiting:
        c.flows.discard(queue)
        if not c.flows and c.state != DEAD:
            c.owner.flow("")
            if c.input_paused and c.may_read():
                c.pause_input(False)
    return 0


cdef int hold_publisher(Connection c, Route route) except -1:
    """The connection publishes to these queues."""
    cdef Queue queue
    cdef Watch w
    for queue in route.queues:
        w = <Watch>queue.watch
        if w is None or not w.stopped or c in w.waiting:
            continue
        if c.flows is None:
            c.flows = set()
        c.flows.add(queue)
        w.waiting.add(c)
        c.owner.flow(f"queue '{queue.name}' has {queue.ready} messages of {queue.ready_bytes} octets")
        if not c.takes and not c.input_paused:
            c.pause_input(True)
    return 0


cdef int takes_messages(Connection c) except -1:
    """From here on it is read, whatever it publishes to."""
    if not c.takes:
        c.takes = True
        if c.input_paused and c.may_read():
            c.pause_input(False)
    return 0


cdef int leave_queues(Connection c) except -1:
    """The connection is closed."""
    cdef Queue queue
    if c.flows is not None:
        for queue in c.flows:
            (<Watch>queue.watch).waiting.discard(c)
        c.flows = None
    return 0
