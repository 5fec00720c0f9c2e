"""Decides when a silent broker counts as hung, and when a held monitor ends.  Pure; times in seconds of one clock.

* A primary that is silent for `silence` hangs: every client waits for it, and a backup can take over at once.
* A primary that holds the only copy of some messages, and a backup, have until the end of the hold: no broker could
  replace the one, and no client waits for the other.  Above all, an operation that takes long on all brokers must not
  kill all of them.
* A backup hangs after two silences already if another broker answers as primary then: that one holds all that ours
  does.
* After a pause of this process (a machine that was paused or overloaded) the count starts again.
* A monitor ends only shortly after a sign of life; otherwise the next one would start counting from zero.
"""


class Watch:
    def __init__(self, now: float, hold: float, silence: float) -> None:
        """`hold`: longest duration of a monitor; `silence`: longest silence of a working broker."""
        self._end = now + hold
        self._silence = silence
        self._sign = now
        self._looked = now
        self._asked = now
        self.patient = False

    def sign(self, now: float) -> None:
        self._sign = now

    def woke(self, now: float, planned: float) -> None:
        """We woke up from a sleep of at most `planned` seconds; after a longer one the count starts again."""
        if now - self._looked > planned + self._silence / 2:
            self._sign = now
        self._looked = now

    def silent(self, now: float) -> bool:
        """True if a working broker would have sent a sign of life by now."""
        return now - self._sign >= self._silence

    def late(self, now: float) -> bool:
        """True if it is time to query the port."""
        return now - self._sign >= self._silence / 2

    def hangs(self, now: float) -> bool:
        return self.silent(now) and (not self.patient or now >= self._end)

    def ask_others(self, now: float) -> bool:
        """True if it is time to look for a primary elsewhere: after two silences, and again after each further one."""
        if now < self._others_due:
            return False
        self._asked = now
        return True

    @property
    def _others_due(self) -> float:
        return max(self._sign + 2 * self._silence, self._asked + self._silence)

    def over(self, now: float) -> bool:
        return now >= self._end and not self.late(now)

    def sleep(self, now: float) -> float:
        """Seconds until one of these results can change."""
        moments = (self._end, self._sign + self._silence / 2, self._sign + self._silence, self._others_due)
        return max(0.001, min([moment - now for moment in moments if moment > now], default=self._silence))
