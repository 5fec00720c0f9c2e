"""When a broker whose host refuses connections counts as gone.  Pure.

A refused connection says that nothing listens on a port, not that a process is dead: a firewall may reject, a listener
may be restarting, the port may be closed while another one is open.  So a refusal counts in two steps:

* The shell calls an address REFUSED only if nothing listens on any port that the broker is known by (`shell/asker.py`).
* With `manager` and no registry, where nothing else tells a dead broker from a living one, the host must have refused
  for `settle` seconds, without any sign of life in between: an answer, a question, octets over a link.  Until then the
  broker is SILENT.  A listener that restarts, or a firewall rule of a moment, is shorter than that, and a primary that
  was alive a moment ago may still confirm.

With `quorum` and with a registry the rules of promotion do not take a refusal for a death at all (`promotion.py`, R5),
and with `availability` only the manager knows who lives; there `settle` is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from ha.model.environment import Answer, Outcome


class Clock(Protocol):
    def now(self) -> float: ...


class Refusals:
    """Refused connections and signs of life, by address."""

    def __init__(self, clock: Clock, settle: float) -> None:
        """`settle`: seconds for which a host must have refused; 0: a refusal counts at once."""
        self._clock = clock
        self._settle = settle
        self._since: dict[str, float] = {}
        """Since when the host refuses, at every attempt."""
        self._alive: dict[str, float] = {}
        """Last sign of life."""

    def alive(self, address: str, at: float | None = None) -> None:
        """A sign of life of the broker at `address`, now or at that time."""
        self._alive[address] = max(self._alive.get(address, 0.0), self._clock.now() if at is None else at)

    def judge(self, address: str, answer: Answer) -> Answer:
        """The answer as it counts: a refusal that does not count yet is SILENT."""
        if not self._settle:
            return answer
        if answer.outcome is not Outcome.REFUSED:
            self._since.pop(address, None)
            return answer
        self._since.setdefault(address, self._clock.now())
        return replace(answer, outcome=Outcome.SILENT) if self._left(address) > 0 else answer

    def settling(self, addresses: Iterable[str]) -> float:
        """Seconds until the refusals of these addresses count; 0 if they do, or if none refuses."""
        return max((self._left(address) for address in addresses), default=0.0)

    def as_dead(self, answers: Mapping[str, Answer]) -> dict[str, Answer]:
        """The answers, if every refusal counted."""
        return {
            address: Answer(Outcome.REFUSED) if self._left(address) > 0 else answer
            for address, answer in answers.items()
        }

    def _left(self, address: str) -> float:
        since = self._since.get(address)
        if since is None:
            return 0.0
        return max(since, self._alive.get(address, since)) + self._settle - self._clock.now()
