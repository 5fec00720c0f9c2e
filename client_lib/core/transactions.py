"""The transactions of a session as steps for both APIs; `client_lib.core.transacting` runs them on the channel."""

from __future__ import annotations

from client_lib.core.channel_worker import ChannelWorker
from client_lib.core.senders import Senders
from client_lib.core.transacting import Transacting
from client_lib.core.transaction import Transaction, aborted
from client_lib.errors import NontransactionalSession, Timeout, TransactionError, TransactionUnknown
from client_lib.steps import Steps


class Transactions:
    """All methods may be called from any thread."""

    def __init__(self, worker: ChannelWorker, senders: Senders) -> None:
        self._worker, self._senders = worker, senders

    def committing(self) -> Steps[None]:
        """Raises TransactionAborted, TransactionUnknown, Timeout and, committed nevertheless, Returned."""
        transacting, transaction = self._require()
        future = transacting.start_commit()
        self._worker.wake()
        try:
            yield future
        except TransactionUnknown:
            with self._worker.monitor:
                transaction.told()
            raise
        except Timeout as late:
            if transacting.withdraw_commit(late):
                text = "not committed in time; nothing has happened, the transaction is still open"
                raise Timeout(text + self._worker.trouble) from None
            text = "the commit is sent and not answered; commit() again waits for its outcome"
            raise Timeout(text + self._worker.trouble) from None
        windows = self._senders.all()
        with self._worker.monitor:
            for window in windows:
                window.raise_failure()

    def rolling_back(self) -> Steps[None]:
        """A commit that cannot be taken back is waited for.  Raises TransactionError (committed), TransactionUnknown,
        Timeout."""
        transacting, transaction = self._require()
        commit = transacting.commit
        if commit is not None and not transacting.withdraw_commit(aborted("rolled back")):
            try:
                yield commit
            except TransactionUnknown:
                with self._worker.monitor:
                    transaction.told()
                raise
            raise TransactionError("too late: the transaction is committed")
        future = transacting.start_rollback()
        self._worker.wake()
        yield future

    def _require(self) -> tuple[Transacting, Transaction]:
        worker = self._worker
        if worker.ending.error is not None:
            raise worker.ending.error.with_traceback(None)
        if worker.transacting is None or worker.transaction is None:
            raise NontransactionalSession(f"session {worker.name} has no transactions: session(transactional=True)")
        return worker.transacting, worker.transaction
