# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Memory that goes back: segments that hold little more than the dead, of which what lives is copied together; and the
index of queues that have become empty."""
from libc.stdint cimport uint64_t

from qpidd_py.core.queue cimport Queue

cdef enum:
    ROOMY_A_TICK = 100          # queues that one tick looks at: each gives back some pages at most


cdef int compact(Engine engine) except -1:
    """A sweep over the queues, some entries in each tick.  A MemoryError changes nothing."""
    cdef uint64_t most = engine.sweep_most, start
    cdef Queue queue
    if not engine.sweeping:
        if not engine.pool.mark_sparse(engine.log.segment, engine.local.segment):
            return 0
        engine.sweeping = list(engine.queues.values())
        engine.sweep_at = 0
    while engine.sweeping and most:
        queue = engine.sweeping[len(engine.sweeping) - 1]
        start = engine.sweep_at
        if queue.levels is not None:
            engine.sweeping[len(engine.sweeping) - 1:] = queue.levels
            engine.sweep_at = 0
            continue
        engine.sweep_at = queue.sweep(engine.local, engine.sweep_at, most)
        most -= min(most, max(engine.sweep_at - start, <uint64_t>1))
        if engine.sweep_at >= queue.main.tail:
            engine.sweeping.pop()
            engine.sweep_at = 0
    return 0


cdef int trim_rings(Engine engine) except -1:
    """Some of the queues that have become empty give back the memory of their index."""
    cdef size_t n
    for n in range(min(<size_t>len(engine.roomy), <size_t>ROOMY_A_TICK)):
        if (<Queue>engine.roomy[0]).give_back():
            engine.roomy.popleft()
        else:
            engine.roomy.rotate(-1)
    return 0
