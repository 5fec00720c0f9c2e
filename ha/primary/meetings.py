"""Two links under one identity: finds out whether both brokers live (theory: `ha/model/twins.py`).  Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ha.model.environment import Json
from ha.primary.peer import Peer


@dataclass(eq=False)
class _Meeting:
    """The existing link of an id, and a second one that wants its place."""

    first: Peer
    second: Peer
    hello: Json
    number: int
    answered: set[Peer] = field(default_factory=set)


class Meetings:
    """Second links of one id, until it is known whether both processes live."""

    def __init__(self, ask: Callable[[Peer, int], None], twins: Callable[[Peer, Peer, Json], None]) -> None:
        """`ask` sends "alive" with this number; `twins` is called when both have answered."""
        self._ask, self._twins = ask, twins
        self._open: list[_Meeting] = []
        self._number = 0

    def begin(self, first: Peer, second: Peer, hello: Json) -> None:
        if any(meeting.second is second for meeting in self._open):
            return  # it repeats its hello while it waits
        self._number += 1
        self._open.append(_Meeting(first, second, hello, self._number))
        self._ask(first, self._number)
        self._ask(second, self._number)

    def answered(self, peer: Peer, number: object) -> None:
        """An answer: this process was alive after both hellos."""
        meeting = next((one for one in self._open if one.number == number), None)
        if meeting is None or peer not in (meeting.first, meeting.second):
            return
        meeting.answered.add(peer)
        if len(meeting.answered) == 2:
            self._open.remove(meeting)
            self._twins(meeting.first, meeting.second, meeting.hello)

    def left(self, peer: Peer) -> list[tuple[Peer, Json]]:
        """This link has ended.  Returns the peers that waited for it, with their hellos."""
        waiting = [(one.second, one.hello) for one in self._open if one.first is peer]
        self._open = [one for one in self._open if peer not in (one.first, one.second)]
        return waiting
