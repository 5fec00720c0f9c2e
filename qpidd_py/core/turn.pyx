# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The end of a turn; see the head of engine.pyx.

Work that one client can cause for all is done in slices, and each turn asks for the next one while some is left: dead
letters (`letters`), messages that have expired (`expiry`), frames for which Python is asked (`Connection.put_off`),
deliveries (`pump`).  A connection whose slice is used up goes to the end of the line.

What clients have acknowledged *lingers* if the turn has nothing else for the backups: a batch of its own would wake each
of them, and their acknowledgements wake the primary, for something that nobody waits for.  The next publish takes it along, or
the reactor logs it within a millisecond.  Until it is in the log a fail-over hands the message out again, `redelivered`.
"""
from libc.stdint cimport int64_t, uint64_t

from qpidd_py.core.channel cimport Channel
from qpidd_py.core.connection cimport Connection
from qpidd_py.core.expiry cimport expire_some
from qpidd_py.core.letters cimport LETTERS, send_letters
from qpidd_py.core.pump cimport enforce, pump
from qpidd_py.core.queue cimport UNLIMITED, Queue
from qpidd_py.core.returns cimport log_departures
from qpidd_py.core.settlements cimport go_on_releasing
from qpidd_py.core.values cimport go_on_looking
from qpidd_py.core.watch cimport look_at_depths

cdef enum:
    RESUMED = 2                 # slices of input in one turn
    WRITE = 16                  # units of work that writing to one client takes
    PUMPED = 8 << 20            # octets that one turn hands out, with DELIVERY for each message

cdef int64_t ALL = <int64_t>1 << 62


cdef int end_turn(Engine engine, bint linger) except -1:
    """Ends the turn; see the head of this module.  Held replies may bring new work, so there are several rounds, as long
    as none uses up a slice."""
    cdef int rounds = 0
    if engine.in_turn:
        return 0
    engine.in_turn = True
    engine.short = engine.expired = False
    engine.letters_left = LETTERS
    engine.pump_left = PUMPED if engine.schedule is not None else ALL
    resume_some(engine)
    try:
        if engine.returns:
            go_on_releasing(engine)
        if engine.unlooked:
            go_on_looking(engine)
        while rounds < 8 and (engine.turn_wanted or rounds == 0):
            engine.turn_wanted = False
            rounds += 1
            if turn(engine, linger):
                break
    except MemoryError:
        engine.short = True
        engine.turn_wanted = False
    finally:
        engine.in_turn = False
    if not engine.short and (engine.refused or engine.unfinished or engine.returns or engine.unlooked
                             or engine.dirty_queues or engine.dirty_connections
                             or ((engine.letters or engine.expiring) and not engine.letters_wait)):
        engine.turn_wanted = True
    if engine.short or engine.lacked:
        engine.lacked = False
        if engine.on_short is not None:
            engine.on_short()
    if engine.pool.held() > engine.room:
        engine.room = UNLIMITED       # until the owner has set it again
        engine.on_full()
    if engine.turn_wanted and engine.schedule is not None:
        engine.schedule()
    if engine.on_deadline is not None and engine.expiries.heap and not engine.expiring:
        arm(engine, <uint64_t>engine.expiries.heap[0][0])
    return 0


cdef int arm(Engine engine, uint64_t when) except -1:
    """The owner calls at the earliest deadline.  It may be stale: then the call finds nothing and asks for the next."""
    if when < engine.armed:
        engine.armed = when
        engine.on_deadline(when)
    return 0


cdef int resume_some(Engine engine) except -1:
    cdef size_t n
    cdef Connection c
    for n in range(min(RESUMED, <size_t>len(engine.unfinished))):
        c = engine.unfinished.popleft()
        c.resume()
    return 0


cdef bint turn(Engine engine, bint linger) except -1:
    """Whether a slice was used up."""
    cdef bint endless = engine.schedule is None, ended
    if engine.starved:
        shed(engine)
    engine.slice.begin(endless)
    try:
        if engine.expiring and not engine.expired:
            engine.expired = True
            expire(engine)
        if engine.refused or (engine.letters and not engine.letters_wait):
            engine.letters_left -= send_letters(engine, engine.letters_left)
    except MemoryError:
        engine.short = True
    ended = engine.slice.ended
    engine.slice.begin(endless)
    try:
        pump_all(engine)
        if not (linger and lingers(engine)):
            log_departures(engine)
    except MemoryError:
        engine.short = True
    if engine.watched:
        look_at_depths(engine)
    ended = ended or engine.slice.ended
    engine.replicate()
    if engine.safe_moved:
        engine.release_confirms()
        engine.release_held()
        ended = ended or engine.slice.ended
    elif engine.confirms.due:
        engine.release_confirms()
    flush_connections(engine)
    return ended or engine.slice.ended


cdef bint lingers(Engine engine) noexcept:
    """Nothing but dequeues would be in the batch, of which nobody waits for one."""
    return (not engine.soon and engine.on_batch is not None and engine.position == engine.replicated
            and not engine.delivered_queues and not engine.recounted_queues)


cdef int expire(Engine engine) except -1:
    """A slice; the next turn goes on."""
    engine.expiring = True
    expire_some(engine)
    engine.expiring = engine.expiries.waits(engine.now)
    return 0


cdef int pump_all(Engine engine) except -1:
    cdef Queue queue
    cdef Channel channel
    cdef size_t done
    relieved, engine.relieved = engine.relieved, []
    for channel in relieved:
        channel.relieved = False
        channel.mark_consumers()
    while engine.dirty_queues and engine.pump_left > 0:
        queues = engine.dirty_queues
        engine.dirty_queues = []
        done = 0
        try:
            for queue in queues:
                if engine.pump_left <= 0:
                    break
                done += 1
                queue.dirty = False
                if queue.ready and not queue.deleted:
                    if queue.over(0, 0):        # what came back from consumers is not handed out beyond a limit
                        enforce(engine, queue, False)
                    if queue.consumers:
                        pump(engine, queue)
        except MemoryError:
            done -= 1
            queue.dirty = True
            raise
        finally:
            if done < len(queues):
                engine.dirty_queues = queues[done:] + engine.dirty_queues
    return 0


cdef int flush_connections(Engine engine) except -1:
    """Writes links first: backups must learn what was handed out before the clients get it.  Clients are written to as
    far as a slice goes, the others in the next turn."""
    engine.slice.begin(engine.schedule is None)
    while engine.dirty_links or engine.dirty_connections:
        links, engine.dirty_links = engine.dirty_links, []
        for link in links:
            flush_one(<Connection>link)
        if not engine.dirty_links and not flush_clients(engine):
            break
    return 0


cdef bint flush_clients(Engine engine) except -1:
    """False: some wait for the next turn."""
    cdef size_t done = 0
    clients, engine.dirty_connections = engine.dirty_connections, []
    for client in clients:
        done += 1
        flush_one(<Connection>client)
        if engine.slice.spent(WRITE):
            break
    engine.dirty_connections = clients[done:] + engine.dirty_connections
    return done == <size_t>len(clients)


cdef int flush_one(Connection c) except -1:
    try:
        c.flush()
    except MemoryError:
        c.starve()
    return 0


cdef int shed(Engine engine) except -1:
    """Closes the connections for which there was no memory."""
    cdef Connection c
    while engine.starved:
        engine.lacked = True
        c = engine.starved.pop()
        try:
            c.owner.failed(0, 506, "RESOURCE_ERROR - the broker has no memory for what this connection asks", 0, 0)
        except MemoryError:
            c.drop()
    return 0
