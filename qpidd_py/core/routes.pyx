# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where published messages go: asked of the owner once, kept for each method frame (exchange, routing key).

What is kept for a method is some octets in a table: no object, so nothing that Python's collector walks over; equal
routes are one object.  The same octets are another method in another virtual host.  A table ends when it has `FULL` methods; it is `old` then, what is used of it moves to the next.

Forgetting.  The engine counts changes of exchanges and bindings in its generation.  A route that was right at an earlier
generation is right still unless one of these has changed since: everything (`floor`), what its routing key leads to
(`keys`), an exchange that was asked (`Mark`), the bindings of one of its queues (`Queue.rerouted`).  So others' changes
cost a comparison, not a question.  Each change looks at some methods and gives up those that are forgotten, so that few
deleted queues are held.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from qpidd_py.core.memory cimport mem_resized, mem_zeroed
from qpidd_py.core.queue cimport UNLIMITED, Queue

cdef enum:
    FULL = 65536                # methods of a table
    OCTETS = 8 << 20            # of these
    ROUTES = 16384              # kept, that differ
    PROBES = 256                # of a search: hashes that meet on purpose end a table
    CHANGES = 4096              # of routing keys that are noted; then everything is forgotten
    LOOKS = 64                  # of one change, at methods
    HEADERS = 32768             # weight of kept routes of messages with headers: of each its queues, and 3
    LONG = 512                  # octets of a message's key, address and properties, above which it is not

cdef uint64_t SEED = <uint64_t>hash(b"seed of this process") * 2 + 1


cdef class Mark:
    """See routes.pxd."""


cdef class Route:
    """Where the messages of one (exchange, routing key) go.

    Either `queues`, or `by_header(routing key, content header) -> Route` asked for each message, or `handler(owner,
    channel, exchange, routing key, content header, body)` for exchanges that the broker itself serves.  `numbering`: the
    numbers of the exchanges that count the message, and which of them a queue gets; see numbering.pyx.  `gates`: see
    shadows.pyx."""

    def __init__(self, list queues, by_header=None, handler=None, tuple via=(), tuple numbering=None, dict gates=None):
        cdef Queue q
        cdef bint found = False
        self.queues = queues
        self.by_header = by_header
        self.handler = handler
        self.via = via
        self.numbering = numbering
        self.gates = gates
        self.apart = numbering is not None
        for q in queues:
            found = found or not q.shadow
            self.replicated += q.replicated
            self.windows = self.windows or q.window is not None
            self.apart = self.apart or q.delays is not None
            self.limited = self.limited or q.limited()
            self.timed = self.timed or q.ttl != UNLIMITED or (q.window is not None and q.window.time != UNLIMITED)
        self.nowhere = not found and len(queues) > 0


cdef class Publication:
    """See routes.pxd."""


cdef Publication publication_of(bytes method, Route route, uint64_t generation):
    cdef Publication made = Publication.__new__(Publication)
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(method)
    made.route = route
    made.method = method
    made.start = 6
    made.length = <uint32_t>PyBytes_GET_SIZE(method) - 7
    made.mandatory = p[6 + made.length] & 1
    made.generation = generation
    return made


