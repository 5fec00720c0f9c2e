"""For how long a connection has been silent, or in one state: seconds, counted by ticks.                        Pure.

Why not differences of times: a broker that was stopped for a minute is not to close its live clients when it resumes.
"""


class Clock:
    """Seconds of silence and of being in a state, counted by ticks."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._sent = self._received = -1
        self._quiet_out = self._quiet_in = 0.0
        self._state: object = None
        self._in_state = 0.0

    def advance(self, now: float, longest: float) -> float:
        """Seconds since the last tick, at most `longest`."""
        elapsed = 0.0 if self._last is None else min(max(0.0, now - self._last), longest)
        self._last = now
        return elapsed

    def in_state(self, state: object, elapsed: float) -> float:
        self._in_state = self._in_state + elapsed if state is self._state else 0.0
        self._state = state
        return self._in_state

    def quiet_out(self, sent: int, elapsed: float) -> float:
        self._quiet_out = self._quiet_out + elapsed if sent == self._sent else 0.0
        self._sent = sent
        return self._quiet_out

    def quiet_in(self, received: int, elapsed: float, paused: bool) -> float:
        """Counts from the end of a pause: octets that the peer sent meanwhile may not have been read yet."""
        self._quiet_in = self._quiet_in + elapsed if received == self._received and not paused else 0.0
        self._received = received
        return self._quiet_in
