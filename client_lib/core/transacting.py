"""Runs a session's transactions on a channel: the shell around `client_lib.core.transaction`.

All of a transaction is on the wire before tx.commit is written, with nothing in between that the channel would hold
back.  A rollback is tx.rollback, then basic.recover, so that the broker redelivers what was delivered and not settled;
otherwise messages whose acknowledgements were undone would never reach this channel again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from client_lib.core.deliveries import Deliveries
from client_lib.core.outbox import Entry
from client_lib.core.publishing import Publishing
from client_lib.core.transaction import Phase, Transaction, aborted, unknown
from client_lib.errors import MessagingError
from client_lib.monitor import Monitor
from client_lib.steps import answer, refuse

Answers = list[tuple[Future[Any], Exception | None]]


class Transacting:
    """One per transactional session; `monitor` guards it."""

    def __init__(
        self, transaction: Transaction, publishing: Publishing, deliveries: Deliveries, monitor: Monitor
    ) -> None:
        self.commit: Future[None] | None = None
        """The answer to the commit that is under way."""
        self._rollback: Future[None] | None = None
        self._transaction = transaction
        self._publishing, self._deliveries, self._monitor = publishing, deliveries, monitor

    # -- for the application

    def start_commit(self) -> Future[None]:
        """One commit at a time; concurrent callers get the same answer.  Raises what `Transaction.commit` raises."""
        with self._monitor:
            if self.commit is not None:
                return self.commit
            self._transaction.commit()
            future = _shared_future()
            if self._transaction.touched or self._publishing.outbox.unsettled or self._deliveries.undecided:
                self.commit = future
            else:
                self._transaction.withdraw()
                future.set_result(None)
        return future

    def withdraw_commit(self, error: Exception) -> bool:
        """False if tx.commit was written; otherwise all waiting callers get `error`."""
        with self._monitor:
            if not self._transaction.withdraw():
                return False
            future, self.commit = self.commit, None
            self._monitor.notify_all()
        if future is not None:
            refuse(future, error)
        return True

    def start_rollback(self) -> Future[None]:
        """Raises TransactionError while a commit is under way."""
        with self._monitor:
            if self._rollback is not None:
                return self._rollback
            anything = self._transaction.touched or bool(self._deliveries.fetched)
            entries = self._transaction.rollback(anything) + self._publishing.withdraw()
            self._publishing.give_up(entries, aborted("rolled back"))
            future = _shared_future()
            if self._transaction.rolling_back:
                self._deliveries.void()
                self._rollback = future
            else:
                future.set_result(None)
            self._monitor.notify_all()
        self._publishing.report(entries)
        return future

    # -- in the I/O thread

    def write(self, channel: Any, current: Callable[[], bool], wake: Callable[[], None]) -> None:
        """Writes tx.commit or tx.rollback if one is due; no other answer may be outstanding on the channel.

        `current` says whether this is still the channel of the session."""
        with self._monitor:
            phase = self._transaction.phase
            if phase is Phase.COMMITTING and not self._publishing.outbox.waiting and not self._deliveries.undecided:
                self._transaction.commit_written()
            elif phase is Phase.ROLLING_BACK:
                self._transaction.rollback_written()
            else:
                return

        end = self._committed if phase is Phase.COMMITTING else self._rolled_back

        def answered(_ok: Any) -> None:
            if current():
                end()
                wake()  # for the work that was held back

        if phase is Phase.COMMITTING:
            channel.tx_commit(callback=answered)
        else:
            channel.tx_rollback()
            channel.basic_recover(requeue=True, callback=answered)

    def _committed(self) -> None:
        with self._monitor:
            entries = self._transaction.committed()
            self._publishing.committed(entries)
            future, self.commit = self.commit, None
            self._monitor.notify_all()
        self._publishing.report(entries)
        if future is not None:
            answer(future, None)

    def _rolled_back(self) -> None:
        with self._monitor:
            self._transaction.rolled_back()
            future, self._rollback = self._rollback, None
            self._monitor.notify_all()
        if future is not None:
            answer(future, None)

    def connection_lost(self, ready: bool) -> tuple[list[Entry], Answers]:
        """The channel is gone, and with it the transaction in the broker (lock held).

        Returns what must be reported and answered without the lock.  `ready`: the channel was in use, so for the
        application waiting messages may have been sent."""
        transaction = self._transaction
        rolling_back = transaction.rolling_back
        waiting = ready and self._publishing.outbox.waiting > 0
        entries = transaction.lost(waiting or bool(self._deliveries.fetched))
        if rolling_back:
            future, self._rollback = self._rollback, None
            return [], [(future, None)] if future is not None else []
        if transaction.phase not in (Phase.ABORTED, Phase.UNKNOWN):
            return [], []
        error = aborted() if transaction.phase is Phase.ABORTED else unknown()
        entries += self._publishing.withdraw()
        self._publishing.give_up(entries, error)
        future, self.commit = self.commit, None
        return entries, [(future, error)] if future is not None else []

    def end(self, error: MessagingError, closed: bool) -> Answers:
        """The session has ended; returns what must be answered (lock held).

        `closed` by the application; if the broker ended the session, its error is the answer to the commit."""
        unanswered = closed and self._transaction.phase is Phase.COMMIT_SENT
        answers: Answers = [(self.commit, unknown() if unanswered else error)] if self.commit is not None else []
        if self._rollback is not None:
            answers.append((self._rollback, error))
        self.commit = self._rollback = None
        return answers

    @property
    def doubtful(self) -> bool:
        """True while a commit is under way: ending the session now would leave its outcome unknown."""
        return self._transaction.phase in (Phase.COMMITTING, Phase.COMMIT_SENT)


def _shared_future() -> Future[None]:
    """Several callers may wait for this future, so it cannot be cancelled."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future
