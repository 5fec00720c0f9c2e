"""The requests that a broker answers while it reads its journal.  In the doorman's thread (`qpidd_py.doorman`).

It lives, and takes part in nothing: it does not know yet what it holds.  So that no other broker concludes more:

    ha.ask      its answer is no view, so a survey takes it for silent: it may hold more, it is no candidate, and it is
                not dead (`view.Survey`).  A claim that must hear it fails, as if it had not answered at all.
    ha.claim    not answered: a refusal would deny the claim, which other brokers may grant without this one
    ha.status, ha.query    the state, and how far the reading is
    the others  refused
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ha.model.environment import Json, Reply
from ha.model.status import RECOVERING_JOURNAL
from ha.requests import RequestTable
from qpidd_py.errors import LinkError

REFUSED: Final = ["promote", "demote", "relocate", "member", "dump", "salvage", "backup", "restore", "replicate"]


class Step(Protocol):
    """How far the reading is, as a text and for programs."""

    def __str__(self) -> str: ...

    def shown(self) -> Json: ...


class Recovering(RequestTable):
    """The table of one start."""

    def __init__(
        self, name: str, step: Callable[[], Step], steerer: str, brokers: str = "", public_url: str = ""
    ) -> None:
        """`brokers`: the option ha-brokers-url."""
        self._name = name
        self._step = step
        self._brokers = brokers
        self._public_url = public_url
        later = {**{f"ha.{word}": self._refuse for word in REFUSED}, "ha.claim": _unanswered}
        now = {"ha.status": self._status, "ha.query": self._query, "ha.ask": self._status}
        super().__init__(steerer, now, later)

    @property
    def _advice(self) -> str:
        return f"it is reading its journal: {self._step()}"

    def _status(self, arguments: Json, user: str) -> Json:
        known: Json = {"state": RECOVERING_JOURNAL, "name": self._name, "score": None}
        return known | {"advice": self._advice, "journal": self._step().shown()}

    def _query(self, arguments: Json, user: str) -> Json:
        known: Json = {"status": RECOVERING_JOURNAL, "name": self._name, "brokers_url": self._brokers}
        known |= {"public_url": self._public_url, "members": [], "primary": ""}
        return known | {"advice": self._advice, "journal": self._step().shown()}

    def _refuse(self, arguments: Json, user: str, reply: Reply) -> None:
        raise LinkError(f"{self._name} is {RECOVERING_JOURNAL} and takes part in nothing yet; {self._advice}")


def _unanswered(arguments: Json, user: str, reply: Reply) -> None:
    """See the head of this module."""
