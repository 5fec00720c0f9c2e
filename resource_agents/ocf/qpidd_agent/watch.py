"""When does a silent broker count as hung, and when has a monitor held long enough?  Pure; seconds of any one clock.

* A primary that is silent for `silence` hangs: every client waits for it, and a backup can take over at once.
* A primary that is the last copy of something, and a backup, have until the end of the hold: nobody could take over
  from the one, nobody waits for the other.  Above all, an operation that takes long on all brokers in the same way must
  not end all of them.
* Whoever stood still himself (a machine that was paused or starved) has no right to judge: the count begins anew.
* At the end a monitor leaves only if it has heard something just now; otherwise the next one would count from nothing.
"""


class Watch:
    def __init__(self, now: float, hold: float, silence: float) -> None:
        """`hold`: how long a monitor may last; `silence`: how long a broker that works may be silent."""
        self._end = now + hold
        self._silence = silence
        self._sign = now
        self._looked = now
        self.patient = False

    def sign(self, now: float) -> None:
        self._sign = now

    def woke(self, now: float, planned: float) -> None:
        """We meant to sleep for no longer than `planned`."""
        if now - self._looked > planned + self._silence / 2:
            self._sign = now
        self._looked = now

    def silent(self, now: float) -> bool:
        """For so long that a broker that works would have said something."""
        return now - self._sign >= self._silence

    def late(self, now: float) -> bool:
        """Time to ask."""
        return now - self._sign >= self._silence / 2

    def hangs(self, now: float) -> bool:
        return self.silent(now) and (not self.patient or now >= self._end)

    def over(self, now: float) -> bool:
        return now >= self._end and not self.late(now)

    def sleep(self, now: float) -> float:
        """Until the next moment at which one of these answers can change."""
        moments = (self._end, self._sign + self._silence / 2, self._sign + self._silence)
        return max(0.001, min([moment - now for moment in moments if moment > now], default=self._silence))
