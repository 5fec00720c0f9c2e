"""Signs of life on a replication link: how long the peer has been silent, and when we must send.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ha.model.environment import Link


@dataclass(eq=False)
class Pulse:
    """Signs of life of one link, read at every tick; used by both ends."""

    heard: float
    spoken: float
    received: int = 0
    sent: int = 0

    def look(self, link: Link, now: float) -> float:
        """Seconds since the peer last sent anything."""
        received = link.received
        if received != self.received:
            self.received, self.heard = received, now
        return now - self.heard

    def must_speak(self, link: Link, now: float, interval: float) -> bool:
        """True if nothing was sent for `interval` seconds."""
        sent = link.sent
        if sent != self.sent:
            self.sent, self.spoken = sent, now
        return now - self.spoken >= interval

    def forgive(self, now: float) -> None:
        """Restart the measurement: this process was paused, so the silence so far means nothing."""
        self.heard = now
