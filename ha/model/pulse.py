"""Is the other end of a replication link alive, and when have we to say that we are?  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ha.environment import Link


@dataclass(eq=False)
class Pulse:
    """Signs of life of one link, read at every tick; shared by both ends."""

    heard: float
    spoken: float
    received: int = 0
    sent: int = 0

    def look(self, link: Link, now: float) -> float:
        """Seconds of silence."""
        received = link.received
        if received != self.received:
            self.received, self.heard = received, now
        return now - self.heard

    def must_speak(self, link: Link, now: float, interval: float) -> bool:
        """Has nothing been sent for an interval?"""
        sent = link.sent
        if sent != self.sent:
            self.sent, self.spoken = sent, now
        return now - self.spoken >= interval

    def forgive(self, now: float) -> None:
        """We were paused ourselves: silence so far means nothing."""
        self.heard = now
