"""The way of a message through exchanges, and what it passes there.                                            Pure."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.numbering import Numbers
from qpidd_py.core.queue import Queue
from qpidd_py.core.routes import Route


class Passed(NamedTuple):
    """What a message has passed before it is here."""

    numbers: Numbers | None = None
    """Those that count here (`numbering.py`)."""
    gates: tuple[Queue, ...] = ()
    """The shadows with keys (`shadow.py`)."""


NOTHING: Final = Passed()


class Way:
    """Where a message goes: the queues, and the exchanges that were asked, each with the numbers that count there."""

    __slots__ = ("asked", "queues", "shadowed")

    def __init__(self) -> None:
        self.queues: dict[Queue, Passed] = {}
        self.asked: dict[Exchange, Numbers | None] = {}
        self.shadowed = False  # some queue may be a shadow

    def through(self, exchange: Exchange, before: Passed, delayed: bool) -> Passed:
        """The message passes the exchange; one that is `delayed` is counted when it is due."""
        if exchange.numbers is None and exchange.shadow is None:
            return before
        numbers, gates = before
        if exchange.numbers is not None and not delayed:
            numbers = self.asked[exchange] = exchange.numbers
        if exchange.shadow is not None:
            core, self.shadowed = exchange.shadow.core, True
            self.queues.setdefault(core, Passed(numbers, gates))
            gates = (*gates, core) if exchange.remembers else gates
        return Passed(numbers, gates)

    def add(self, other: "Way") -> None:
        """That of a copy: a queue gets the message once."""
        self.shadowed |= other.shadowed
        for core, passed in other.queues.items():
            self.queues.setdefault(core, passed)
        for exchange, numbers in other.asked.items():
            self.asked[exchange] = self.asked.get(exchange) or numbers

    def without(self, left_out: Callable[[Queue], Any]) -> "Way":
        self.queues = {core: passed for core, passed in self.queues.items() if not left_out(core)}
        return self

    def route(self, marked: bool = False) -> Route:
        """`marked`: for one that is kept until a mark changes."""
        gates = self._gates() if self.shadowed else None
        via = tuple(exchange.mark for exchange in self.asked) if marked else ()
        return Route(list(self.queues), via=via, numbering=self._numbering(), gates=gates)

    def _gates(self) -> dict[Queue, tuple[Queue, ...]]:
        """The gates of each queue that lies behind some.  The key of a message that no queue gets is not remembered: it
        may be published again when there is one."""
        found = {gate for core, passed in self.queues.items() if not core.shadow for gate in passed.gates}
        self.without(lambda core: core.shadow and core.window is not None and core not in found)
        return {core: passed.gates for core, passed in self.queues.items() if passed.gates}

    def _numbering(self) -> tuple[tuple[Numbers, ...], dict[Queue, Numbers]] | None:
        counting = tuple(dict.fromkeys(each for each in self.asked.values() if each is not None))
        if not counting:
            return None
        return counting, {core: passed.numbers for core, passed in self.queues.items() if passed.numbers}
