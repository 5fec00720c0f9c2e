"""What to report, without the lock, after a channel was lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from client_lib.core.outbox import Entry
from client_lib.core.publishing import Publishing
from client_lib.core.transacting import Answers
from client_lib.steps import answer, refuse


@dataclass
class Aftermath:
    unconfirmed: int = 0
    entries: list[Entry] = field(default_factory=list)
    answers: Answers = field(default_factory=list)

    def tell(self, publishing: Publishing) -> None:
        publishing.report(self.entries)
        for future, result in self.answers:
            if isinstance(result, BaseException):
                refuse(future, result)
            else:
                answer(future, result)
