"""Which broker to try when, several at once (pure: time is an argument, randomness an injected generator).

Theory.  The caller reports each event (`start`, `lost`, `looked_up`, `reached`, `failed`, `refused`, `connected`,
`tick`), each with the present time, and gets actions.  It performs them in order; the last one is a `Wait` while there
is something to wait for: call `tick` then.

    idle --start, lost--> active --connected--> idle          active --limits--> GiveUp, idle

* Places.  A name is looked up each time its turn comes, and each of its records is a place of its own.  If the look-up
  fails, or has not ended after `connect_overlap`, the records of the last one are used: the name server itself may have
  failed.  `client_lib.connecting.places` has the order of the places.
* Rounds.  A round tries every place that is not being tried already.  The first attempt after a loss starts at once.
  The next place follows when an attempt has failed, or when the latest is `connect_overlap` old.  The first to be
  `connected` wins; the others are abandoned.
* Hints.  A backup that refuses (connection.close 320) and names the primary causes an attempt there at once, if that
  place was not tried in this round, or refused (it may have been promoted since).  At most once a round for each place,
  so that two confused brokers cannot keep us moving between them.  A hint to an address that timed out in this round is
  ignored.
* The end of a round: all of its attempts have failed, or are older than `connect_overlap` and continue during the next
  round, each until it is `connect_timeout` old.  If all places hang, there is no next round before one of them fails.
  The pause before the next round is `client_lib.connecting.backoff`'s.
* Copies.  While all places hang and nothing else is left to try, they are tried again in parallel: the SYN may have
  been swallowed while a virtual IP address moved, and the kernel repeats it only after a second.  One copy at a time,
  every `connect_overlap`, half as often after each round; a copy that did not even get a TCP connection makes room for
  the next one, and ends with the attempt it copies.  A place that a hint names is also tried again if nothing was heard
  from it for `connect_overlap`.  Once a place has answered, other attempts that have not reached it are abandoned.
* A connection that ends within SHORT_LIFE is no success.  After FREE_LOSSES of them in a row each loss is followed by a
  pause that grows as after refusals; otherwise a broker that accepts and then closes would be tried in a tight loop.
* Denials.  Before the first success all attempts end when every place has denied us (login, virtual host, certificate)
  or could not be reached, and at least one has denied.  After it a denial is a failure like others: somebody may be at
  work there.
* Limits.  At most IN_FLIGHT attempts at a time and PER_PLACE at one place.
* Lateness.  If a tick comes much later than asked for, this process was paused: answers may be waiting unread, so
  attempts in flight get that much extra time, once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from client_lib.connecting.attempts import Abandon, Action, Attempt, GiveUp, LookUp, Start, Wait
from client_lib.connecting.backoff import BackOff
from client_lib.connecting.flights import Flight, Flights
from client_lib.connecting.places import Place, Places
from client_lib.connecting.reasons import Reasons
from client_lib.connecting.round import Round
from client_lib.retry_policy import RetryPolicy
from client_lib.urls.url import Endpoint

COPY_GAP_MAX = 1.0  # seconds; then the kernel repeats the SYN itself
SHORT_LIFE = 0.5  # seconds
FREE_LOSSES = 2


class Planner:
    """One per connection.  Any method may be called at any time; events of attempts that are not in flight (any more)
    are ignored."""

    def __init__(self, addresses: Iterable[Endpoint], policy: RetryPolicy, rng: random.Random | None = None) -> None:
        self.places = Places(addresses)
        self._policy = policy
        self._rng = rng or random.Random()
        self._back_off = BackOff(policy, self._rng)
        self._connected_at: float | None = None
        self._short_lives = 0
        self._short_back_off = self._back_off
        self._number = 0
        self._active = False
        self._begun = 0.0
        self._rounds = 0  # that have ended
        self._reasons = Reasons()
        self._flights = Flights(policy.connect_overlap)
        self._wake_at: float | None = None
        self._round = Round(self.places, self._flights, 0.0)
        self._pause = 0.0
        self._copied = 0.0  # when the latest attempt began
        self._named: Endpoint | None = None  # the primary as a broker has just named it, already tried

    # -- what happened

    def start(self, now: float) -> list[Action]:
        """Begins with the first connection."""
        return self._begin(now, None)

    def lost(self, now: float, hint: Endpoint | None = None, hung: bool = False) -> list[Action]:
        """The open connection was lost.  `hint`: the address of the primary, if the broker named it."""
        self.places.lost(hung)
        lived = now - (self._connected_at or 0.0)
        self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE else 0
        if self._short_lives <= FREE_LOSSES:
            self._short_back_off = BackOff(self._policy, self._rng)
            return self._begin(now, hint)
        return self._begin(now, hint, self._short_back_off.pause(refused=False))

    def learned(self, addresses: Iterable[Endpoint]) -> None:
        """A broker announced the addresses of the cluster.  Report this before its other events."""
        before = self.places.addresses
        for place in self.places.learned(addresses):
            if self._active and not any(place.is_at(address) for address in before):
                self._round.queue.append(place)

    def looked_up(self, address: Endpoint, ips: Sequence[str], now: float, reason: str = "") -> list[Action]:
        """The answer to `LookUp`; no IP addresses and a reason if it failed."""
        if ips:
            self.places.looked_up(address, ips)
        name = Place.of(address)
        if self._flights.looking.pop(name, None) is None:
            return []
        if not ips:
            self._reasons.failed(name, reason)
        self._round.due = now
        self._round.queue_records(name)
        return self._advance(now)

    def reached(self, attempt: Attempt) -> None:
        """The attempt has a TCP connection."""
        if attempt in self._flights.attempts:
            self._flights.attempts[attempt].reached = True

    def failed(self, attempt: Attempt, now: float, reason: str) -> list[Action]:
        """The attempt failed."""
        return self._ended(attempt, now, reason, False)

    def _ended(self, attempt: Attempt, now: float, reason: str, denied: bool | None) -> list[Action]:
        """`denied` None: it may accept later."""
        if self._flights.attempts.pop(attempt, None) is None:
            return []
        self._reasons.failed(attempt.place, reason, denied)
        self._round.due = now
        self.places.answered(attempt.place)
        return [*self._abandon(self._flights.unreached(attempt.place), "the place has answered"), *self._advance(now)]

    def denied(self, attempt: Attempt, now: float, reason: str) -> list[Action]:
        """The broker does not want us, or we not it."""
        return self._ended(attempt, now, reason, True)

    def refused(
        self, attempt: Attempt, now: float, reason: str, hint: Endpoint | None, announced: bool = False
    ) -> list[Action]:
        """A backup refused, and may have named the primary, or `announced` that it is being promoted."""
        if attempt in self._flights.attempts:
            self._round.refused_at(attempt.address, announced)
            if hint is not None and not self._round.has_been_at(hint):
                self._round.go_first(hint)
            else:
                self._named = hint
        return self._ended(attempt, now, reason, None)

    def connected(self, attempt: Attempt, now: float) -> list[Action]:
        """The attempt is open."""
        if self._flights.attempts.pop(attempt, None) is None:
            return []
        for loser, flight in self._flights.attempts.items():
            if self._flights.hangs(flight, now):
                self.places.hung(loser.place)
        self.places.connected(attempt.place)
        self._connected_at = now
        return self._rest("another attempt was faster")

    def tick(self, now: float) -> list[Action]:
        """The time of the latest `Wait` has come."""
        return self._advance(now)

    def stop(self) -> list[Action]:
        """The application no longer wants a connection."""
        return self._rest("not wanted any more")

    # -- rounds

    def _begin(self, now: float, hint: Endpoint | None, pause: float = 0.0) -> list[Action]:
        abandoned = self._rest("begun anew")
        if self._connected_at is not None and not self._policy.reconnect:
            return [*abandoned, GiveUp("reconnecting is off")]
        self._active = True
        self._begun, self._rounds, self._pause = now, 0, pause
        self._reasons.forget()
        self._back_off = BackOff(self._policy, self._rng)
        self._round = Round(self.places, self._flights, now + pause)
        if hint is not None:
            self._round.go_first(hint)
        return [*abandoned, *self._advance(now)]

    def _rest(self, reason: str) -> list[Action]:
        """Ends everything."""
        abandoned = self._abandon(list(self._flights.attempts), reason)
        self._flights.looking.clear()
        self._round.queue.clear()
        self._active, self._wake_at = False, None
        return abandoned

    def _abandon(self, attempts: Iterable[Attempt], reason: str, hung: bool = False) -> list[Action]:
        for attempt in attempts:
            del self._flights.attempts[attempt]
        return [Abandon(attempt, reason, hung) for attempt in attempts]

    # -- time

    def _advance(self, now: float) -> list[Action]:
        """Does everything that is due."""
        if not self._active:
            return []
        self._allow_for_lateness(now)
        actions = self._expire(now)
        over = self._out_of_time(now)
        if over is None:
            self._copy_named(now, actions)
        while over is None and self._step(now, actions):
            pass
        over = over or self._all_denied() or self._out_of_rounds()
        if over is not None:
            return [*actions, *self._rest("gave up"), over]
        self._wake_at = self._next_time(now)
        return actions if self._wake_at is None else [*actions, Wait(self._wake_at)]

    def _allow_for_lateness(self, now: float) -> None:
        late = 0.0 if self._wake_at is None else now - self._wake_at
        if late > self._policy.connect_overlap:
            self._flights.delay(late + self._policy.connect_overlap)

    def _expire(self, now: float) -> list[Action]:
        late = [attempt for attempt, flight in self._flights.attempts.items() if now >= flight.deadline]
        for attempt in late:
            self._reasons.failed(attempt.place, "timed out")
            self._round.due = min(self._round.due, now)
            self.places.hung(attempt.place)
        for name, flight in list(self._flights.looking.items()):
            if now >= flight.deadline:
                del self._flights.looking[name]
                self._reasons.failed(name, "the name look-up timed out")
            elif self._flights.hangs(flight, now) and not flight.reached:
                flight.reached = True
                self._round.queue_records(name)
        return self._abandon(late, "timed out", hung=True)

    def _step(self, now: float, actions: list[Action]) -> bool:
        """Does one thing that is due; False if nothing is."""
        round = self._round
        if round.queue:
            if now < round.due or not self._flights.has_room(round.queue[0]):
                return False
            self._start(round.queue.popleft(), now, actions)
            return True
        if not round.candidates():
            return self._copy(now, actions)
        if round.next_at is None:
            if not self._flights.settled(now):
                return False
            self._rounds += 1
            self._pause = self._back_off.pause(round.refused, round.announced)
            round.next_at = now + self._pause
        if now < round.next_at or self._was_last_round():
            return False
        self._round = Round(self.places, self._flights, now)
        return True

    def _start(self, place: Place, now: float, actions: list[Action], deadline: float | None = None) -> None:
        self._round.begun(place)
        if place in self._flights.looking:  # and for some time
            self._round.queue_records(place)
            return
        self._round.due = now + self._policy.connect_overlap
        if deadline is None:
            deadline = now + self._policy.connect_timeout
        if place.ip is None:
            self._flights.looking[place] = Flight(now, deadline)
            actions.append(LookUp(place.address))
            return
        self._number += 1
        attempt = Attempt(self._number, place, self._pause)
        self._pause, self._copied = 0.0, now
        self._flights.attempts[attempt] = Flight(now, deadline)
        actions.append(Start(attempt))

    # -- copies

    def _copy(self, now: float, actions: list[Action]) -> bool:
        original = next((each for each in self._flights.firsts() if self._flights.may_be_copied(each)), None)
        if original is None or now < self._copied + self._copy_gap():
            return False
        self._start_copy(original, now, actions)
        return True

    def _copy_named(self, now: float, actions: list[Action]) -> None:
        named, self._named = self._named, None
        at = [a for a in self._flights.attempts if named is not None and a.place.is_at(named)]
        if not at or not self._flights.may_be_copied(at[0]):
            return
        latest = self._flights.attempts[at[-1]]
        if not latest.reached and self._flights.hangs(latest, now):
            self._start_copy(at[0], now, actions)

    def _start_copy(self, original: Attempt, now: float, actions: list[Action]) -> None:
        actions += self._abandon(self._flights.replaceable(), "tried again")
        self._start(original.place, now, actions, self._flights.attempts[original].deadline)
        name = Place.of(original.address)
        if name.ip is None and name not in self._flights.looking:  # the name may have other records by now
            self._start(name, now, actions)

    def _copy_gap(self) -> float:
        overlap = self._policy.connect_overlap
        return max(overlap, min(overlap * 2.0 ** min(self._rounds, 10), COPY_GAP_MAX))

    # -- limits

    def _next_time(self, now: float) -> float | None:
        times = [*self._flights.times(), self._round.due, self._copied + self._copy_gap()]
        if self._round.next_at is not None and not self._was_last_round():
            times.append(self._round.next_at)
        if self._policy.timeout is not None:
            times.append(self._begun + self._policy.timeout)
        return min((time for time in times if time > now), default=None)

    def _was_last_round(self) -> bool:
        limit = self._policy.limit if self._policy.reconnect else 1
        return limit is not None and self._rounds >= max(limit, 1)

    def _out_of_time(self, now: float) -> GiveUp | None:
        timeout = self._policy.timeout
        if timeout is None or now < self._begun + timeout:
            return None
        return GiveUp(f"gave up after {now - self._begun:.1f} s (reconnect_timeout){self._reasons}")

    def _all_denied(self) -> GiveUp | None:
        known = (record for name in self.places.all() for record in self.places.records(name) or [name])
        if self._connected_at is not None or not self._reasons.all_denied(known):
            return None
        return GiveUp(str(self._reasons).removeprefix("; last: "), denied=True)

    def _out_of_rounds(self) -> GiveUp | None:
        if self._round.queue or self._flights or not self._was_last_round():
            return None
        if not self._policy.reconnect:
            return GiveUp(f"reconnecting is off{self._reasons}")
        return GiveUp(f"gave up after {self._rounds} rounds (reconnect_limit){self._reasons}")

    @property
    def trouble(self) -> str:
        """The last failure of each address, or what is being waited for, as `; last: ...`; from any thread."""
        for name in [] if self._reasons else list(self._flights.looking):
            return f"; {name.address}: the name is still being looked up"
        return str(self._reasons)
