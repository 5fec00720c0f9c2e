"""The attempts and look-ups that are under way (pure; times in seconds of one monotonic clock)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from client_lib.connecting.attempts import Attempt
from client_lib.connecting.places import Place

IN_FLIGHT = 4
PER_PLACE = 3


@dataclass
class Flight:
    """An attempt, or the look-up of a name.  `reached`: there is a TCP connection; or the old records are in use."""

    began: float
    deadline: float
    reached: bool = False
    delayed: bool = False

    def delay(self, seconds: float) -> None:
        """Once."""
        if not self.delayed:
            self.delayed = True
            self.began += seconds
            self.deadline += seconds


class Flights:
    """`overlap`: seconds after which one that has not ended counts as hanging."""

    def __init__(self, overlap: float) -> None:
        self.attempts: dict[Attempt, Flight] = {}
        self.looking: dict[Place, Flight] = {}
        self._overlap = overlap

    def all(self) -> Iterator[Flight]:
        yield from self.attempts.values()
        yield from self.looking.values()

    def __bool__(self) -> bool:
        return bool(self.attempts or self.looking)

    def hangs(self, flight: Flight, now: float) -> bool:
        return now >= flight.began + self._overlap

    def settled(self, now: float) -> bool:
        """All of them hang."""
        return all(self.hangs(flight, now) for flight in self.all())

    def times(self) -> list[float]:
        """When something changes for one of them."""
        return [time for flight in self.all() for time in (flight.deadline, flight.began + self._overlap)]

    def delay(self, seconds: float) -> None:
        for flight in self.all():
            flight.delay(seconds)

    def at(self, place: Place) -> int:
        """How many attempts at this place."""
        return sum(1 for attempt in self.attempts if attempt.place == place)

    def unreached(self, place: Place) -> list[Attempt]:
        return [a for a, flight in self.attempts.items() if a.place == place and not flight.reached]

    def has_room(self, place: Place) -> bool:
        return place.ip is None or (len(self.attempts) < IN_FLIGHT and self.at(place) < PER_PLACE)

    # -- copies: attempts at a place where an older one is under way

    def firsts(self) -> list[Attempt]:
        """The oldest attempt at each place; first where the latest attempt is oldest."""
        oldest: dict[Place, Attempt] = {}
        latest: dict[Place, int] = {}
        for attempt in self.attempts:
            oldest.setdefault(attempt.place, attempt)
            latest[attempt.place] = attempt.number
        return sorted(oldest.values(), key=lambda attempt: latest[attempt.place])

    def may_be_copied(self, original: Attempt) -> bool:
        """Copies without a TCP connection do not count, since they make room for others."""
        firsts = self.firsts()
        lasting = [a.place for a, flight in self.attempts.items() if a in firsts or flight.reached]
        return len(lasting) < IN_FLIGHT and lasting.count(original.place) < PER_PLACE

    def replaceable(self) -> list[Attempt]:
        """Copies without a TCP connection."""
        firsts = self.firsts()
        return [a for a, flight in self.attempts.items() if a not in firsts and not flight.reached]
