"""Exchanges that number their messages (`qpid.msg_sequence`), and the way of a message through exchanges.

Theory.  The number of a message is in the log before the message: an operation of the configuration (`NUMBER`), in the
same batch (`core/numbering.pyx`).  So each broker that has a message knows its number, or a higher one, and goes on
behind it when it becomes the primary.  The last operation of an exchange is kept like that of a declaration, so a
joining backup and each segment of the journal get it with the rest of the configuration.

A queue gets a message with the number of the last numbering exchange that the message has passed on its way to it.
Each numbering exchange counts each message that it gets, also one that it does not pass on: a consumer sees the gap.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.snapshot import Records
from qpidd_py.core.queue import Queue
from qpidd_py.core.routes import Route

if TYPE_CHECKING:
    from qpidd_py.broker.exchange import Exchange

NUMBER: Final = "exchange.number"
"""The operation: the exchange `name` has given the number `last`."""
MOST: Final = (1 << 63) - 1


class Numbers:
    """Of one exchange that numbers."""

    __slots__ = ("_name", "_records", "last", "position", "replicated")

    def __init__(self, name: str, records: Records, replicated: bool) -> None:
        self.last = 0
        self.position = 0  # of the operation that has `last`
        self.replicated = replicated
        self._records = records
        self._name = name

    def operation(self) -> bytes:
        """That gives the next number; empty for an exchange of this broker only."""
        return encode_table({"op": NUMBER, "name": self._name, "last": self.last + 1}) if self.replicated else b""

    def note(self, last: int, position: int, payload: bytes) -> None:
        """`payload`: the operation at `position`.  A MemoryError changes nothing."""
        self._records.put(position, payload)
        if self.position != position:
            self._records.drop(self.position)
        self.last, self.position = last, position


class Way:
    """Where a message goes: the queues, and the exchanges that were asked, each with the numbers that count there."""

    __slots__ = ("asked", "queues")

    def __init__(self) -> None:
        self.queues: dict[Queue, Numbers | None] = {}
        self.asked: dict[Exchange, Numbers | None] = {}

    def add(self, other: "Way") -> None:
        """That of a copy: a queue gets the message once."""
        for core, numbers in other.queues.items():
            self.queues.setdefault(core, numbers)
        for exchange, numbers in other.asked.items():
            self.asked[exchange] = self.asked.get(exchange) or numbers

    def without(self, left_out: Callable[[Queue], Any]) -> "Way":
        self.queues = {core: numbers for core, numbers in self.queues.items() if not left_out(core)}
        return self

    def route(self, marked: bool = False) -> Route:
        """`marked`: for one that is kept until a mark changes."""
        via = tuple(exchange.mark for exchange in self.asked) if marked else ()
        return Route(list(self.queues), via=via, numbering=self._numbering())

    def _numbering(self) -> tuple[tuple[Numbers, ...], dict[Queue, Numbers]] | None:
        counting = tuple(dict.fromkeys(each for each in self.asked.values() if each is not None))
        return (counting, {core: each for core, each in self.queues.items() if each}) if counting else None
