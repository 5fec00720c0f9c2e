"""A queue without its messages, which are in the core."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from qpidd_py.broker.arguments import (
    ALTERNATE,
    AUTO_DELETE_TIMEOUT,
    CONSUMER_TIMEOUT,
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_KEY,
    EXPIRES,
    FENCING_TOKEN,
    MAX_BYTES,
    MAX_LENGTH,
    MAX_PRIORITY,
    MESSAGE_TTL,
    OVERFLOW,
    QUEUE_MODE,
    QUEUE_TYPE,
    REPLICATE,
    SINGLE_CONSUMER,
    compared,
    delivery_limit,
    keeps_letters,
)
from qpidd_py.broker.deduplication import window_of
from qpidd_py.broker.qpid_arguments import BROWSE_ONLY, SELF_DESTRUCT, canonical, shape
from qpidd_py.core.census import Told
from qpidd_py.core.queue import NO_LIMIT, Queue

QUARTERS: Final = 4
"""Per second: `Engine.clock` counts quarters of a second."""
LOCAL_NUMBERS: Final = 1 << 31
"""Numbers from here on belong to queues that are not replicated, so they never collide with a primary's numbers."""

_PLAIN: Final = {REPLICATE}
"""Arguments that say nothing about limits; most queues have no others."""


def quarters(seconds: float) -> int:
    """At least one; 0 = no limit.  What is longer than a year is a year."""
    return min(-int(-seconds * QUARTERS // 1), 365 * 86400 * QUARTERS)


def limit(core: Queue, arguments: Mapping[str, Any], secret: str = "") -> None:
    """Sets limits, priorities and time to live of a new queue; on a backup too, since it may be promoted.  `secret`: of
    its declaration."""
    if arguments.keys() <= _PLAIN:
        return  # a new queue in the core is like that
    arguments = canonical(arguments)
    core.window = window_of(arguments, secret)
    if arguments.get(MAX_PRIORITY):
        core.add_levels(arguments[MAX_PRIORITY])
    relimit(core, arguments)
    shape(core, arguments)
    core.weighted = arguments.get(QUEUE_TYPE) == "quorum"
    core.single = bool(arguments.get(SINGLE_CONSUMER))
    core.fenced = bool(arguments.get(FENCING_TOKEN))


def relimit(core: Queue, arguments: Mapping[str, Any]) -> None:
    """Sets what a policy can change."""
    core.max_count = arguments.get(MAX_LENGTH, NO_LIMIT)
    core.max_bytes = arguments.get(MAX_BYTES, NO_LIMIT)
    core.ttl = arguments.get(MESSAGE_TTL, NO_LIMIT)
    if arguments.get(QUEUE_TYPE) == "quorum":
        most = delivery_limit(arguments)
        core.count_returns(NO_LIMIT if most < 0 else most)
    core.patience = quarters(arguments.get(CONSUMER_TIMEOUT, 0) / 1000)
    core.keeps = keeps_letters(arguments)
    core.rejects = arguments.get(OVERFLOW) in ("reject-publish", "reject-publish-dlx", SELF_DESTRUCT)
    core.refused_die = arguments.get(OVERFLOW) == "reject-publish-dlx"


class Effect(NamedTuple):
    """What holds for a queue or an exchange by its arguments and the policies (`policies.py`)."""

    arguments: Mapping[str, Any]
    policy: str = ""
    operator: str = ""
    ha: Mapping[str, Any] = {}
    """What the policy says of replication: in force for what was declared under it."""


class DeclaredQueue:
    """A declared queue.  `owner` is the connection that declared it exclusive; None once that connection is gone (an
    exclusive queue of a lost primary's client, which has some time to come back after a promotion)."""

    def __init__(
        self,
        core: Queue,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Any],
        effect: Effect | None = None,
    ) -> None:
        self.core = core
        self.name: str = core.name
        self.host: str = core.host
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = dict(arguments)
        self.take(effect or Effect(self.arguments))
        self.owner: object | None = None
        self.position = 0  # of its declaration, which is its unique id too; 0 if it is not replicated
        self.user = ""  # who has declared it
        self.used = False  # whether it has had a consumer here
        self.used_position = 0  # of the operation that noted its first consumer
        self.consumed_exclusively = False  # its only consumer is exclusive
        self.gone = False  # it was deleted
        self.ending = False  # it is deleted soon, or when somebody asks for it
        self.reserved = ""  # why messages may not be taken out or put in; empty = they may

    def take(self, effect: Effect) -> None:
        """This holds now."""
        self.effect = effect
        self.told: Told | None = None  # what management has told of it; nothing of this yet
        # without a client that deletes it
        self.may_end = self.exclusive or self.auto_delete or EXPIRES in effect.arguments

    @property
    def lazy(self) -> bool:
        """Its messages leave memory as soon as they can."""
        return not self.gone and self.effect.arguments.get(QUEUE_MODE) == "lazy"

    @property
    def browse_only(self) -> bool:
        """Its messages are looked at and never taken."""
        return bool(self.arguments.get(BROWSE_ONLY))

    @property
    def number(self) -> int:
        return self.core.number

    @property
    def replicated(self) -> bool:
        """True if backups have the queue; they have its messages only with level "all"."""
        return self.position > 0

    @property
    def level(self) -> str:
        return str(self.arguments.get(REPLICATE, "none"))

    @property
    def expires(self) -> float | None:
        """Seconds without use after which the queue is deleted."""
        value = self.effect.arguments.get(EXPIRES)
        return value / 1000 if isinstance(value, int) else self.delay

    @property
    def delay(self) -> float | None:
        """Seconds for which an auto-delete queue stays after its last consumer has gone; None: it is deleted at
        once."""
        value = self.arguments.get(AUTO_DELETE_TIMEOUT)
        return float(value) if value and self.auto_delete and isinstance(value, int) else None

    @property
    def waits_for_its_owner(self) -> bool:
        """An exclusive queue of a client of another primary, which is to come back and declare it."""
        return self.exclusive and self.owner is None

    @property
    def waits_for_its_first_user(self) -> bool:
        """Auto-delete queues that were never used stay; x-expires counts from the declaration, used or not."""
        return EXPIRES not in self.effect.arguments and not (self.used or self.used_position)

    @property
    def alternate(self) -> str | None:
        """The exchange that gets rejected messages, and those left when the queue is deleted."""
        return self._text(ALTERNATE)

    @property
    def dead_letter_exchange(self) -> str | None:
        return self._text(DEAD_LETTER_EXCHANGE)

    @property
    def dead_letter_key(self) -> str | None:
        return self._text(DEAD_LETTER_KEY)

    def _text(self, name: str) -> str | None:
        value = self.effect.arguments.get(name)
        return value if isinstance(value, str) else None

    def properties(self) -> dict[str, Any]:
        """The values that a redeclaration must match."""
        return {"durable": self.durable, "auto_delete": self.auto_delete, **compared(self.arguments)}
