"""What every client of a load process is given."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from demo.progress import Slot
from testkit.record import Recorder


@dataclass(frozen=True)
class Context:
    """The arguments of every client."""

    addresses: tuple[tuple[str, int], ...]
    record: Recorder
    slot: Slot
    stopping: threading.Event
    draining: threading.Event
    rate: float
    """Messages a second."""
    group: str = ""
    """Several groups of clients may be at work at one time; each has queues of its own."""
    connect_timeout: float = 1.0
    """Seconds for an attempt to connect."""
    login: tuple[str, str] = ("guest", "guest")
    far: tuple[tuple[str, int], ...] = ()
    """The addresses of the other end of shovels and routes."""

    def queue(self, kind: str) -> str:
        return f"{self.group or 'torture'}.{kind}"

    @property
    def at_far(self) -> Context:
        """For a client of the other end."""
        return replace(self, addresses=self.far)
