"""Attempts to connect, and the actions that the planner (retry.py) asks for (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field

from client_lib.connecting.places import Place
from client_lib.urls.url import Endpoint


@dataclass(frozen=True)
class Attempt:
    """`number` counts from 1 over the life of a planner; `pause` is the back-off before it, in seconds."""

    number: int
    place: Place = field(compare=False)
    pause: float = field(default=0.0, compare=False)

    @property
    def address(self) -> Endpoint:
        return self.place.address

    @property
    def ip(self) -> str:
        assert self.place.ip is not None
        return self.place.ip


@dataclass(frozen=True)
class LookUp:
    """Resolve the address' host; answer with `looked_up`."""

    address: Endpoint


@dataclass(frozen=True)
class Start:
    """Connect; answer with `reached`, then `connected`, `failed` or `refused`."""

    attempt: Attempt


@dataclass(frozen=True)
class Abandon:
    """End the attempt; no answer is expected.  `hung`: it timed out."""

    attempt: Attempt
    reason: str
    hung: bool = False


@dataclass(frozen=True)
class GiveUp:
    """No more attempts; `start` or `lost` begins again.  `denied`: no address may be used like this."""

    reason: str
    denied: bool = False


@dataclass(frozen=True)
class Wait:
    """Call `tick` at this time, unless something happens before."""

    until: float


Action = LookUp | Start | Abandon | GiveUp | Wait
