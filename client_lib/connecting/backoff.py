"""How long to wait between two rounds of attempts (pure; randomness is an injected generator).

The pause grows exponentially from `interval_min` to `interval_max`, with jitter over its upper half.  If a broker
refused the connection in a round, the cluster is up and a promotion is under way: the pause after such a round does not
grow beyond REFUSED_FACTOR times `interval_min`, and the first one is the minimum.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import tenacity

REFUSED_FACTOR = 10


@dataclass(frozen=True)
class RetryPolicy:
    """Qpid's names.  Seconds; `limit` counts rounds, None = without limit.

    connect_timeout  what an attempt may take, from the SYN to connection.open-ok
    connect_overlap  after this time the next place is tried in parallel"""

    reconnect: bool = True
    timeout: float | None = None
    limit: int | None = None
    interval_min: float = 0.01
    interval_max: float = 2.0
    connect_timeout: float = 2.0
    connect_overlap: float = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.interval_min <= self.interval_max:
            raise ValueError(f"reconnect intervals {self.interval_min}..{self.interval_max} s are not a range")
        if not 0 < self.connect_overlap <= self.connect_timeout:
            raise ValueError(
                f"connect_overlap must be positive and at most connect_timeout ({self.connect_timeout} s),"
                f" not {self.connect_overlap} s"
            )


class BackOff:
    """The pauses after one loss: between half of the exponential wait and the whole of it, so clients differ."""

    def __init__(self, policy: RetryPolicy, rng: random.Random) -> None:
        self._most_when_refused = REFUSED_FACTOR * policy.interval_min
        self._exponential = tenacity.wait_exponential(multiplier=policy.interval_min, max=policy.interval_max)
        self._rng = rng
        self._rounds = self._refused = 0

    def pause(self, refused: bool) -> float:
        """Seconds to pause after the round that has just ended; `refused`: a broker answered in it."""
        self._rounds += 1
        if not refused:
            return self._wait(self._rounds)
        self._refused += 1
        return min(self._wait(self._refused), self._most_when_refused)

    def _wait(self, attempt: int) -> float:
        state = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
        state.attempt_number = attempt
        return self._exponential(state) * (0.5 + 0.5 * self._rng.random())
