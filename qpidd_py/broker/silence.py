"""For how long a connection has been silent, or in one state: seconds, counted by ticks.                        Pure.

Why not differences of times: a broker that was stopped for a minute is not to close its live clients when it resumes.
"""

from qpidd_py.amqp.constants import HEARTBEAT_FRAME
from qpidd_py.core.connection import Connection


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

    def heartbeat(self, core: Connection, interval: float, elapsed: float) -> bool:
        """Sends one when it is time; False when the peer has missed two."""
        # waiting output serves as a heartbeat; while we do not read, the peer does not count as silent
        if self._quiet_out_for(core.sent, elapsed) >= interval / 2 and not core.backlog:
            core.write(HEARTBEAT_FRAME)
        return self._quiet_in_for(core.received, elapsed, not core.reads()) <= 2 * interval

    def _quiet_out_for(self, sent: int, elapsed: float) -> float:
        self._quiet_out = self._quiet_out + elapsed if sent == self._sent else 0.0
        self._sent = sent
        return self._quiet_out

    def _quiet_in_for(self, received: int, elapsed: float, paused: bool) -> float:
        """Counts from the end of a pause: octets that the peer sent meanwhile may not have been read yet."""
        self._quiet_in = self._quiet_in + elapsed if received == self._received and not paused else 0.0
        self._received = received
        return self._quiet_in
