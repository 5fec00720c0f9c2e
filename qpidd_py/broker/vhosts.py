"""The virtual hosts of a broker: made, found, deleted.                                                            Pure.

One that is deleted is gone for its users from the operation that says so on (`host_settings.DELETED`): it is not found,
and its connections are closed.  What is in it is deleted in slices (`emptying`), with ticks and by who waits for that;
after a fail-over the new primary goes on.  The last operation takes the virtual host itself.
"""

from collections.abc import Callable, Iterator
from typing import Final

from qpidd_py.broker.common import Rules
from qpidd_py.broker.configuration import Configuration, Observer
from qpidd_py.broker.configurations import Configurations
from qpidd_py.broker.debris import TICK
from qpidd_py.broker.host_settings import DELETED, HOST_KIND
from qpidd_py.broker.limits import Limits
from qpidd_py.broker.routing import Handler
from qpidd_py.broker.settings import Key
from qpidd_py.broker.vhost import VHost
from qpidd_py.core.engine import Engine
from qpidd_py.security.entries import CONFIGURE, HOST, PERMISSION, READ, USER, WRITE

TOGETHER: Final = 50
"""Queues without messages, exchanges or settings, that are deleted at a time."""

VISITS: Final = 50
"""Virtual hosts that one tick looks at, and an eighth of all: a thousand that do nothing cost 1 % of a processor."""


class VHosts:
    """Of one broker."""

    def __init__(self, engine: Engine, limits: Limits, closing: Callable[[VHost], None]) -> None:
        """`closing` ends the connections of one that is deleted."""
        self.rules = Rules(limits)
        self.internal_exchanges: dict[str, Handler] = {}
        self._engine = engine
        self._closing = closing
        self._all: dict[str, VHost] = {}
        self._last_number = -1
        self._deleted: dict[str, None] = {}
        self._deleting: dict[str, Iterator[None]] = {}
        self._visits = 0
        self.configurations = Configurations(engine, self._come, self._gone)
        self._settings = self.configurations.settings
        self._settings.watchers.append(self._setting_changed)
        self.default = self._all[HOST]

    def _come(self, configuration: Configuration) -> Observer:
        self._last_number += 1
        made = VHost(self._engine, configuration, self.rules, self.internal_exchanges, self._last_number)
        self._all[made.name] = made
        return made

    def _gone(self, configuration: Configuration) -> None:
        self._closing(self._all.pop(configuration.host))

    def __iter__(self) -> Iterator[VHost]:
        """Those that are being deleted, too."""
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def names(self) -> list[str]:
        """Of those that may be used."""
        return [name for name in self._all if not self.is_deleted(name)]

    def get(self, name: str) -> VHost | None:
        """One that may be used."""
        return None if self.is_deleted(name) else self._all.get(name)

    def present(self, name: str) -> VHost | None:
        """The same, or one that is being deleted."""
        return self._all.get(name)

    def is_deleted(self, name: str) -> bool:
        """Whether it is being deleted."""
        return name in self._deleted

    def _setting_changed(self, key: Key) -> None:
        if key.kind != DELETED:
            return
        if self._settings.get(key) is None:
            self._deleted.pop(key.host, None)
        else:
            self._deleted[key.host] = None
            if key.host in self._all:
                self._closing(self._all[key.host])

    # ------------------------------------------------------------ the primary decides

    def add(self, name: str) -> int:
        """The position that the answer waits for.  `name` has been checked, and no such one is being deleted."""
        return self._settings.put(Key(HOST_KIND, name, ""), {})

    def delete(self, name: str) -> None:
        """Of one that is there, and not `/`; `empty` until nothing is left."""
        self._settings.put(Key(DELETED, name, ""), {})

    def empty(self, name: str) -> bool:
        """Deletes a slice of what is in one that is being deleted; whether that was all."""
        if not self.is_deleted(name):
            return True
        if self._engine.passive:
            return False
        steps = self._deleting.pop(name, None) or self._emptying(name)  # one that fails is begun again
        self._engine.begin_slice()
        for _ in steps:
            self._deleting[name] = steps
            return False
        return True

    def _emptying(self, name: str) -> Iterator[None]:
        if name in self._all:
            yield from emptying(self._all[name])
        keys = [key for key in self._settings if key.host == name and key.kind not in (HOST_KIND, DELETED)]
        for number, key in enumerate(keys):
            if key.kind == PERMISSION:
                self._keep_limited(key)
            self._settings.delete(key)
            if number % TOGETHER == TOGETHER - 1:
                yield
        # In this order: a fail-over between the two leaves nothing that users could find.
        for kind in (HOST_KIND, DELETED):
            self._settings.delete(Key(kind, name, ""))

    def _keep_limited(self, key: Key) -> None:
        """A user of the user file who has no permission anywhere may do everything.  Whose only one goes with its
        virtual host gets one for nothing."""
        others = (self._settings.get(Key(PERMISSION, vhost.name, key.name)) for vhost in self if vhost.name != key.host)
        if self._settings.get(Key(USER, "", key.name)) is None and not any(each is not None for each in others):
            self._settings.put(Key(PERMISSION, HOST, key.name), dict.fromkeys((CONFIGURE, WRITE, READ), ""))

    # ------------------------------------------------------------ all of them

    def tick(self, now: float) -> None:
        for vhost in self._visited():
            vhost.tick(now)
        self.configurations.clear(TICK)
        if self._engine.passive:
            self._deleting.clear()
        else:
            for name in list(self._deleted):
                self.empty(name)

    def _visited(self) -> list[VHost]:
        """`/` and VISITS others, or an eighth of them; each in its turn."""
        others = [vhost for vhost in self._all.values() if vhost is not self.default]
        count, start = min(len(others), max(VISITS, -(-len(others) // 8))), self._visits
        self._visits = (start + count) % max(len(others), 1)
        return [self.default, *(others + others)[start : start + count]]

    def on_promoted(self) -> None:
        """See `Endings`."""
        for vhost in self:
            vhost.endings.on_promoted()

    def on_restarted(self) -> None:
        for vhost in self:
            vhost.endings.on_restarted()


def emptying(vhost: VHost) -> Iterator[None]:
    """Deletes what is in a virtual host, a slice with each step.  Nothing is sent on: all of it goes."""
    endings, engine = vhost.endings, vhost.engine
    for number, exchange in enumerate([each for each in vhost.exchanges.values() if not each.predeclared]):
        if not exchange.gone:
            endings.remove_exchange(exchange)
        if number % TOGETHER == TOGETHER - 1:
            yield
    for number, queue in enumerate(list(vhost.queues.values())):
        last = engine.sequence
        while not queue.gone and not engine.purge_some(queue.core, last)[1]:
            yield
        if not queue.gone:
            endings.drop_queue(queue)
        if number % TOGETHER == TOGETHER - 1:
            yield
