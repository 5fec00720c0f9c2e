"""What the history remembers: copies, transactions, promotions, the configuration, and the queue that a vandal has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
    excused: bool = False


@dataclass
class Job:
    """One transaction: a message of `work` settled, and outputs."""

    source: str
    outputs: list[tuple[str, str]]
    state: str = "open"
    excused: bool = False


@dataclass
class Promotion:
    """What a new primary held when it was promoted."""

    ballot: Ballot
    name: str
    contents: Contents
    objects: frozenset[str] = frozenset()
    """Queues, exchanges and bindings, as `Declared` names them."""
    life: int = 0
    """Of the broker."""


@dataclass
class Stream:
    """Order in one consumer: the last copy by (producer, attempt, priority)."""

    last: dict[tuple[str, str, int], int] = field(default_factory=dict)


class Declared:
    """Objects of the architects: there, not there, or nobody can tell."""

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
    """The queue that is purged, deleted and made again: what must be in it, and what must never come back."""

    def __init__(self, now: Callable[[], float], confirmed: Callable[[], set[str]]) -> None:
        """`confirmed`: the copies in it that are confirmed by now."""
        self._now = now
        self._confirmed = confirmed
        self._since: float | None = None
        self._stray = False
        """An unanswered purge or deletion may still strike."""
        self._victims: set[str] = set()
        self._op = ""
        self.gone: dict[str, Ballot] = {}
        """Copies that were confirmed before a purge or a deletion began: no later primary has them."""

    def begun(self, op: str) -> None:
        self._op = op
        if op != "declare":
            self._since = None
            self._victims = self._confirmed()

    def done(self, op: str, ballot: Ballot) -> None:
        if op != "declare":
            self.gone |= dict.fromkeys(self._victims, ballot)
        if op == "delete":
            self._since = None
        elif self._since is None and not self._stray:
            self._since = self._now()

    def unanswered(self) -> None:
        self._stray = self._stray or self._op != "declare"

    def keeps(self, copy: Copy) -> bool:
        """Was the queue there when this was published, and untouched since?"""
        return self._since is not None and self._since <= copy.at

    def forget(self) -> None:
        """A total failure."""
        self.gone.clear()
        self._since = None
        self._stray = True
