"""What the history remembers: copies, transactions, promotions, the configuration, and the queue that a vandal has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulator.topology import LATER, LETTERS

if TYPE_CHECKING:
    from tests.simulator.ledger import Log

Ballot = tuple[int, str]
Contents = dict[str, dict[str, bytes]]
"""{queue: {copy: body}}"""


@dataclass
class Copy:
    """One publish."""

    queues: tuple[str, ...]
    body: bytes
    at: float
    """When it was sent."""
    priority: int = 0
    confirmed: str = ""
    """When, and by whom."""
    confirmed_at: float = float("inf")
    ballot: Ballot = (0, "")
    """Of the primary that has confirmed."""
    rejected: bool = False
    """The broker has said that the queue does not take it."""
    returned: bool = False
    """The broker has said that there is no queue for it."""
    excused: bool = False
    exchange: str = ""
    """To which it was published."""
    key: str = ""
    """Its header `key`: what it is the same as, its group, or what it is the last value of."""
    delay: float = 0.0
    """Seconds for which an exchange keeps it."""

    def belongs(self, queue: str) -> bool:
        """Was it sent there, or to a queue whose dead letters go there?"""
        return queue in self.queues or any(LETTERS.get(each) == queue for each in self.queues)

    def needs(self, queue: str) -> list[str]:
        """What must be there for it to come to this queue, as `Declared` names it."""
        if queue == LATER:
            return [f"exchange {self.exchange}"]  # the queue goes with it
        binding = [f"exchange {self.exchange}", f"binding {queue} {self.exchange}"] if self.exchange else []
        return [f"queue {queue}", *binding]


@dataclass
class Job:
    """One transaction: a message of `work` settled, and outputs."""

    source: str
    outputs: list[tuple[str, str]]
    state: str = "open"
    excused: bool = False
    seen: Ballot | None = None
    """Of the primary that has handed out one of the outputs."""


@dataclass
class Promotion:
    """What a new primary held when it was promoted."""

    ballot: Ballot
    name: str
    contents: Contents
    objects: frozenset[str] = frozenset()
    """Queues, exchanges and bindings, as `Declared` names them."""
    log: Log = ()
    """What it held of the logs of all primaries."""
    life: int = 0
    """Of the broker."""


@dataclass(frozen=True)
class Handed:
    """A client got a copy from a queue."""

    ballot: Ballot
    """Of the primary."""
    marked: bool
    """It may have come before."""


@dataclass
class Stream:
    """Order in one consumer: the last copy by (producer, attempt, priority)."""

    last: dict[tuple[str, str, int], int] = field(default_factory=dict)


class Declared:
    """Objects of the architects: there, not there, or unknown."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self.there: dict[str, bool | None] = {}
        self._in_doubt: set[str] = set()

    def asked(self, what: str) -> None:
        """The change is under way; a deletion takes bindings along."""
        for name in [what, *self._dependent(what)]:
            self._in_doubt.discard(name)
            self.there[name] = None

    def answered(self, what: str, there: bool) -> None:
        if what in self._in_doubt:
            return  # the answer was under way when everything was lost
        for name in [what, *([] if there else self._dependent(what))]:
            self.there[name] = there
        self._log(f"{what} is {'there' if there else 'gone'}")

    def _dependent(self, what: str) -> list[str]:
        kind, _, name = what.partition(" ")
        if kind == "binding":
            return []
        return [other for other in self.there if other.startswith("binding") and name in other.split()[1:]]

    def forget(self) -> None:
        """A total failure."""
        self._in_doubt = {name for name, there in self.there.items() if there is None}
        self.there = dict.fromkeys(self.there)

    def wrong(self, objects: frozenset[str]) -> str:
        """What is not as it was answered; empty when all is."""
        for name, there in self.there.items():
            if there is not None and there != (name in objects):
                return f"{name} {'was declared' if there else 'was deleted'}"
        return ""


class Scrap:
    """The queue that is purged, deleted and made again: what must never come back."""

    def __init__(self, confirmed: Callable[[], set[str]]) -> None:
        """`confirmed`: the copies in it that are confirmed by now."""
        self._confirmed = confirmed
        self._victims: set[str] = set()
        self.gone: dict[str, Ballot] = {}
        """Copies that were confirmed before a purge or a deletion began: no later primary has them."""

    def begun(self, op: str) -> None:
        if op != "declare":
            self._victims = self._confirmed()

    def done(self, op: str, ballot: Ballot) -> None:
        if op != "declare":
            self.gone |= dict.fromkeys(self._victims, ballot)

    def forget(self) -> None:
        """A total failure."""
        self.gone.clear()
