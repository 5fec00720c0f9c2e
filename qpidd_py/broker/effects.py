"""Applies what policies say to what is there, some in each step: a change may concern tens of thousands of objects."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final, Protocol

from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.policies import Policies
from qpidd_py.broker.policy_keys import EXCHANGES, QUEUES
from qpidd_py.broker.qpid_arguments import canonical
from qpidd_py.broker.queue import DeclaredQueue, Effect, relimit
from qpidd_py.broker.settings import Key
from qpidd_py.core.engine import Engine

WORK: Final = 5_000
"""Of a step: patterns that are tried, about two microseconds each."""
APPLIED: Final = 25
"""What it costs to change a queue or an exchange, as so many patterns."""
Object = DeclaredQueue | Exchange


class Limited(Protocol):
    def queue_limited(self, queue: DeclaredQueue) -> None:
        """What holds for the queue has changed."""
        ...


class Effects:
    """Of one virtual host."""

    def __init__(
        self,
        engine: Engine,
        policies: Policies,
        queues: Mapping[str, DeclaredQueue],
        exchanges: Mapping[str, Exchange],
        observer: Limited,
        redirect: Callable[[Exchange, Effect], None],
    ) -> None:
        """`redirect` makes this hold for the exchange."""
        self.policies = policies
        self._engine = engine
        self._queues = queues
        self._exchanges = exchanges
        self._observer = observer
        self._redirect = redirect
        self._unsure: deque[Object] = deque()  # a policy has changed since they were looked at
        self._news: dict[Key, None] = {}  # these have

    def changed(self, key: Key) -> None:
        """This policy has.  What still has to be looked at comes first, or a change each second would keep the last
        ones from ever being looked at; then exchanges, since they are few and lead to all others."""
        self.policies.changed(key)
        self._news[key] = None
        found: Iterable[Object] = chain(self._unsure, self._exchanges.values(), self._queues.values())
        self._unsure = deque(dict.fromkeys(found) if self._unsure else found)
        self.go_on()

    def go_on(self) -> None:
        """One step."""
        left, changed = WORK, False
        while left > 0 and self._unsure:
            found = self._unsure.popleft()
            left -= 1 + len(self._news)
            if self._concerned(found):
                left -= len(self.policies)
                if self._apply(found):
                    left -= APPLIED
                    changed = True
        if not self._unsure:
            self._news.clear()
        if changed:
            self._engine.forget_routes()  # they say whether a message has a time to live, and who gets what remains

    def _concerned(self, found: Object) -> bool:
        target = _target(found)
        return not found.gone and any(
            self.policies.concerns(key, target, found.name, found.effect) for key in self._news
        )

    def _apply(self, found: Object) -> bool:
        """True if something has changed."""
        effect = self.policies.effect(_target(found), found.name, found.arguments)
        if effect == found.effect:
            return False
        if isinstance(found, Exchange):
            self._redirect(found, effect)
        else:
            found.take(effect)
            relimit(found.core, canonical(effect.arguments))
            self._observer.queue_limited(found)
            self._engine.relimit(found.core)
        return True


def _target(found: Object) -> str:
    return EXCHANGES if isinstance(found, Exchange) else QUEUES
