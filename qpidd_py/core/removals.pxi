# Removals of messages that were not consumed, for the event log. Included by engine.pyx.
#
# With `Engine.on_removed` set (a primary that keeps an event log), every message that is dropped, expires, dies, is
# purged or goes with its queue is noted here under its id: a comparison of octets for each, no object.  While something
# is noted `on_removed()` is called in each turn, before the removals leave in a batch, so that an event log written
# then has every removal before any other process can learn of it. The callback takes them with `Engine.removed`, or
# leaves them to be joined with later ones.

cdef size_t RUNS_MAX = 1000             # of one queue and reason, until they are taken


cdef int note_removal(Engine engine, Queue queue, const Entry* e, str reason, bint dead) except -1:
    """`dead`: it goes on as a dead letter."""
    cdef IdRuns runs = engine.noted
    if runs is None or engine.noted_queue is not queue or engine.noted_reason is not reason or engine.noted_dead != dead:
        key = (queue.name, reason, dead)
        runs = <IdRuns>engine.removals.get(key)
        if runs is None:
            runs = engine.removals[key] = IdRuns(RUNS_MAX)
        engine.noted, engine.noted_queue, engine.noted_reason, engine.noted_dead = runs, queue, reason, dead
        engine.want_turn()
    return name_entry(runs, e)


cdef int note_all(Engine engine, Queue queue, str reason, bint unacked) except -1:
    """What is ready in a queue, or what is in it."""
    cdef Queue level
    cdef uint64_t i
    for level in queue.levels if queue.levels is not None else (queue,):
        for i in range(level.main.head, level.main.tail):
            if ring_at(&level.main, i).state == READY or (unacked and ring_at(&level.main, i).state == UNACKED):
                note_removal(engine, queue, ring_at(&level.main, i), reason, False)
    return 0
