# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The keys that a queue has seen: a window by count and by time.  Knows no queue, no message and no log.

Theory.  Keys are kept as 128 bits of SipHash-2-4 under a secret of the queue.  Entries of 32 octets lie in a ring of
chunks, in order of id, so what leaves is the front.  They are found by linear hashing: as many buckets as keys, 4
octets each, and with each key that comes one bucket is split, with each that goes two are joined.  So no step is longer
than another, however large the window, and a key costs 36 octets.

Two keys with one hash count as one: the later message would not enter.  With 10,000,000 keys in the window that happens
once in 2^104 publishes; who does not know the secret cannot look for such keys.

A key is found for `time` at least, and for half a second more at most.  A key that is too old and comes again is entered
anew; its old entry stays in the ring without a bucket (LEFT).

A backup has the window of its primary: it is a function of the log, which `note` is called for in order.  While it joins
the keys before the cut come in order, too, and those of the live stream wait in `live` (`begin`, `settle`).
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from qpidd_py.core.memory cimport mem_new, mem_zeroed

from qpidd_py.errors import InvariantError

cdef enum:
    CHUNK = 1024                # entries; as in `at`
    HEADS = 2048                # buckets of a chunk of them; as in `head_of`
    FEW = 64                    # buckets of a small window
    AT_ONCE = 64                # old entries that leave with one that comes
    QUARTER = 250               # milliseconds

cdef uint64_t UNLIMITED = <uint64_t>-1
KEY_SIZE = 32                   # octets of a key in a record

cdef uint64_t BEGINNING = 1577836800000     # 2020 in milliseconds since 1970


