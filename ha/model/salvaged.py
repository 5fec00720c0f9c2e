"""A message that is put aside, and the reason (theory: `ha/salvage/selection.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

HOST: Final = "/"
"""The virtual host that is not named: older versions know no other."""


class Grade(Enum):
    """How likely it is that a message was confirmed."""

    CONFIRMED = "confirmed"
    ACKNOWLEDGED = "acknowledged"
    RECEIVED = "received"


@dataclass(frozen=True)
class Header:
    """The first line of a salvage file: why it exists."""

    broker: str
    """Name of the broker that held the messages."""
    broker_id: str
    primary: str
    """Name of the primary that does not have them."""
    epoch: int
    """Of that primary."""
    messages: int
    """Number of messages to put aside; a file that holds fewer was not finished."""
    hosts: bool = False
    """Whether some are of another virtual host than `/`."""


@dataclass(frozen=True)
class Record:
    """One message in one queue."""

    leader: str
    """Id of the broker that assigned `id`."""
    id: int
    queue: str
    grade: Grade
    redelivered: bool
    arrival: int
    """Milliseconds since 1970; 0 if the broker did not record it."""
    exchange: bytes
    routing_key: bytes
    header: bytes
    """The content header as the publisher sent it."""
    body: bytes
    host: str = HOST
    """The virtual host of the queue."""

    @property
    def label(self) -> str:
        """The queue as people are told of it."""
        return self.queue if self.host == HOST else f"{self.host}/{self.queue}"
