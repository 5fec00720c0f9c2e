# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a queue of a special kind (`Queue.kind`) does in addition, when a message comes, is settled, or the role changes."""
from qpidd_py.core.groups cimport Groups, group_settled
from qpidd_py.core.values cimport LastValues, keep_last, look_through, value_back


cdef int came(Engine engine, Queue queue) except -1:
    """The youngest message of the queue has just come."""
    return keep_last(engine, queue) if isinstance(queue.kind, LastValues) else 0


cdef int settled(Engine engine, Queue queue, uint64_t id, bint ready) except -1:
    """A message that was handed out left the queue, will leave it, or is ready again."""
    if isinstance(queue.kind, LastValues):
        return value_back(engine, queue, id) if ready else 0
    return group_settled(engine, queue, id)


cdef int taken_over(Engine engine, Queue queue) except -1:
    """The role has changed: every message is ready."""
    if isinstance(queue.kind, LastValues):
        return look_through(engine, queue)
    queue.kind = Groups((<Groups>queue.kind).key)
    return 0