cdef uint64_t hash_of(uint32_t host, const uint8_t* p, size_t n) noexcept:
    cdef uint64_t found = SEED ^ n ^ <uint64_t>host << 32, word
    while n:
        word = 0
        memcpy(&word, p, 8 if n > 8 else n)
        found = (found ^ word) * <uint64_t>0x9E3779B97F4A7C15
        found ^= found >> 29
        p += 8
        n -= 8 if n > 8 else n
    found = (found ^ (found >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    return found ^ (found >> 33)


cdef class Table:
    """Methods by their virtual host and octets; open addressing.  A MemoryError changes nothing."""

    def __dealloc__(self):
        free(self.slots)
        free(self.octets)

    cdef Kept* find(self, uint64_t hash, uint32_t host, const uint8_t* p, uint32_t size) noexcept:
        cdef size_t n
        cdef Kept* kept
        if self.slots == NULL:
            return NULL
        for n in range(PROBES):
            kept = &self.slots[(hash + n) & self.mask]
            if kept.size == 0:
                return NULL
            if (kept.hash == hash and kept.host == host and kept.route >= 0 and kept.size == size
                    and not memcmp(self.octets + kept.at, p, size)):
                return kept
        return NULL

    cdef Kept* free_slot(self, uint64_t hash) noexcept:
        cdef size_t n
        for n in range(PROBES):
            if self.slots[(hash + n) & self.mask].size == 0:
                return &self.slots[(hash + n) & self.mask]
        return NULL

    cdef Kept* add(self, uint64_t hash, uint32_t host, const uint8_t* p, uint32_t size) except? NULL:
        """For a method that is not here; the caller says which route.  NULL when it finds no place."""
        cdef Kept* kept
        cdef size_t room = self.room
        cdef void* octets
        while self.used + size > room:
            room = 2 * room if room else 1024
        if room != self.room:
            octets = mem_resized(self.octets, room)
            if octets == NULL:
                raise MemoryError
            self.octets, self.room = <uint8_t*>octets, room
        if self.slots == NULL or 2 * self.taken > self.mask:
            self.grow()
        kept = self.free_slot(hash)
        if kept == NULL:
            return NULL
        memcpy(self.octets + self.used, p, size)
        kept.hash, kept.at, kept.size, kept.host, kept.route = hash, <uint32_t>self.used, size, host, -1
        self.used += size
        self.taken += 1
        return kept

    cdef int grow(self) except -1:
        cdef Table larger = Table.__new__(Table)
        cdef size_t i, count = 2 * (self.mask + 1) if self.slots != NULL else 16
        cdef Kept* to
        larger.slots = <Kept*>mem_zeroed(count, sizeof(Kept))
        if larger.slots == NULL:
            raise MemoryError
        larger.mask = count - 1
        for i in range(self.mask + 1 if self.slots != NULL else 0):
            if self.slots[i].size and self.slots[i].route >= 0:
                to = larger.free_slot(self.slots[i].hash)
                if to == NULL:
                    return 0
                to[0] = self.slots[i]
                larger.taken += 1
        self.slots, larger.slots = larger.slots, self.slots
        self.mask, self.taken = larger.mask, larger.taken
        return 0


cdef class Publications:
    """The routes of all connections' publishes: those asked for last, `FULL` to twice as many."""

    def __cinit__(self):
        self.young, self.old = Table(), Table()
        self.routes, self.vacant, self.known, self.keys, self.headers = [], [], {}, {}, {}

    def __len__(self):
        """Methods that have a route."""
        return sum([(<Route>route).uses for route in self.known.values()])

    cdef Publication find(self, uint32_t host, const uint8_t* p, uint32_t size, uint64_t generation):
        cdef uint64_t hash = hash_of(host, p, size)
        cdef Kept* kept = self.young.find(hash, host, p, size)
        cdef bint moves = kept == NULL
        cdef bytes method
        cdef Route route
        if moves:
            kept = self.old.find(hash, host, p, size)
            if kept == NULL:
                return None
        if kept.generation != generation and not self.holds(kept, p):
            self.release(kept)
            return None
        kept.generation = generation
        route = <Route>self.routes[kept.route]
        method = PyBytes_FromStringAndSize(<const char*>p, size)
        return self.keep(host, method, route, generation) if moves else publication_of(method, route, generation)

    cdef Publication keep(self, uint32_t host, bytes method, Route route, uint64_t generation):
        """`method` is not in the young table."""
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(method)
        cdef uint32_t size = <uint32_t>PyBytes_GET_SIZE(method)
        cdef Kept* kept
        if self.young.taken >= FULL or self.young.used >= OCTETS or len(self.known) >= ROUTES:
            self.end_table()
        kept = self.young.add(hash_of(host, p, size), host, p, size)
        if kept == NULL:
            self.end_table()
            kept = self.young.add(hash_of(host, p, size), host, p, size)
        route = self.one_of(route)
        kept.route = route.place
        kept.generation = generation
        route.uses += 1
        return publication_of(method, route, generation)

    cdef int end_table(self) except -1:
        self.release_all(self.old)
        self.old, self.young = self.young, Table()
        if len(self.known) >= ROUTES:
            self.release_all(self.old)
            self.old = Table()
        return 0

    cdef Route one_of(self, Route route):
        """The one that is kept, of all that are equal."""
        cdef Route known
        if route.uses:
            return route
        whole = route.by_header is not None or route.handler is not None or route.numbering is not None
        equal = route if whole else (tuple(route.queues), route.via, tuple((route.gates or {}).items()))
        known = <Route>self.known.get(equal)
        if known is not None:
            return known
        if not self.vacant:
            self.routes.append(None)
            self.vacant.append(len(self.routes) - 1)
        self.known[equal] = route
        route.equal = None if whole else equal
        route.place = self.vacant.pop()
        self.routes[route.place] = route
        return route

    cdef bint holds(self, const Kept* kept, const uint8_t* method) except -1:
        """Is the route that is kept for a method still right?"""
        cdef Route route = <Route>self.routes[kept.route]
        cdef Mark mark
        cdef Queue queue
        cdef const uint8_t* key
        if kept.generation < self.floor:
            return False
        for mark in route.via:
            if mark.changed > kept.generation:
                return False
        for queue in route.queues:
            if queue.rerouted > kept.generation:
                return False
        if self.keys:
            key = method + 7 + method[6]
            return <uint64_t>self.keys.get(key[1:1 + key[0]], 0) <= kept.generation
        return True

    cdef Route by_header(self, bytes name):
        """Of a message like an earlier one, for which the owner was asked; None: it has to be asked.  Any change of
        exchanges or bindings forgets them all."""
        return <Route>self.headers.get(name)

    cdef int keep_by_header(self, bytes name, Route route) except -1:
        cdef size_t weight = 3 + len(route.queues)
        if len(name) > LONG or weight > HEADERS:
            return 0
        if self.weight + weight > HEADERS:
            self.forget_headers()
        self.headers[name] = route
        self.weight += weight
        return 0

    cdef int forget_headers(self) except -1:
        self.headers.clear()
        self.weight = 0
        return 0

    cdef int changed(self, what, uint64_t generation) except -1:
        """See Engine.forget_routes."""
        if self.weight:
            self.forget_headers()
        if isinstance(what, Queue):
            (<Queue>what).rerouted = generation
        elif isinstance(what, Mark):
            (<Mark>what).changed = generation
        elif what is not None and len(self.keys) < CHANGES:
            self.keys[what] = generation
        else:
            self.floor = generation
            self.keys = {}
            self.release_all(self.young)
            self.release_all(self.old)
            self.young, self.old = Table(), Table()
        return self.look_for_forgotten()

    cdef int look_for_forgotten(self) except -1:
        cdef Table table
        cdef Kept* kept
        cdef size_t i
        for table in (self.young, self.old):
            for i in range(self.looked, self.looked + min(LOOKS, table.mask + 1) if table.taken else 0):
                kept = &table.slots[i & table.mask]
                if kept.size and kept.route >= 0 and not self.holds(kept, table.octets + kept.at):
                    self.release(kept)
        self.looked += LOOKS
        return 0

    cdef int release(self, Kept* kept) except -1:
        """The route is given up."""
        cdef Route route = <Route>self.routes[kept.route]
        kept.route = -1
        route.uses -= 1
        if route.uses == 0:
            del self.known[route if route.equal is None else route.equal]
            self.routes[route.place] = None
            self.vacant.append(route.place)
            route.equal = None
        return 0

    cdef int release_all(self, Table table) except -1:
        cdef size_t i
        for i in range(table.mask + 1 if table.slots != NULL else 0):
            if table.slots[i].size and table.slots[i].route >= 0:
                self.release(&table.slots[i])
        return 0
