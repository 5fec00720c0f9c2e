"""Which login is verified when.  Pure: the time is an argument, threads are those of `verifier`.

A password that is known to be right is accepted at once (`Users.verified`).  Any other one costs tens of milliseconds
of a processor, which may not be spent for one peer at the expense of others:

    submit --right--> accepted
       |
       +--> lane of (address, user) --ready--> turn of the address --> running (at most WORKERS) --> accepted or refused
                 ^      |                                                       |
                 |      +--has failed before--> delayed ---time---> ready       |
                 +--------------------------------------------------------------+  next of the lane

* A *lane* is the queue of one user from one address.  One of its logins runs at a time; when it succeeds, those with
  the same password are accepted with it.  After a failure the lane waits, longer after each (DELAYS): guesses are
  slowed, and nothing else is.
* Addresses take turns, and so do the lanes of one address.  The addresses of an IPv6 network /64 count as one.
* A refused password is remembered, too.  The same again is no further guess: it costs no processor time, delays nobody,
  and is refused after AGAIN.
* Every delay is shorter than clients wait for an answer (ours 2 s), so that a wrong password is always told.
* An unknown name takes the same way as a known one (`Users.stored`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from ipaddress import IPv6Address, ip_address
from typing import Final

from qpidd_py.amqp.sasl import Decided
from qpidd_py.security.users import Users

WORKERS: Final = 2
"""Verifications at a time."""
DELAYS: Final = (0.25, 0.5, 1.0)
"""Seconds before the next login of the lane, after the first failure, the second..."""
AGAIN: Final = 0.5
"""Seconds until a password is refused that is known to be wrong."""
FORGET: Final = 60.0
"""Seconds after a failure until it no longer counts."""
KEPT: Final = 10_000
"""Failures and refused passwords that are remembered."""
ADDRESSES: Final = 4096
"""Addresses whose network is kept, so that a login need not parse its own."""
SWEEP: Final = 1000
"""Logins that wait before those of peers that have gone are looked for; twice as many as were left, the next time."""
SLICE: Final = 200
"""Logins that are decided in one call."""


def origin(peer: str) -> str:
    """The address of HOST:PORT as far as it identifies a peer."""
    return _identity(peer.rpartition(":")[0])


@lru_cache(ADDRESSES)
def _identity(address: str) -> str:
    host = address.strip("[]").partition("%")[0]
    try:
        found = ip_address(host)
    except ValueError:
        return host
    if not isinstance(found, IPv6Address):
        return host
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


def is_loopback(peer: str) -> bool:
    try:
        return ip_address(origin(peer)).is_loopback or peer.startswith("[::1]:")
    except ValueError:
        return False


@dataclass(eq=False, slots=True)
class PendingLogin:
    """One that waits."""

    name: str
    password: str
    digest: bytes
    decided: Decided
    wanted: Callable[[], bool]
    wrong: bool = False
    """What it has proved, with SCRAM, is wrong."""
    stored: str = ""
    """What its password is compared with, once it runs."""


@dataclass(eq=False, slots=True)
class Lane:
    """The logins of one user from one address."""

    address: str
    name: str
    logins: deque[PendingLogin] = field(default_factory=deque)
    busy: bool = False
    """One of its logins runs, or it is among the ready or the delayed ones."""

    @property
    def key(self) -> tuple[str, str]:
        return self.address, self.name

    def next(self) -> PendingLogin | None:
        """The first one whose answer is still wanted."""
        while self.logins and not self.logins[0].wanted():
            self.logins.popleft()
        return self.logins[0] if self.logins else None


class Failures:
    """How often each (address, user) was refused of late."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def note(self, key: tuple[str, str], now: float) -> None:
        self._known[key] = (self._count(key, now) + 1, now)
        self._known.move_to_end(key)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def forget(self, key: tuple[str, str]) -> None:
        self._known.pop(key, None)

    def until(self, key: tuple[str, str], now: float) -> float:
        """When the next login may run; 0 = at once."""
        count = self._count(key, now)
        return self._known[key][1] + DELAYS[min(count, len(DELAYS)) - 1] if count else 0.0

    def _count(self, key: tuple[str, str], now: float) -> int:
        count, last = self._known.get(key, (0, 0.0))
        return count if now - last < FORGET else 0


