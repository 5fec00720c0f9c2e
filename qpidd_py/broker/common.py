"""What the virtual hosts of a broker share: settings, numbers of queues, and the operations that made all there is.

Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from qpidd_py.broker.events import Events
from qpidd_py.broker.limits import Limits
from qpidd_py.broker.queue import LOCAL_NUMBERS, DeclaredQueue
from qpidd_py.broker.settings import Settings
from qpidd_py.broker.snapshot import Records
from qpidd_py.core.engine import Engine
from qpidd_py.core.queue import Queue


class Common:
    """Of one broker.  No object of a virtual host is here."""

    def __init__(self, engine: Engine) -> None:
        self.records = Records()
        self.settings = Settings(engine, self.records)
        self.events = Events()
        self.queues = 0
        """Those with names."""
        self.queues_of: Counter[str] = Counter()
        """User -> queues that this user has declared."""
        self.lazy: dict[Queue, int] = {}
        """Those whose messages leave memory first, and what `core/lazy.pyx` keeps of each."""
        self.paged = False
        """Whether messages can leave memory at all."""
        self.next_number = 1
        self._last_local = LOCAL_NUMBERS

    def take_number(self) -> int:
        """The number of the next replicated queue; never given twice."""
        self.next_number += 1
        return self.next_number - 1

    def take_local_number(self) -> int:
        """The same of one that is not replicated."""
        self._last_local += 1
        return self._last_local

    def set_mode(self, queue: DeclaredQueue) -> None:
        """It has come, has gone, or a policy has changed what holds for it."""
        for core in queue.core.levels or (queue.core,):
            if queue.lazy:
                self.lazy.setdefault(core, 0)
            else:
                self.lazy.pop(core, None)

    def came(self, user: str) -> None:
        """A queue of this user."""
        self.queues += 1
        self.queues_of[user] += 1

    def went(self, user: str) -> None:
        self.queues -= 1
        self.queues_of[user] -= 1


@dataclass
class Rules:
    """What holds in all virtual hosts of a broker; HA and the options change it."""

    limits: Limits = field(default_factory=Limits)
    default_replicate: str = "none"
    clustered: bool = False
    alarm: Callable[[str, str], None] = lambda name, reason: None
    failover_bound: Callable[[DeclaredQueue], None] | None = None
    """Called when a queue was bound to `amq.failover`."""
