# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Which publishes wait for their confirm, and which confirms are due.

The publishes of one channel (`Sender`) that stand one after the other in the log form a run (`Wait`) of up to 64.  Runs
lie in one ring in order of position; those of a sender are chained.  `release_to` releases from the front of the ring;
`acknowledge` releases one bit of a run.  The front of a sender's released publishes is due: one basic.ack with multiple,
that the caller writes at the end of its turn (`take_due`).

Nothing here knows a connection, a queue or the log, and nothing is decided here but the order: the caller says what is
safe, what a client has acknowledged and what was refused.
"""
from libc.stdlib cimport free

from qpidd_py.core.memory cimport mem_zeroed

cdef extern from *:
    int __builtin_ctzll(unsigned long long) noexcept nogil

cdef enum:
    RUN = 64                    # publishes of one run: one bit each


cdef class Sender:
    """What publishes with confirms: a channel.  Its tags count from 1; `Confirms.forget` it before it goes."""


cdef class Confirms:
    """The publishes that wait, of all senders.  What becomes due is reported by the result: True when a sender is due
    that was not before."""

    def __cinit__(self):
        self.due = []
        self.mask = 63
        self.waits = <Wait*>mem_zeroed(64, sizeof(Wait))
        if self.waits == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.waits)

    @property
    def waiting(self):
        """Publishes that are neither safe nor acknowledged by a consumer yet."""
        cdef uint64_t i, n = 0
        for i in range(self.head, self.tail):
            n += self.at(i).count - front_released(self.at(i)) if self.at(i).sender != NULL else 0
        return n

    cpdef bint add(self, Sender sender, uint64_t tag, uint64_t until, uint64_t first, bint unlogged,
                   bint refused) except -1:
        """Holds back the confirm of `tag` until position `until` is safe; True when that begins a new run, at `first`.

        `unlogged`: the message has no position of its own, it was put into no replicated queue; `until` is what the
        decision rests on, 0 when there is nothing to wait for but the publishes before it."""
        cdef Wait* w
        if sender.last_wait:
            w = self.at(sender.last_wait - 1)
            if (w.count < RUN and w.unlogged == unlogged and not (w.refused or refused)
                    and (w.until == until if unlogged else w.until + 1 == until)):
                w.until = until
                w.count += 1
                return False
        if self.tail - self.head > self.mask:
            self.grow()
        w = self.at(self.tail)
        w.first = first
        w.until = until
        w.tag = tag
        w.released = <uint64_t>-1 if unlogged and until == 0 else 0
        w.told = 0
        w.count = 1
        w.unlogged = unlogged
        w.refused = refused
        w.sender = <void*>sender
        w.next = 0
        self.tail += 1
        if sender.last_wait:
            self.at(sender.last_wait - 1).next = self.tail
        else:
            sender.first_wait = self.tail
        sender.last_wait = self.tail
        return True

    cdef int grow(self) except -1:
        cdef uint64_t capacity = (self.mask + 1) * 2, i
        cdef Wait* waits = <Wait*>mem_zeroed(capacity, sizeof(Wait))
        if waits == NULL:
            raise MemoryError
        for i in range(self.head, self.tail):
            waits[i & (capacity - 1)] = self.waits[i & self.mask]
        free(self.waits)
        self.waits = waits
        self.mask = capacity - 1
        return 0

    # ---------------------------------------------------------------- released

    cpdef bint release_to(self, uint64_t safe) noexcept:
        """Everything up to position `safe` no longer waits."""
        cdef Wait* w
        cdef bint due = False
        while self.head < self.tail:
            w = self.at(self.head)
            if w.sender != NULL:
                if w.until > safe:
                    break
                w.released = <uint64_t>-1
                due = self.advance(<Sender>w.sender) or due
            elif w.until > safe and front_released(w) < w.count:
                break
            self.head += 1
        return due

    cpdef bint acknowledge(self, uint64_t id) noexcept:
        """A client has acknowledged the message at position `id`: its confirm need not wait any longer."""
        cdef int64_t index = self.find(id)
        cdef Wait* w
        cdef Sender sender
        if index < 0:
            return False
        w = self.at(<uint64_t>index)
        w.released |= <uint64_t>1 << (id - w.first)
        if w.sender != NULL:
            sender = <Sender>w.sender
            if sender.first_wait == <uint64_t>index + 1:
                return self.advance(sender)
        return False

    cdef int64_t find(self, uint64_t id) noexcept:
        """The index of the run that position `id` is in, or -1."""
        cdef uint64_t low = self.head, high = self.tail, middle
        cdef Wait* w
        while low < high:
            middle = low + (high - low) // 2
            if self.at(middle).first <= id:
                low = middle + 1
            else:
                high = middle
        while low > self.head:
            low -= 1
            w = self.at(low)
            if not w.unlogged:
                return <int64_t>low if id - w.first < w.count else -1
        return -1

    cdef bint advance(self, Sender sender) noexcept:
        """The front of the sender's runs is due as far as it is released."""
        cdef Wait* w
        cdef uint64_t done
        cdef bint due = False
        while sender.first_wait:
            w = self.at(sender.first_wait - 1)
            done = front_released(w)
            if done and not w.refused:
                due = self.confirm(sender, w.tag + done - 1) or due
            if done < w.count:
                return due
            w.sender = NULL
            sender.first_wait = w.next
        sender.last_wait = 0
        return due

    # ---------------------------------------------------------------- due

    cpdef bint confirm(self, Sender sender, uint64_t tag) noexcept:
        """All publishes of the sender up to `tag` are due, but for what was refused or told on its own."""
        sender.confirm_to = tag
        if sender.confirm_due:
            return False
        sender.confirm_due = True
        self.due.append(sender)
        return True

    cpdef list take_due(self):
        """The senders whose `confirm_to` has to be written, each once."""
        cdef Sender sender
        due = self.due
        self.due = []
        for sender in due:
            sender.confirm_due = False
        return due

    cpdef list acknowledged(self):
        """(sender, tag) of what was acknowledged behind publishes that still wait, to be confirmed one by one; each is
        told once."""
        cdef uint64_t i, bit
        cdef uint32_t k
        cdef Wait* w
        cdef Sender sender
        cdef list found = []
        for i in range(self.head, self.tail):
            w = self.at(i)
            if w.sender == NULL or w.unlogged or w.released == w.told:
                continue
            sender = <Sender>w.sender
            for k in range(w.count):
                bit = <uint64_t>1 << k
                if w.released & bit and not w.told & bit and w.tag + k > sender.confirm_to:
                    w.told |= bit
                    found.append((sender, w.tag + k))
        return found

    # ---------------------------------------------------------------- ends

    cpdef void forget(self, Sender sender) noexcept:
        """The sender's confirms can no longer be written."""
        cdef Wait* w
        while sender.first_wait:
            w = self.at(sender.first_wait - 1)
            w.sender = NULL
            w.released = <uint64_t>-1
            sender.first_wait = w.next
        sender.last_wait = 0

    cpdef list forget_all(self):
        """Nothing that waits or is due is ever confirmed; the senders that waited."""
        cdef uint64_t i
        cdef Sender sender
        cdef list waited = []
        for i in range(self.head, self.tail):
            if self.at(i).sender != NULL:
                sender = <Sender>self.at(i).sender
                if sender.first_wait:
                    waited.append(sender)
                sender.first_wait = sender.last_wait = 0
        self.head = self.tail
        self.due = []
        return waited


cdef inline uint64_t trailing_ones(uint64_t bits) noexcept:
    return 64 if bits == <uint64_t>-1 else <uint64_t>__builtin_ctzll(~bits)


cdef inline uint64_t front_released(const Wait* w) noexcept:
    """The number of publishes at the front of the run that no longer wait."""
    cdef uint64_t n = trailing_ones(w.released)
    return n if n < w.count else w.count
