# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a queue with limits, with levels of its depth, with keys that it remembers, with delays, or of a special kind
(`Queue.kind`), or with classes, does in addition, when a message comes, is settled, or the role changes."""
from qpidd_py.core.classes cimport HIGH, split
from qpidd_py.core.duplicates cimport remember
from qpidd_py.core.groups cimport Groups, group_settled
from qpidd_py.core.pump cimport enforce
from qpidd_py.core.returns cimport log_departures
from qpidd_py.core.ring cimport priority_in
from qpidd_py.core.values cimport LastValues, keep_last, look_anew, value_back
from qpidd_py.core.waiting cimport look_again, note_due
from qpidd_py.core.watch cimport note_depth


cdef int make_classes(Engine engine, list queues, const uint8_t* header, size_t size) except -1:
    """A message is about to enter these queues, and may be the first high one (see classes.pyx).  A MemoryError changes
    nothing but which of them have been split."""
    cdef Queue queue
    if priority_in(header, size) < HIGH:
        return 0
    for queue in queues:
        if queue.weighted and queue.levels is None:
            log_departures(engine)
            split(queue)
    return 0


cdef int came(Engine engine, Queue queue, const uint8_t* record) except -1:
    """The youngest message of the queue has just come."""
    if queue.window is not None:
        remember(queue, record)
    if queue.delays is not None:
        note_due(queue, record)
    if isinstance(queue.kind, LastValues):
        keep_last(engine, queue)
    enforce(engine, queue, True)
    if queue.watch is not None:
        note_depth(engine, queue)
    return 0


cdef int settled(Engine engine, Queue queue, uint64_t id, bint ready) except -1:
    """A message that was handed out left the queue, will leave it, or is ready again."""
    if isinstance(queue.kind, LastValues):
        return value_back(engine, queue, id) if ready else 0
    return group_settled(engine, queue, id)


cdef int taken_over(Engine engine, Queue queue) except -1:
    """This broker is the primary now, and every message is ready."""
    if queue.window is not None:
        queue.window.settle()
    if queue.delays is not None:
        look_again(queue)
    if isinstance(queue.kind, LastValues):
        look_anew(engine, queue)
    elif queue.kind is not None:
        queue.kind = Groups((<Groups>queue.kind).key)
    if queue.over(0, 0):
        engine.mark_queue(queue)
    if queue.watch is not None:
        note_depth(engine, queue)
    return 0
