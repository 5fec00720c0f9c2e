# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Dead letters that do not leave their queue before they have another (`x-dead-letter-strategy` at-least-once).

Theory.  The copy of a dead letter and its removal are in one batch, so none is lost in between.  What is lost with
at-most-once: a letter that no queue takes, that a full queue refuses, and one whose copy is in queues of this broker
only.  A queue that `keeps` sends none of these: the message stays, as if it were handed out, its letter is noted in
`Engine.retained`, and is tried again now and then.  One that has left brings the next one, so that all leave when the
way is free.  A change of role forgets the notes: the messages are ready again, and leave, or are handed out, anew.
"""
from collections import deque

from qpidd_py.core.letters cimport LETTERS, MAX_LETTERS, refuses

cdef enum:
    PAUSE = 1000                # milliseconds until what did not leave is tried again


cdef bint lands(Engine engine, Queue queue, Route route, size_t octets) except -1:
    """Whether each queue that the letter goes to takes it, and is as safe as its own."""
    cdef Queue target
    for target in route.queues:
        if (queue.replicated and not target.replicated) or refuses(engine, target, 1, octets):
            return False
    return bool(route.queues) and not route.nowhere


cdef int retain(Engine engine, tuple note) except -1:
    if not engine.retained:
        engine.retry_at = engine.now + PAUSE
    engine.retained.setdefault(note[0], deque()).append(note)
    return 0


cdef int one_more(Engine engine, Queue queue) except -1:
    """A letter of this queue has left, so the next one is tried."""
    notes = engine.retained.get(queue)
    if notes is None:
        return 0
    engine.letters.append(notes.popleft())
    if not notes:
        del engine.retained[queue]
    engine.want_turn()
    return 0


cdef int try_again(Engine engine) except -1:
    """Some of each queue, when it is time."""
    cdef size_t n
    if engine.now < engine.retry_at and engine.retry_at - engine.now <= PAUSE:      # the clock may have gone back
        return 0
    engine.retry_at = engine.now + PAUSE
    for queue in list(engine.retained):
        for n in range(min(<size_t>LETTERS, <size_t>len(engine.retained[queue]))):
            one_more(engine, queue)
    return 0


cdef bint holds_many(Engine engine, Queue queue) except -1:
    """So many that what expires waits in its place."""
    return queue.keeps and len(engine.retained.get(queue, ())) >= MAX_LETTERS