class Logins:
    """All that wait for a decision."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._ready: OrderedDict[str, deque[Lane]] = OrderedDict()
        self._delayed: list[tuple[float, int, Lane]] = []
        self._number = 0
        self._running = 0
        self._stuck = False
        """The next lane needs a verification, and WORKERS are under way."""
        self._until_sweep = SWEEP
        self._failures = Failures()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._again: deque[tuple[float, str, PendingLogin]] = deque()
        """When it is refused, its peer, a login whose password is known to be wrong."""

    def __len__(self) -> int:
        """Logins that wait, without those that run."""
        return sum(len(lane.logins) for lane in self._lanes.values())

    @property
    def due(self) -> float | None:
        """When the next delayed lane may go on, or the next known password is refused."""
        return min((waiting[0][0] for waiting in (self._delayed, self._again) if waiting), default=None)

    def users_changed(self) -> None:
        """A password that was wrong may be right now."""
        self._wrong.clear()

    def submit(
        self, peer: str, name: str, password: str, decided: Decided, wanted: Callable[[], bool], now: float
    ) -> bool:
        """True if the login waits for `run`; otherwise it is decided already."""
        if name in self._users.loopback and not is_loopback(peer):
            decided(None)
            return False
        digest = self._users.digest(name, password)
        if self._users.verified(name, digest):
            decided(name)
            return False
        login = PendingLogin(name, password, digest, decided, wanted)
        if digest in self._wrong:
            self._again.append((now + AGAIN, peer, login))
        else:
            self._wait(peer, login, now)
        return True

    def submit_proof(
        self, peer: str, name: str, right: bool, decided: Decided, wanted: Callable[[], bool], now: float
    ) -> bool:
        """What was proved with SCRAM takes no time to verify: a right one is accepted like a password that is known to
        be right, a wrong one waits as a wrong password does."""
        if right and (name not in self._users.loopback or is_loopback(peer)):
            decided(name)
            return False
        self._wait(peer, PendingLogin(name, "", b"", decided, wanted, wrong=True), now)
        return True

    def _wait(self, peer: str, login: PendingLogin, now: float) -> None:
        key = (origin(peer), login.name)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(*key)
        lane.logins.append(login)
        self._until_sweep -= 1
        if self._until_sweep < 0:
            self._sweep()
        if not lane.busy:
            self._queue(lane, now)

    def run(self, now: float) -> Iterator[tuple[Lane, PendingLogin]]:
        """Decides what needs no verification, and yields the logins to verify now; `finished` ends each.  Stops after
        SLICE decisions: `pending` says whether to call again soon."""
        self._refuse_again(now)
        while self._delayed and self._delayed[0][0] <= now:
            self._make_ready(heappop(self._delayed)[2])
        for _ in range(SLICE):
            if not self.pending:
                return
            lane, login = self._take()
            if login is None:
                self._queue(lane, now)
            elif self._users.verified(login.name, login.digest):
                self._accept(lane, now)
            elif login.wrong:
                self._refuse(lane, lane.logins.popleft(), now)
            elif login.digest in self._wrong:
                lane.logins.popleft().decided(None)
                self._queue(lane, now)
            elif self._running < WORKERS:
                lane.logins.popleft()
                self._running += 1
                login.stored = self._users.stored(login.name)
                login.digest = self._users.digest(login.name, login.password)
                yield lane, login
            else:
                self._make_ready(lane, first=True)
                self._stuck = True
                return

    def _refuse_again(self, now: float) -> None:
        for _ in range(SLICE):
            if not self._again or self._again[0][0] > now:
                return
            _, peer, login = self._again.popleft()
            if login.digest not in self._wrong:  # the users have changed meanwhile
                self._wait(peer, login, now)
            elif login.wanted():
                login.decided(None)

    @property
    def pending(self) -> bool:
        """There are ready lanes, and nothing that runs has to end first."""
        return bool(self._ready) and not self._stuck

    def finished(self, lane: Lane, login: PendingLogin, matches: bool, now: float) -> None:
        """A verification has ended."""
        self._running -= 1
        self._stuck = False
        if not matches:
            self._wrong[login.digest] = None
            if len(self._wrong) > KEPT:
                self._wrong.popitem(last=False)
            self._refuse(lane, login, now)
            return
        # Under a hash that has changed meanwhile it is verified again.
        self._users.remember(login.name, login.digest, login.stored)
        lane.logins.appendleft(login)
        self._make_ready(lane, first=True)

    def failed(self, lane: Lane, login: PendingLogin, now: float) -> None:
        """A verification could not be made, for lack of memory: refused, and not remembered as wrong."""
        self._running -= 1
        self._stuck = False
        self._refuse(lane, login, now)

    def _sweep(self) -> None:
        """Forgets the logins of peers that have gone: their lanes may wait long for a turn.  Lanes that are left
        without one go, unless they are delayed: their time ends that."""
        for lane in self._lanes.values():
            lane.logins = deque(login for login in lane.logins if login.wanted())
        for address, lanes in list(self._ready.items()):
            for lane in lanes:
                if not lane.logins:
                    del self._lanes[lane.key]
            self._ready[address] = deque(lane for lane in lanes if lane.logins)
            if not self._ready[address]:
                del self._ready[address]
        self._until_sweep = max(SWEEP, len(self))

    def _take(self) -> tuple[Lane, PendingLogin | None]:
        """The lane whose turn it is; it and its address go to the end."""
        address, lanes = self._ready.popitem(last=False)
        lane = lanes.popleft()
        if lanes:
            self._ready[address] = lanes
        return lane, lane.next()

    def _accept(self, lane: Lane, now: float) -> None:
        login = lane.logins.popleft()
        self._failures.forget(lane.key)
        login.decided(login.name)
        if lane.logins:
            self._make_ready(lane, first=True)
        else:
            self._queue(lane, now)

    def _refuse(self, lane: Lane, login: PendingLogin, now: float) -> None:
        self._failures.note(lane.key, now)
        if login.wanted():
            login.decided(None)
        self._queue(lane, now)

    def _queue(self, lane: Lane, now: float) -> None:
        """Its next login waits for its turn, or for its time."""
        lane.busy = bool(lane.logins)
        until = self._failures.until(lane.key, now)
        if not lane.busy:
            self._lanes.pop(lane.key, None)
        elif until > now:
            self._number += 1
            heappush(self._delayed, (until, self._number, lane))
        else:
            self._make_ready(lane)

    def _make_ready(self, lane: Lane, first: bool = False) -> None:
        """`first`: its next login costs nothing, or it has waited for its turn already."""
        lane.busy = True
        lanes = self._ready.setdefault(lane.address, deque())
        if first:
            lanes.appendleft(lane)
            self._ready.move_to_end(lane.address, last=False)
        else:
            lanes.append(lane)
