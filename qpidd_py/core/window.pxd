from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef struct Key:
    uint64_t low
    uint64_t high

cdef struct Seen:               # a key that was seen; 32 octets
    Key key
    uint64_t id                 # the message that had it
    uint32_t when               # quarters of a second since 2020
    uint32_t next               # place of the next one of its bucket + 1; 0: none; LEFT: in no bucket any more

cdef enum:
    LEFT = 0xFFFFFFFF

cdef class Window:
    cdef readonly uint64_t most
    cdef readonly uint64_t time             # milliseconds; UNLIMITED = no limit
    cdef bytes header                       # length and name of the header that has the key; None: message-id
    cdef uint64_t k0, k1                    # of the hash
    cdef Seen** chunks                      # a ring of `places` chunks
    cdef uint64_t places
    cdef uint64_t head, tail                # absolute indexes, in order of id
    cdef uint32_t** heads                   # the first of each bucket, in chunks
    cdef uint64_t buckets, size             # size <= buckets < 2 * size, a power of two
    cdef readonly uint64_t count            # keys in buckets
    cdef public uint64_t duplicates         # publishes that did not enter
    cdef Window live                        # while the difference arrives: keys of the live stream
    cdef inline Seen* at(self, uint64_t index) noexcept:
        cdef uint64_t place = index % (self.places << 10)
        return &self.chunks[place >> 10][place & 1023]
    cdef Key hashed(self, const uint8_t* p, size_t n) noexcept
    cdef uint64_t find(self, Key key, uint64_t now) noexcept
    cdef int room_for(self, uint64_t more) except -1
    cdef int note(self, Key key, uint64_t id, uint64_t now) except -1
    cdef int note_at(self, Key key, uint64_t id, uint32_t when) except -1
    cdef int begin(self, uint64_t after, uint64_t cut) except -1
    cdef int settle(self) except -1
    cdef void forget(self) noexcept
    cdef uint64_t index_after(self, uint64_t id) noexcept
    cdef Seen* named(self, uint32_t name) noexcept
    cdef uint32_t* bucket(self, Key key) noexcept
    cdef inline uint32_t* head_of(self, uint64_t bucket) noexcept:
        return &self.heads[bucket >> 11][bucket & 2047]
    cdef void unlink(self, Seen* seen, uint64_t index) noexcept
    cdef void drop_first(self) noexcept
    cdef void drop_last(self) noexcept
    cdef void leave_chunk(self, uint64_t number) noexcept
    cdef void grow(self) noexcept
    cdef void shrink(self) noexcept
    cdef bint old(self, uint32_t when, uint32_t now) noexcept
    cdef bint too_old(self, uint32_t now) noexcept
