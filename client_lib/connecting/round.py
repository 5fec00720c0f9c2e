"""One round of attempts: the places that are still to be tried, and which were (pure)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from client_lib.connecting.flights import Flights
from client_lib.connecting.places import Place, Places
from client_lib.urls.url import Endpoint


class Round:
    """It tries every place that is not being tried already.  Times in seconds of one monotonic clock."""

    def __init__(self, places: Places, flights: Flights, now: float) -> None:
        self._places, self._flights = places, flights
        self.due = now
        """When the next of the queue may begin."""
        self.next_at: float | None = None
        """When the next round may begin."""
        self.refused = self.announced = False
        """A broker has answered; it has announced its promotion."""
        self.queue: deque[Place] = deque(sorted(self.candidates(), key=places.rank))
        self._begun: set[Place] = set()
        self._tried: list[Place] = []  # begun, and not refused
        self._hinted: list[Endpoint] = []

    def candidates(self) -> list[Place]:
        """All places that are not being tried."""
        return [place for place in self._places.all() if not self._is_busy(place)]

    def _is_busy(self, place: Place) -> bool:
        """True if all of its records are being tried or, if none are known, the name is being looked up."""
        records = self._places.records(place)
        return all(self._flights.at(record) for record in records) if records else place in self._flights.looking

    def begun(self, place: Place) -> None:
        self._tried.append(place)
        self._begun.add(place)

    def refused_at(self, address: Endpoint, announced: bool) -> None:
        self.refused, self.announced = True, self.announced or announced
        self._tried = [tried for tried in self._tried if not tried.is_at(address)]

    def has_been_at(self, address: Endpoint) -> bool:
        tried = [*self._tried, *(attempt.place for attempt in self._flights.attempts)]
        return any(place.is_at(address) for place in tried) or any(hint.same_place(address) for hint in self._hinted)

    def go_first(self, address: Endpoint) -> None:
        """A broker has named the primary."""
        self._hinted.append(address)
        place = self._places.named(address)
        self.queue = deque(queued for queued in self.queue if queued != place)
        self.queue.appendleft(place)

    def queue_records(self, name: Place) -> None:
        """The records of a name that are not tried yet come next, but for the lost and the slow ones."""
        hinted = any(name.is_at(hint) for hint in self._hinted)
        done: Iterable[Place] = self._tried if hinted else self._begun
        new = [r for r in self._places.records(name) if r not in done and not self._flights.at(r)]
        rest = [place for place in self.queue if place not in new]
        self.queue = deque([*new, *rest] if hinted else sorted([*new, *rest], key=self._places.rank))
