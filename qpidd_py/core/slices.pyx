# cython: language_level=3
"""How long a part of a turn goes on before others have theirs.

Theory.  Whatever one client can make large is done in slices, and remembers where it was: input of a connection, settlements,
what comes back from a channel that ends, purges, dead letters, deliveries.  A slice counts units of work (about what one
message costs, 0.3 us) and looks at the clock once for `look` of them, so that it always gets on, and costs no clock where
little is done.  There is one slice at a time; work that is done in the middle of it, such as an enqueue to many queues, spends
its units, too.  Frames, and acknowledgements in one of them, spend units before they do anything, so `look` is at least 4.
The clock is the reactor's (`ClockSlice`); without it a slice ends after `most` looks.
"""


cdef class Slice:
    """Of the part of a turn that is under way."""

    def __cinit__(self):
        self.look = LOOK

    cdef void begin(self, bint endless) noexcept:
        """`endless`: no next turn is called for, so nothing may be left for it."""
        self.units = self.look
        self.looks = 0
        self.endless = endless
        self.ended = False

    cdef bint over(self) noexcept:
        if not self.ended:
            self.looks += 1
            self.ended = not self.endless and self.late()
            self.units = 0 if self.ended else self.look      # once it has ended every question gets this answer
        return self.ended

    cdef bint late(self) noexcept:
        return 0 < self.most <= self.looks