cdef class Window:
    """At most `most` keys, of at most `time` milliseconds if there is such a limit; `secret` has 16 octets."""

    def __cinit__(self, uint64_t most, time, bytes secret, header=None):
        if not most or len(secret) != 16:
            raise InvariantError(f"a window of {most} keys, {len(secret)} octets of a secret")
        self.most = most
        self.time = UNLIMITED if time is None else time
        self.header = None if header is None else bytes((len(header),)) + header
        memcpy(&self.k0, PyBytes_AS_STRING(secret), 8)
        memcpy(&self.k1, PyBytes_AS_STRING(secret) + 8, 8)
        self.places = most // CHUNK + 2
        self.buckets = self.size = FEW
        self.chunks = <Seen**>mem_zeroed(self.places, sizeof(void*))
        self.heads = <uint32_t**>mem_zeroed(most // HEADS + 2, sizeof(void*))
        if self.chunks == NULL or self.heads == NULL:
            raise MemoryError
        self.heads[0] = <uint32_t*>mem_zeroed(HEADS, sizeof(uint32_t))
        if self.heads[0] == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint64_t i
        if self.chunks != NULL:
            for i in range(self.places):
                free(self.chunks[i])
        if self.heads != NULL:
            for i in range(self.most // HEADS + 2):
                free(self.heads[i])
        free(self.chunks)
        free(self.heads)

    def twin(self):
        """An empty one with the same secret."""
        cdef bytes secret = (<uint8_t*>&self.k0)[:8] + (<uint8_t*>&self.k1)[:8]
        return Window(self.most, None if self.time == UNLIMITED else self.time, secret,
                      None if self.header is None else self.header[1:])

    @property
    def octets(self):
        """That it takes."""
        cdef uint64_t i, n = 8 * (self.places + self.most // HEADS + 2)
        for i in range(self.places):
            n += CHUNK * sizeof(Seen) if self.chunks[i] != NULL else 0
        for i in range(self.most // HEADS + 2):
            n += HEADS * sizeof(uint32_t) if self.heads[i] != NULL else 0
        return n

    @property
    def newest(self):
        """Id of the message whose key came last; 0 without any."""
        return self.at(self.tail - 1).id if self.head < self.tail else 0

    # ---------------------------------------------------------------- keys

    cdef Key hashed(self, const uint8_t* p, size_t n) noexcept:
        return sip(self.k0, self.k1, p, n)

    cdef uint64_t find(self, Key key, uint64_t now) noexcept:
        """The id of the message with this key; 0 if none is remembered.  `now` in milliseconds since 1970."""
        cdef uint32_t name = self.bucket(key)[0]
        cdef Seen* seen
        while name:
            seen = self.named(name)
            if seen.key.low == key.low and seen.key.high == key.high:
                return 0 if self.old(seen.when, quarters(now)) else seen.id
            name = seen.next
        return 0

    cdef int room_for(self, uint64_t more) except -1:
        """The next `more` keys need no memory; a MemoryError changes nothing."""
        cdef uint64_t i, last = min(more, self.most)
        for i in range(self.tail // CHUNK, (self.tail + last - 1) // CHUNK + 1 if last else 0):
            if self.chunks[i % self.places] == NULL:
                self.chunks[i % self.places] = <Seen*>mem_new(CHUNK * sizeof(Seen))
                if self.chunks[i % self.places] == NULL:
                    raise MemoryError
        for i in range(self.buckets // HEADS, min(self.buckets + last, self.most) // HEADS + 1):
            if self.heads[i] == NULL:           # without memory for them the buckets become longer
                self.heads[i] = <uint32_t*>mem_zeroed(HEADS, sizeof(uint32_t))
        return 0

    cdef int note(self, Key key, uint64_t id, uint64_t now) except -1:
        """A message with this key has entered; nothing changes if the key is remembered already."""
        return self.note_at(key, id, quarters(now))

    cdef int note_at(self, Key key, uint64_t id, uint32_t when) except -1:
        cdef uint32_t name = self.bucket(key)[0]
        cdef Seen* seen
        cdef int left = AT_ONCE
        if self.head < self.tail:
            when = max(when, self.at(self.tail - 1).when)
        while name:
            seen = self.named(name)
            if seen.key.low == key.low and seen.key.high == key.high:
                if not self.old(seen.when, when):
                    return 0
                break
            name = seen.next
        self.room_for(1)
        if name:
            self.unlink(seen, name - 1)
        while self.tail - self.head >= self.most or (left > 0 and self.too_old(when)):
            self.drop_first()
            left -= 1
        seen = self.at(self.tail)
        seen.key, seen.id, seen.when = key, id, when
        seen.next = self.bucket(key)[0]
        self.bucket(key)[0] = <uint32_t>(self.tail % (self.places * CHUNK)) + 1
        self.tail += 1
        self.count += 1
        if self.count > self.buckets and self.buckets < self.most and self.heads[self.buckets // HEADS] != NULL:
            self.grow()
        return 0

    # ---------------------------------------------------------------- a joining backup

    cdef int begin(self, uint64_t after, uint64_t cut) except -1:
        """The keys of messages in after + 1..cut come now, in order: what is here of those goes."""
        cdef uint64_t i
        cdef Window live
        self.settle()
        live = self.twin()
        for i in range(self.index_after(cut), self.tail):
            live.note_at(self.at(i).key, self.at(i).id, self.at(i).when)
        if self.index_after(after) == self.head:
            self.forget()
        while self.tail > self.head and self.at(self.tail - 1).id > after:
            self.drop_last()
        self.live = live
        return 0

    cdef int settle(self) except -1:
        """All of them have come."""
        cdef uint64_t i
        cdef Window live = self.live
        if live is not None:
            for i in range(live.head, live.tail):
                if live.at(i).next != LEFT:
                    self.note_at(live.at(i).key, live.at(i).id, live.at(i).when)
            self.live = None
        return 0

    cdef void forget(self) noexcept:
        """Everything."""
        cdef uint64_t i
        self.live = None
        for i in range(self.places):
            free(self.chunks[i])
            self.chunks[i] = NULL
        for i in range(1, self.most // HEADS + 2):
            free(self.heads[i])
            self.heads[i] = NULL
        memset(self.heads[0], 0, HEADS * sizeof(uint32_t))
        self.buckets = self.size = FEW
        self.head = self.tail = self.count = 0

    cdef uint64_t index_after(self, uint64_t id) noexcept:
        """The index of the first entry with a higher id."""
        cdef uint64_t low = self.head, high = self.tail, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.at(middle).id <= id:
                low = middle + 1
            else:
                high = middle
        return low

    # ---------------------------------------------------------------- ring and buckets

    cdef Seen* named(self, uint32_t name) noexcept:
        return &self.chunks[(name - 1) // CHUNK][(name - 1) % CHUNK]

    cdef uint32_t* bucket(self, Key key) noexcept:
        cdef uint64_t number = key.low & (2 * self.size - 1)
        return self.head_of(number if number < self.buckets else key.low & (self.size - 1))

    cdef void unlink(self, Seen* seen, uint64_t place) noexcept:
        cdef uint32_t* name = self.bucket(seen.key)
        while name[0] != place + 1:
            name = &self.named(name[0]).next
        name[0] = seen.next
        seen.next = LEFT
        self.count -= 1
        if 2 * self.count < self.buckets and self.buckets > FEW:
            self.shrink()

    cdef void drop_first(self) noexcept:
        cdef Seen* seen = self.at(self.head)
        if seen.next != LEFT:
            self.unlink(seen, self.head % (self.places * CHUNK))
        self.head += 1
        if self.head % CHUNK == 0:
            self.leave_chunk((self.head - 1) // CHUNK)

    cdef void drop_last(self) noexcept:
        cdef Seen* seen = self.at(self.tail - 1)
        if seen.next != LEFT:
            self.unlink(seen, (self.tail - 1) % (self.places * CHUNK))
        self.tail -= 1
        if self.tail % CHUNK == 0:
            free(self.chunks[self.tail // CHUNK % self.places])
            self.chunks[self.tail // CHUNK % self.places] = NULL

    cdef void leave_chunk(self, uint64_t number) noexcept:
        """Nothing lies in this chunk any more: the next entries get it, or it is freed."""
        cdef Seen** chunk = &self.chunks[number % self.places]
        cdef Seen** next = &self.chunks[(self.tail // CHUNK + (self.tail % CHUNK != 0)) % self.places]
        if next[0] == NULL:
            next[0], chunk[0] = chunk[0], NULL
        elif next != chunk:
            free(chunk[0])
            chunk[0] = NULL

    cdef void grow(self) noexcept:
        """One bucket is split; `room_for` has made room for its other half."""
        cdef uint32_t* old = self.head_of(self.buckets - self.size)
        cdef uint32_t* new = self.head_of(self.buckets)
        cdef uint32_t name = old[0], next
        cdef Seen* seen
        old[0] = new[0] = 0
        while name:
            seen = self.named(name)
            next = seen.next
            if seen.key.low & (2 * self.size - 1) == self.buckets:
                seen.next = new[0]
                new[0] = name
            else:
                seen.next = old[0]
                old[0] = name
            name = next
        self.buckets += 1
        if self.buckets == 2 * self.size:
            self.size = self.buckets

    cdef void shrink(self) noexcept:
        """The last bucket joins the one that it was split from."""
        cdef uint32_t* name
        if self.buckets == self.size:
            self.size //= 2
        self.buckets -= 1
        name = self.head_of(self.buckets - self.size)
        while name[0]:
            name = &self.named(name[0]).next
        name[0] = self.head_of(self.buckets)[0]
        self.head_of(self.buckets)[0] = 0
        if self.buckets % HEADS == 0:
            free(self.heads[self.buckets // HEADS])
            self.heads[self.buckets // HEADS] = NULL

    cdef bint old(self, uint32_t when, uint32_t now) noexcept:
        return self.time != UNLIMITED and when + (self.time + QUARTER - 1) // QUARTER < now

    cdef bint too_old(self, uint32_t now) noexcept:
        """The first entry."""
        return self.head < self.tail and (self.old(self.at(self.head).when, now) or self.at(self.head).next == LEFT)

    # ---------------------------------------------------------------- for tests

    def entries(self):
        """(hash, id, when) of what is remembered, in order."""
        return [((<uint8_t*>&self.at(i).key)[:16], self.at(i).id, self.at(i).when)
                for i in range(self.head, self.tail) if self.at(i).next != LEFT]

    def add(self, bytes key, uint64_t id, uint64_t now):
        self.note(self.hashed(<const uint8_t*>PyBytes_AS_STRING(key), len(key)), id, now)

    def seen(self, bytes key, uint64_t now):
        return self.find(self.hashed(<const uint8_t*>PyBytes_AS_STRING(key), len(key)), now)

    def check(self):
        """Raises InvariantError unless each entry is in its bucket, once, and the counters are right."""
        cdef uint64_t i, n = 0, last = 0, linked = 0
        cdef uint32_t name
        for i in range(self.head, self.tail):
            n += self.at(i).next != LEFT
            if self.at(i).id <= last:
                raise InvariantError(f"id {self.at(i).id} after {last}")
            last = self.at(i).id
        for i in range(self.buckets):
            name = self.head_of(i)[0]
            while name:
                if self.bucket(self.named(name).key) != self.head_of(i):
                    raise InvariantError(f"place {name} is in bucket {i}")
                linked += 1
                name = self.named(name).next
        if len({key for key, _, _ in self.entries()}) != n:
            raise InvariantError("a key is remembered twice")
        if not n == linked == self.count or self.tail - self.head > self.most:
            raise InvariantError(f"{n} keys, {linked} in buckets, counted {self.count}, at most {self.most}")


cdef inline uint32_t quarters(uint64_t now) noexcept:
    return 0 if now < BEGINNING else <uint32_t>((now - BEGINNING) // QUARTER)


cdef inline uint64_t rotated(uint64_t x, int bits) noexcept:
    return x << bits | x >> (64 - bits)


cdef inline void rounds(uint64_t* v, int n) noexcept:
    while n:
        n -= 1
        v[0] += v[1]
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] += v[3]
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)


cdef Key sip(uint64_t k0, uint64_t k1, const uint8_t* p, size_t n) noexcept:
    """SipHash-2-4 of 128 bits (Aumasson and Bernstein); on a machine with the low octet first."""
    cdef uint64_t v[4]
    cdef uint64_t word, end = <uint64_t>n << 56
    cdef Key key
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573
    while n >= 8:
        memcpy(&word, p, 8)
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
        p += 8
        n -= 8
    word = 0
    memcpy(&word, p, n)
    word |= end
    v[3] ^= word
    rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    rounds(v, 4)
    key.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(v, 4)
    key.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return key
