"""Clients that keep a delivery for too long: their channel is closed, and what it holds goes back to its queues.

Theory.  A delivery notes the time in quarters of a second (`Engine.clock`), which costs the data path one store.  A
channel that consumes or gets is looked at when a delivery may be late: `Channel.late` says which is, or when one of
those that it holds may be; what comes meanwhile cannot be late before the shortest time that its consumers have.  A
channel without consumers that holds nothing is forgotten.  Nothing is replicated: after a fail-over no client holds
anything.
"""

from __future__ import annotations

from typing import Final

from qpidd_py.broker.client_channel import ClientChannel
from qpidd_py.broker.queue import QUARTERS, quarters
from qpidd_py.core.deadlines import Deadlines
from qpidd_py.core.engine import Engine
from qpidd_py.errors import ReplyCode

LOOKS: Final = 1000
"""Of channels, at most, in one tick."""
PAUSE: Final = 1.0
"""Seconds between two looks at one channel, at least: each looks at all that it holds."""


class ConsumerTimeouts:
    """When to look at which channel."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._default = 0
        self._began: float | None = None
        self._new: dict[ClientChannel, None] = {}
        self._looks: Deadlines[ClientChannel] = Deadlines()

    def set_default(self, seconds: float) -> None:
        """For queues without `x-consumer-timeout`; 0 = none.  The caller watches the channels that are there."""
        self._default = quarters(seconds)

    def watch(self, channel: ClientChannel) -> None:
        """It has begun to consume, or to get: the next tick looks at it."""
        self._new[channel] = None

    def forget(self, channel: ClientChannel) -> None:
        self._new.pop(channel, None)
        self._looks.drop(channel)

    def tick(self, now: float) -> None:
        """`now` in seconds of a clock that never goes back."""
        self._began = now if self._began is None else self._began
        self._engine.clock = int((now - self._began) * QUARTERS)
        for channel in self._new:
            self._looks.set(channel, now)
        self._new.clear()
        for _ in range(LOOKS):
            due = self._looks.pop(now)
            if due is None:
                break
            self._look(due, now)

    def _look(self, channel: ClientChannel, now: float) -> None:
        late, left = channel.core.late(self._default)
        if late:
            text = f"PRECONDITION_FAILED - delivery acknowledgement on channel {channel.number} timed out. "
            text += f"Timeout value used: {1000 * late // QUARTERS} ms"
            channel.connection.failed(channel.number, ReplyCode.PRECONDITION_FAILED, text, 0, 0)
        elif waits := [wait for wait in (left, self._shortest(channel)) if wait]:
            self._looks.set(channel, now + max(min(waits) / QUARTERS, PAUSE))

    def _shortest(self, channel: ClientChannel) -> int:
        """Quarters of a second that one of its consumers may take; 0 if none is limited."""
        consumers = (each for each in channel.core.consumers.values() if not each.no_ack)
        return min(filter(None, (each.queue.patience or self._default for each in consumers)), default=0)
