"""A message that is put aside, and why (`ha/salvage/selection.py` has the theory)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Grade(Enum):
    """How likely it is that a message was confirmed."""

    CONFIRMED = "confirmed"
    ACKNOWLEDGED = "acknowledged"
    RECEIVED = "received"


@dataclass(frozen=True)
class Header:
    """Why there is a salvage file; its first line."""

    broker: str
    """Name of the broker that held the messages."""
    broker_id: str
    primary: str
    """Name of the primary that does not have them."""
    epoch: int
    """Of that primary."""
    messages: int
    """As many are put aside; a file that holds fewer was not finished."""


@dataclass(frozen=True)
class Record:
    """One message in one queue."""

    leader: str
    """Id of the broker that gave out `id`."""
    id: int
    queue: str
    grade: Grade
    redelivered: bool
    arrival: int
    """Milliseconds since 1970; 0 where the broker did not note it."""
    exchange: bytes
    routing_key: bytes
    header: bytes
    """The content header as the publisher sent it."""
    body: bytes
