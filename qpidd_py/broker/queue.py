"""What the broker knows of a queue beside its messages (those are the core's)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from qpidd_py.broker.arguments import (
    EXPIRES,
    MAX_BYTES,
    MAX_LENGTH,
    MAX_PRIORITY,
    MESSAGE_TTL,
    OVERFLOW,
    REPLICATE,
)
from qpidd_py.core.queue import Queue

if TYPE_CHECKING:
    from qpidd_py.broker.exchange import Binding, BindingKey

LOCAL_NUMBERS: Final = 1 << 31
"""Numbers from here on are of queues that are not replicated: a primary's numbers never collide with them."""


def limit(core: Queue, arguments: Mapping[str, Any]) -> None:
    """Gives a new queue its limits, priorities and time to live; on a backup too, for the day of its promotion."""
    if MAX_LENGTH in arguments:
        core.max_count = arguments[MAX_LENGTH]
    if MAX_BYTES in arguments:
        core.max_bytes = arguments[MAX_BYTES]
    if MESSAGE_TTL in arguments:
        core.ttl = arguments[MESSAGE_TTL]
    if arguments.get(MAX_PRIORITY):
        core.add_levels(arguments[MAX_PRIORITY])
    core.rejects = arguments.get(OVERFLOW) == "reject-publish"


class DeclaredQueue:
    """A declared queue.  `owner` is the session that declared it exclusive; None once that session is gone (an
    exclusive queue of a lost primary's client, until promotion deletes it)."""

    def __init__(
        self, core: Queue, durable: bool, exclusive: bool, auto_delete: bool, arguments: Mapping[str, Any]
    ) -> None:
        self.core = core
        self.name: str = core.name
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = dict(arguments)
        self.owner: object | None = None
        self.incoming: dict[BindingKey, Binding] = {}
        self.position = 0  # of its declaration, which is its unique id too; 0 if it is not replicated
        self.payload = b""
        self.used_position = 0  # of the operation that noted its first consumer
        self.used_payload = b""
        self.consumed_exclusively = False  # its one consumer wants no other
        self.idle_since: float | None = None  # for x-expires: when the vhost first saw it without a consumer

    @property
    def number(self) -> int:
        return self.core.number

    @property
    def replicated(self) -> bool:
        """Whether backups know it; its messages they only have with level "all"."""
        return self.position > 0

    @property
    def level(self) -> str:
        return str(self.arguments.get(REPLICATE, "none"))

    @property
    def expires(self) -> float | None:
        """Seconds without use after which it goes."""
        value = self.arguments.get(EXPIRES)
        return value / 1000 if isinstance(value, int) else None

    def properties(self) -> dict[str, Any]:
        """What a redeclaration must agree with."""
        arguments = {name: value for name, value in self.arguments.items() if name != REPLICATE}
        return {
            "durable": self.durable,
            "exclusive": self.exclusive,
            "auto_delete": self.auto_delete,
            **arguments,
        }
