"""How long to wait between two rounds of attempts (pure; randomness is an injected generator).

The pause doubles from `interval_min` to `interval_max`, with jitter over its upper half.  If a broker refused the
connection in a round, the cluster is up and a promotion may be near: the pause after such a round begins at the minimum
and grows by REFUSED_GROWTH, so that it stays near an eighth of the time without a connection.  When a broker announces
its promotion it begins anew, once.
"""

from __future__ import annotations

import random

from client_lib.retry_policy import RetryPolicy

REFUSED_GROWTH = 1.125


class BackOff:
    """The pauses after one loss: between half of the exponential wait and the whole of it, so clients differ."""

    def __init__(self, policy: RetryPolicy, rng: random.Random) -> None:
        self._least, self._most = policy.interval_min, policy.interval_max
        self._rng = rng
        self._rounds = self._refused = 0
        self._announced = False

    def pause(self, refused: bool, announced: bool = False) -> float:
        """Seconds to pause after the round that has just ended; `refused`: a broker answered in it; `announced`: that
        it is being promoted."""
        self._rounds += 1
        if not refused:
            return self._wait(2.0, self._rounds)
        self._refused = 1 if announced and not self._announced else self._refused + 1
        self._announced = announced
        return self._wait(REFUSED_GROWTH, self._refused)

    def _wait(self, growth: float, number: int) -> float:
        whole = min(self._most, self._least * growth ** min(number - 1, 1000))
        return whole * (0.5 + 0.5 * self._rng.random())
