"""Why a session has ended, and what no call has raised yet (lock held, unless it says otherwise)."""

from __future__ import annotations

import logging

from client_lib.core.aftermath import Aftermath
from client_lib.core.commands import Commands
from client_lib.core.notifying import Told, silent
from client_lib.core.outbox import Entry, some_ids
from client_lib.core.publishing import Publishing
from client_lib.core.transacting import Answers, Transacting
from client_lib.core.transaction import Transaction
from client_lib.errors import InDoubt, MessagingError
from client_lib.unheard import Unheard

LOGGER = logging.getLogger("client_lib")


class Ending:
    """One per session."""

    def __init__(self, name: str, publishing: Publishing, commands: Commands, transacting: Transacting | None) -> None:
        self.error: MessagingError | None = None
        """What ended the session."""
        self.told = False
        """A call has raised it."""
        self.failed: Told = silent
        """Called without the lock, when the session ends and the application has not closed it."""
        self.lost: list[Entry] = []
        """Messages that are in doubt since then."""
        self._name = name
        self._publishing, self._commands, self._transacting = publishing, commands, transacting

    def check(self, transaction: Transaction | None) -> None:
        """Raises the error that ended the session or its transaction, if there is one."""
        if self.error is not None:
            self.told = True
            raise self.error.with_traceback(None)  # otherwise each raise makes the traceback longer
        if transaction is not None:
            transaction.check()

    def end(self, error: MessagingError, closed: bool) -> Aftermath:
        """Once.  `closed`: by the application."""
        self.error = error
        self.lost = self._doubtful()
        answers: Answers = [(future, error) for future in self._commands.end()]
        if self._transacting is not None:
            answers += self._transacting.end(error, closed)
        self.told = bool(answers)
        if self.lost:
            LOGGER.warning("%s: %s; %d messages in doubt: %s", self._name, error, len(self.lost), some_ids(self.lost))
        return Aftermath(entries=self._publishing.end(error), answers=answers)

    def _doubtful(self) -> list[Entry]:
        if self._transacting is not None and not self._transacting.doubtful:
            return []
        return self._publishing.unsettled()

    def take_unheard(self, closed: bool) -> Unheard:
        """What was refused or is in doubt, once.  `closed`: by the application."""
        unheard: Unheard = []
        while (refusal := self._publishing.next_failure()) is not None:
            unheard.append((refusal.message, refusal))
        lost, self.lost = self.lost, []
        error = self.error
        if error is None or closed:
            error = InDoubt(f"{self._name}: {len(lost)} messages in doubt: {some_ids(lost)}")
        elif self.told:
            lost = []
        return [*unheard, *((entry.message, error) for entry in lost)]
