"""A world for the planner of attempts: a clock made of numbers, places that behave as told, and the limits checked.

A place is named by its IP address, or by its host if it was looked up in vain.  How it behaves:

    down     RST at once                    swallow  the SYN is lost
    hang     TCP, and then nothing          open     connection.open-ok after 3 ms
    slow     open-ok after 0.5 s            refuse   320, the primary is not known
    refuse:HOST  320, the primary is HOST
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence

from client_lib.connecting.attempts import Abandon, Action, Attempt, GiveUp, LookUp, Start, Wait
from client_lib.connecting.flights import IN_FLIGHT, PER_PLACE
from client_lib.connecting.retry import Planner
from client_lib.retry_policy import RetryPolicy
from client_lib.urls.url import Endpoint, parse_urls


class World:
    """`behaviour` and `names` may be changed while it runs; a name with None is looked up for ever."""

    def __init__(
        self,
        urls: str,
        behaviour: Mapping[str, str] | None = None,
        names: Mapping[str, Sequence[str] | None] | None = None,
        policy: RetryPolicy | None = None,
        seed: int = 1,
    ) -> None:
        self.policy = policy or RetryPolicy()
        self.planner = Planner(parse_urls(urls), self.policy, random.Random(seed))
        self.behaviour = dict(behaviour or {})
        self.names = dict(names or {})
        self.now = 0.0
        self.starts: list[tuple[float, str]] = []
        self.look_ups: list[tuple[float, str]] = []
        self.pauses: list[float] = []
        self.abandoned: list[Abandon] = []
        self.winner: Attempt | None = None
        self.gave_up: GiveUp | None = None
        self.in_flight: dict[Attempt, float] = {}
        self._events: list[tuple[float, int, Callable[[], Sequence[Action]]]] = []
        self._order = itertools.count()
        self._wait: float | None = None

    # -- the application's side

    def start(self) -> World:
        self._perform(self.planner.start(self.now))
        return self

    def lose(self, hint: str | None = None, hung: bool = False) -> World:
        self.winner, self.starts = None, []
        self._perform(self.planner.lost(self.now, Endpoint(hint) if hint else None, hung))
        return self

    def run(self, seconds: float) -> World:
        """Until somebody wins, or the planner gives up, or so long."""
        end = self.now + seconds
        while self.winner is None and self.gave_up is None:
            when = min([event[0] for event in self._events[:1]] + [t for t in [self._wait] if t is not None])
            assert when > self.now - 1e-9, "time does not go back"
            if when > end:
                break
            self.now = max(self.now, when)
            if self._events and self._events[0][0] <= self.now:
                self._perform(heapq.heappop(self._events)[2]())
            else:
                self._wait = None
                self._perform(self.planner.tick(self.now))
        else:
            return self
        self.now = end
        return self

    def pause(self, seconds: float) -> World:
        """This process is stopped: what happens meanwhile is seen afterwards, the timers before the sockets."""
        self.now += seconds
        self._wait = None
        self._events = [(max(when, self.now), order, event) for when, order, event in self._events]
        self._perform(self.planner.tick(self.now))
        return self

    @property
    def order(self) -> list[str]:
        return [name for _, name in self.starts]

    def times(self, name: str) -> list[float]:
        return [round(when, 6) for when, place in self.starts if place == name]

    # -- the planner's side

    def _perform(self, actions: Sequence[Action]) -> None:
        waits = [action for action in actions if isinstance(action, Wait)]
        assert len(waits) <= 1 and (not waits or actions[-1] is waits[0])
        for action in actions:
            self._do(action)
        if waits:
            assert waits[0].until > self.now, "a tick that is due already makes no progress"
            self._wait = waits[0].until
        places = [attempt.place for attempt in self.in_flight]
        assert len(places) <= IN_FLIGHT and all(places.count(place) <= PER_PLACE for place in places)
        alive = self._wait is not None or self._events
        assert alive or self.winner or self.gave_up, "nothing will ever happen"

    def _do(self, action: Action) -> None:
        if isinstance(action, Start):
            self._start(action.attempt)
        elif isinstance(action, LookUp):
            self._look_up(action.address)
        elif isinstance(action, Abandon):
            del self.in_flight[action.attempt]
            self.abandoned.append(action)
        elif isinstance(action, GiveUp):
            assert not self.in_flight
            self.gave_up = action

    def _start(self, attempt: Attempt) -> None:
        self.in_flight[attempt] = self.now
        name = attempt.ip
        self.starts.append((self.now, name))
        self.pauses.append(attempt.pause)
        how, _, hint = self.behaviour.get(name, "down").partition(":")
        if how == "down":
            self._later(0.0005, attempt, lambda: self.planner.failed(attempt, self.now, "down"))
        elif how != "swallow":
            self._at(0.0005, lambda: self._reached(attempt))
        if how in ("refuse", "promoted"):
            named, promoted = Endpoint(hint) if hint else None, how == "promoted"
            self._later(0.002, attempt, lambda: self.planner.refused(attempt, self.now, "a backup", named, promoted))
        if how == "deny":
            self._later(0.002, attempt, lambda: self.planner.denied(attempt, self.now, "denied"))
        if how in ("open", "slow"):
            self._later(0.003 if how == "open" else 0.5, attempt, lambda: self._win(attempt))

    def _reached(self, attempt: Attempt) -> Sequence[Action]:
        self.planner.reached(attempt)
        return []

    def _win(self, attempt: Attempt) -> Sequence[Action]:
        self.winner = attempt
        actions = self.planner.connected(attempt, self.now)
        assert {a.attempt for a in actions if isinstance(a, Abandon)} == set(self.in_flight)
        return actions

    def _look_up(self, address: Endpoint) -> None:
        self.look_ups.append((self.now, address.host))

        found = self.names.get(address.host, ())
        if found is not None:
            self._at(0.001, lambda: self.planner.looked_up(address, found, self.now, "no such name"))

    def _later(self, delay: float, attempt: Attempt, event: Callable[[], Sequence[Action]]) -> None:
        """Only if the attempt is still wanted then."""

        def happen() -> Sequence[Action]:
            return event() if self.in_flight.pop(attempt, None) is not None else []

        self._at(delay, happen)

    def _at(self, delay: float, event: Callable[[], Sequence[Action]]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))
