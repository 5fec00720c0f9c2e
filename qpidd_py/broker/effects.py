"""Applies what policies say to the queues that are there, some in each step: a change may concern tens of thousands."""

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from qpidd_py.broker.policies import Policies
from qpidd_py.broker.qpid_arguments import canonical
from qpidd_py.broker.queue import DeclaredQueue, relimit
from qpidd_py.core.engine import Engine

WORK: Final = 10_000
"""Of a step: patterns that are tried, about a microsecond each."""
APPLIED: Final = 50
"""What it costs to change a queue, as so many patterns."""


class Limited(Protocol):
    def queue_limited(self, queue: DeclaredQueue) -> None:
        """What holds for the queue has changed."""
        ...


class Effects:
    """Of one virtual host."""

    def __init__(
        self, engine: Engine, policies: Policies, queues: Mapping[str, DeclaredQueue], observer: Limited
    ) -> None:
        self.policies = policies
        self._engine = engine
        self._queues = queues
        self._observer = observer
        self._unsure: deque[DeclaredQueue] = deque()  # a policy has changed since they were looked at

    def changed(self) -> None:
        """A policy of this virtual host has."""
        self.policies.changed()
        self._unsure = deque(self._queues.values())
        self.go_on()

    def go_on(self) -> None:
        """One step."""
        left, changed = WORK, 0
        while left > 0 and self._unsure:
            applied = self._apply(self._unsure.popleft())
            changed += applied
            left -= 1 + len(self.policies) + APPLIED * applied
        if changed:
            self._engine.forget_routes()  # they say whether a message has a time to live

    def _apply(self, queue: DeclaredQueue) -> bool:
        """True if something has changed."""
        effect = self.policies.effect(queue.name, queue.arguments)
        if queue.core.deleted or effect == queue.effect:
            return False
        queue.take(effect)
        relimit(queue.core, canonical(effect.arguments))
        self._observer.queue_limited(queue)
        self._engine.relimit(queue.core)
        return True
