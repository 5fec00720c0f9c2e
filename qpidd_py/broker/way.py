"""The way of a message through exchanges, and the numbers that count where it arrives (`numbering.py`).        Pure."""

from collections.abc import Callable
from typing import Any

from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.numbering import Numbers
from qpidd_py.core.queue import Queue
from qpidd_py.core.routes import Route


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
