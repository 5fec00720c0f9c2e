"""Which broker to try next, and when (pure: time is an argument, randomness an injected generator).

Theory.  Connecting goes in *rounds*; each round tries every known address once, without waiting between them.  Only a
round that found nobody is followed by a pause.  Within a round:

* the first attempt after a loss is made at once;
* the address that was just lost, and those that hung at the last try, come last, for a paused broker accepts the TCP
  connection and then costs a whole timeout;
* a backup that refuses (connection.close 320) and names the primary sends us there next: if we have not been there in
  this round, or were refused there, for it may have been promoted since; at most once a round for each place, so that
  two confused brokers cannot send us to and fro.  Where nobody answered we do not go again on hearsay.

The pause grows exponentially from `interval_min` to `interval_max` with full-range jitter above one half.  A round in
which somebody refused means that the cluster lives and is promoting: its pause does not grow beyond ten times
`interval_min`, and the first one is the minimum.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import tenacity
from tenacity.wait import wait_base

from client_lib.url import Address

REFUSED_FACTOR = 10


@dataclass(frozen=True)
class RetryPolicy:
    """Qpid's names.  Seconds; `limit` counts rounds, None = without limit."""

    reconnect: bool = True
    timeout: float | None = None
    limit: int | None = None
    interval_min: float = 0.01
    interval_max: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.interval_min <= self.interval_max:
            raise ValueError(f"reconnect intervals {self.interval_min}..{self.interval_max} s are not a range")


@dataclass(frozen=True)
class Attempt:
    """Connect to `address` after `delay` seconds."""

    address: Address
    delay: float


@dataclass(frozen=True)
class GiveUp:
    reason: str


class _Jitter(wait_base):
    """Between half of the wrapped wait and the whole of it: never zero, never in step with other clients."""

    def __init__(self, inner: wait_base, rng: random.Random) -> None:
        self._inner, self._rng = inner, rng

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return self._inner(retry_state) * (0.5 + 0.5 * self._rng.random())


class Reconnect:
    """One per connection; call `lost` or `start`, then `next` and `failed`/`refused` in turn until `connected`."""

    def __init__(self, addresses: Sequence[Address], policy: RetryPolicy, rng: random.Random | None = None) -> None:
        self.addresses = list(addresses)
        self._policy = policy
        growing = tenacity.wait_exponential(multiplier=policy.interval_min, max=policy.interval_max)
        self._wait = _Jitter(growing, rng or random.Random())
        self._queue: deque[Address] = deque()
        self._tried: list[Address] = []  # in this round, and nobody refused us there
        self._hinted: list[Address] = []
        self._slow: list[Address] = []
        self._last: Address | None = None
        self._ever_connected = False
        self._refusals = 0
        self._begun = 0.0
        self._rounds = 0
        self._calm = 0
        self._reason = ""

    def start(self, now: float) -> None:
        """The first connection of all."""
        self._begin(now)

    def lost(self, now: float, hint: Address | None = None, hung: bool = False) -> None:
        """The connection that had been `connected` broke.  `hint`: the broker said who is primary."""
        if hung and self._last is not None:
            self._slow = [self._last]
        self._begin(now)
        if hint is not None:
            self._go_first(hint)

    def connected(self, address: Address) -> None:
        self._last, self._ever_connected = address, True
        self._slow = []

    def failed(self, address: Address, reason: str, hung: bool = False) -> None:
        """The attempt came to nothing: `hung` when it timed out."""
        self._reason = f"{address}: {reason}"
        self._slow = [slow for slow in self._slow if not slow.same_place(address)]
        if hung:
            self._slow.append(address)

    def refused(self, address: Address, reason: str, hint: Address | None) -> None:
        """A backup refused us."""
        self.failed(address, reason)
        self._refusals += 1
        self._tried = [tried for tried in self._tried if not tried.same_place(address)]
        if hint is not None and not hint.same_place(address) and not _contains(self._tried + self._hinted, hint):
            self._hinted.append(hint)
            self._go_first(hint)

    def next(self, now: float) -> Attempt | GiveUp:
        over = self._over(now)
        if over is not None:
            return over
        delay = 0.0
        if not self._queue:
            self._rounds += 1
            over = self._over(now)
            if over is not None:
                return over
            delay = self._pause()
            self._new_round()
        address = self._queue.popleft()
        self._tried.append(address)
        return Attempt(address, delay)

    # -- inner workings

    def _begin(self, now: float) -> None:
        self._begun, self._rounds, self._calm, self._reason = now, 0, 0, ""
        self._new_round()

    def _new_round(self) -> None:
        self._tried, self._hinted, self._refusals = [], [], 0
        last = [a for a in self.addresses if self._last is not None and a.same_place(self._last)]
        slow = [a for a in self.addresses if _contains(self._slow, a) and a not in last]
        self._queue = deque([a for a in self.addresses if a not in last and a not in slow] + last + slow)
        if last and _contains(self._slow, last[0]):
            self._queue.remove(last[0])
            self._queue.append(last[0])

    def _go_first(self, hint: Address) -> None:
        known = next((a for a in self.addresses if a.same_place(hint)), None)
        self._queue = deque(a for a in self._queue if not a.same_place(hint))
        self._queue.appendleft(known or hint)

    def _over(self, now: float) -> GiveUp | None:
        policy = self._policy
        why = f"; last: {self._reason}" if self._reason else ""
        if not policy.reconnect and (self._ever_connected or self._rounds >= 1):
            return GiveUp(f"reconnecting is off{why}")
        if policy.limit is not None and self._rounds >= max(policy.limit, 1):
            return GiveUp(f"gave up after {self._rounds} rounds (reconnect_limit){why}")
        if policy.timeout is not None and now - self._begun >= policy.timeout:
            return GiveUp(f"gave up after {now - self._begun:.1f} s (reconnect_timeout){why}")
        return None

    def _pause(self) -> float:
        if self._refusals:
            self._calm += 1
            state = _call_state(self._calm)
            return min(self._wait(state), REFUSED_FACTOR * self._policy.interval_min)
        return self._wait(_call_state(self._rounds))


def _contains(addresses: Sequence[Address], wanted: Address) -> bool:
    return any(wanted.same_place(address) for address in addresses)


def _call_state(attempt: int) -> tenacity.RetryCallState:
    """What tenacity's wait strategies look at: the number of the attempt, from 1."""
    state = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return state
