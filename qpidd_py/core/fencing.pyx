# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fencing tokens: which consumer of a queue with one consumer at a time was the last (`x-fencing-token`).

Theory.  Each time another consumer is to get messages, a mark goes into the log, and its position is the token of that
consumer: each delivery to it has it as a header.  Nothing is delivered before the mark is safe: on every in-sync backup,
and on the disks where there are journals.  So a token is given to one consumer, and a later one is higher:
* on one primary, since positions grow;
* over a fail-over, since the new epoch is higher, and a primary that was deposed cannot make a mark safe;
* over a restart, since the log goes on behind what is on disk.  (Without a cluster and without a journal nothing is
  kept, the tokens begin anew with the broker, and the queue and its messages are gone.)
A resource that refuses a token below the highest that it has seen refuses the consumer of before.
"""
from qpidd_py.core.batch cimport OP_MARK, RECORD_HEADER


cdef bint token_stands(Engine engine, Queue queue, Consumer consumer) except -1:
    """May this consumer get messages?  A MemoryError changes nothing."""
    if queue.holder is not consumer:
        engine.record(OP_MARK, RECORD_HEADER, 0)
        queue.holder, queue.token = consumer, engine.position
        engine.when_safe(queue.token, lambda safe: engine.mark_queue(queue))
    return queue.token <= engine.safe


cdef uint64_t token_of(Consumer consumer) noexcept:
    """Of 63 bits, so that it is positive as a long-long; 0 for a queue without tokens.  (A primary writes fewer than 2^47
    operations.)"""
    cdef uint64_t token = consumer.queue.token
    return token >> 48 << 47 | token & ((<uint64_t>1 << 47) - 1)
