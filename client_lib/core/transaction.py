"""The transaction of a transactional session (pure, not thread-safe by itself).

Theory.  A session always has exactly one transaction.  It contains the messages sent (`published`) and the decisions
about deliveries (`touched`) since the last commit or rollback.

    OPEN --commit--> COMMITTING --commit_written--> COMMIT_SENT --committed--> OPEN
     ^ ^---withdraw------+                               |
     |                                                   +-- lost --> UNKNOWN --told--> OPEN
     +--lost-- ROLLING_BACK <--rollback-- OPEN
     +--rolled_back, lost-- ROLLBACK_SENT <--rollback_written-- ROLLING_BACK
     +--rollback-- ABORTED <-- lost, not empty -- OPEN, COMMITTING

* `commit_written` is called when all of the transaction is on the wire, directly before tx.commit.  So after a loss
  before it nothing has happened (ABORTED); after a loss behind it the outcome is unknown (UNKNOWN).
* A loss does not abort an empty transaction.  A transaction with a message that was fetched and not acknowledged is not
  empty: the acknowledgement would be dropped and the message processed twice.
* While it is `ending` nothing new is published, and after `commit_written` no disposition is written: later decisions
  belong to the next transaction.
* Ids that a duplicate filter had recorded as finished are forgotten unless the commit was answered: the message will be
  (with an unknown outcome: may be) delivered again.
* If all callers of commit timed out, its outcome is kept as UNKNOWN until commit or rollback is called.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from client_lib.core.outbox import Entry
from client_lib.dedup import DuplicateFilter
from client_lib.errors import TransactionAborted, TransactionError, TransactionUnknown

Finished = list[tuple[DuplicateFilter[Any], "str | None"]]


class Phase(Enum):
    OPEN = "open"
    COMMITTING = "committing"
    COMMIT_SENT = "commit sent"
    ROLLING_BACK = "rolling back"
    ROLLBACK_SENT = "rollback sent"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction:
    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self.published: list[Entry] = []
        """On the wire, oldest first."""
        self.proven = 0
        """The broker has read so many of them: what it answered came behind them."""
        self.commits = 0
        self._touched = False
        self._finished: Finished = []
        self._sealed: Finished = []

    @property
    def touched(self) -> bool:
        """True if anything of the transaction was or will be sent to the broker."""
        return self._touched or bool(self.published)

    @property
    def ending(self) -> bool:
        """True while a commit or rollback is under way."""
        return self.phase not in (Phase.OPEN, Phase.ABORTED, Phase.UNKNOWN)

    @property
    def rolling_back(self) -> bool:
        return self.phase in (Phase.ROLLING_BACK, Phase.ROLLBACK_SENT)

    def check(self) -> None:
        """Raises the error that the application must handle before it goes on."""
        if self.phase is Phase.ABORTED:
            raise aborted()
        if self.phase is Phase.UNKNOWN:
            raise unknown()

    # -- what belongs to it

    def written(self, entries: list[Entry]) -> None:
        self.published += entries

    def disposed(self) -> None:
        """Notes a decision about a delivery."""
        self._touched = True

    def finished(self, duplicates: DuplicateFilter[Any], message_id: str | None) -> None:
        self._finished.append((duplicates, message_id))

    # -- its end

    def commit(self) -> None:
        """Raises TransactionAborted, TransactionUnknown (once), TransactionError."""
        if self.phase is Phase.UNKNOWN:
            self.phase = Phase.OPEN
            raise unknown()
        self.check()
        if self.rolling_back:
            raise TransactionError("the transaction is being rolled back")
        if self.phase is Phase.OPEN:
            self.phase = Phase.COMMITTING

    def withdraw(self) -> bool:
        """Withdraws the commit; False if it was already written."""
        if self.phase is Phase.COMMITTING:
            self.phase = Phase.OPEN
        return self.phase is Phase.OPEN

    def commit_written(self) -> None:
        assert self.phase is Phase.COMMITTING, self.phase
        self.phase = Phase.COMMIT_SENT
        self._sealed, self._finished = self._finished, []
        self._touched = False  # from now on it is about the next transaction

    def committed(self) -> list[Entry]:
        """tx.commit-ok.  Returns what was published."""
        assert self.phase is Phase.COMMIT_SENT, self.phase
        self.phase = Phase.OPEN
        self.commits += 1
        self._sealed = []
        return self._take()

    def rollback(self, anything: bool) -> list[Entry]:
        """Returns what was published.  If `anything` was written or delivered the broker must be asked: ROLLING_BACK,
        else there is nothing more to do.  Raises TransactionError while a commit is under way."""
        if self.phase in (Phase.COMMITTING, Phase.COMMIT_SENT):
            raise TransactionError("the transaction is being committed")
        if self.phase is Phase.OPEN and anything:
            self.phase = Phase.ROLLING_BACK
        elif not self.rolling_back:
            self.phase = Phase.OPEN
        return self._undone()

    def rollback_written(self) -> None:
        assert self.phase is Phase.ROLLING_BACK, self.phase
        self.phase = Phase.ROLLBACK_SENT

    def rolled_back(self) -> None:
        assert self.phase is Phase.ROLLBACK_SENT, self.phase
        self.phase = Phase.OPEN

    def lost(self, anything: bool) -> list[Entry]:
        """The channel is gone; `anything`: something on it belonged to the transaction.  Returns what was published."""
        if self.phase is Phase.COMMIT_SENT:
            self.phase = Phase.UNKNOWN
        elif self.rolling_back:
            self.phase = Phase.OPEN
        elif self.phase in (Phase.OPEN, Phase.COMMITTING) and (anything or self.touched):
            self.phase = Phase.ABORTED
        else:
            return []
        return self._undone()

    def told(self) -> None:
        """The unknown outcome was returned as the answer to a commit."""
        if self.phase is Phase.UNKNOWN:
            self.phase = Phase.OPEN

    def _undone(self) -> list[Entry]:
        for duplicates, message_id in self._finished + self._sealed:
            duplicates.forget(message_id)
        self._finished, self._sealed, self._touched = [], [], False
        return self._take()

    def _take(self) -> list[Entry]:
        published, self.published, self.proven = self.published, [], 0
        return published

    @property
    def unproven(self) -> Entry | None:
        """The oldest on the wire that the broker may not have read."""
        return self.published[self.proven] if self.proven < len(self.published) else None


def unknown() -> TransactionUnknown:
    return TransactionUnknown(
        "the connection was lost after the commit had been sent: all of the transaction has happened, or nothing"
    )


def aborted(reason: str = "the connection was lost") -> TransactionAborted:
    return TransactionAborted(f"{reason}: nothing of the transaction has happened; call rollback()")
