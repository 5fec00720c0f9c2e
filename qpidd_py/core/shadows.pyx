# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Queues that exchanges have for themselves, with copies of what goes elsewhere.

Theory.  An exchange that keeps its last message (`qpid.ive`) or remembers keys (`x-message-deduplication`) has a queue
that no client finds, its shadow.  A message that the exchange passes on goes to the shadow, too, in the same record.  So
what the exchange keeps is in the log, on each backup, in the journal, as any message is, by the code of queues: a
shadow with a limit of one has the last message, one with a limit of none has its window only.

A route of shadows only is no route: the message is returned (mandatory), a letter stays, a moved message is gone.  What
leaves a shadow is not told as a removal.  `Route.gates` says behind which shadows with a window a queue lies: a
duplicate for such a shadow is one for all queues behind it.  When one of these is full and refuses the message, the
shadow does not get it: the publisher sends it again, and it must not be a duplicate then.  Another queue may have it
twice for that.
"""
from libc.stdint cimport int64_t

from qpidd_py.core.engine cimport Engine
from qpidd_py.core.letters cimport at_once, expiry_of, put
from qpidd_py.core.queue cimport Queue
from qpidd_py.core.ring cimport content_of, ring_at

from qpidd_py.errors import PageError


cdef Route route_without(Route route, list known):
    """The rest of a route, without the queues `known` and all that lies behind one of them."""
    gates = route.gates or {}
    left_out = set(known)
    rest = [queue for queue in route.queues if queue not in left_out and left_out.isdisjoint(gates.get(queue, ()))]
    return Route(rest, numbering=route.numbering, gates=route.gates)


cdef list shadows_of(Route route, list full):
    """The shadows that these queues lie behind."""
    gates = route.gates or {}
    return [shadow for queue in full for shadow in gates.get(queue, ())]


def copy_first(Engine engine, Queue queue, route):
    """Puts a copy of the queue's first message where `route(exchange, routing key, header)` says; whether a queue took
    it.  Raises PageError if the message cannot be read."""
    cdef int64_t index = queue.first_ready()
    cdef bint held
    cdef Route to
    if index < 0:
        return False
    if not at_once(queue, index):
        raise PageError(f"the first message of queue {queue.name} cannot be read")
    if queue.timed and queue.expired(index, engine.now):
        return False
    exchange, routing_key, header, body = content_of(ring_at(&queue.main, index))
    to = route(exchange, routing_key, header)
    held = ring_at(&queue.main, index).id >= queue.barrier      # of a transaction that is not safe: so is the copy
    if held:
        engine.hold_outputs(to.queues)
    engine.inherited = expiry_of(queue, index)
    try:
        return put(engine, to, exchange, routing_key, header, body) != 0
    finally:
        engine.inherited = 0
        if held:
            engine.commit_outputs(engine.position, to.queues)
