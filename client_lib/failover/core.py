"""How a `FailoverChannel` ends and reports errors, and the sessions below it.

A channel is open until the program closes it, the broker closes it (404, 406 ...) or the connection gives up.  As in
pika the reason is raised once, by the next call; later calls raise ChannelWrongStateError.  A fail-over does not end a
channel.

With transactions there are two sessions: tx.select is not possible on a channel that confirms, so publishing, consuming
and acknowledging move to a transactional one, and the first one keeps the declarations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn, Protocol

import pika.exceptions

from client_lib.core.channel_worker import ChannelWorker
from client_lib.core.session_core import SessionCore
from client_lib.core.watcher import Watcher
from client_lib.errors import MessagingError, ServerError, TransactionError
from client_lib.failover.errors import translate
from client_lib.failover.inbox import Callback, Inbox
from client_lib.session import Session
from client_lib.steps import Steps

CLOSE_TIME = 5.0  # seconds for what is unsettled
PRECONDITION_FAILED = 406


class ConnectionOwner(Protocol):
    """The part of a FailoverConnection that its channels use, and programs by `channel.connection`."""

    inbox: Inbox
    publish_window: int | None
    publish_timeout: float | None
    drop_duplicates: bool | int

    def new_session(self, transactional: bool = False) -> Session: ...

    def dismiss(self, channel_number: int) -> None: ...

    @property
    def is_open(self) -> bool: ...

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown") -> None: ...

    def process_data_events(self, time_limit: float | None = 0) -> None: ...

    def sleep(self, duration: float) -> None: ...

    def call_later(self, delay: float, callback: Callback) -> int: ...

    def remove_timeout(self, timeout_id: int) -> None: ...

    def add_callback_threadsafe(self, callback: Callback) -> None: ...


class ChannelCore:
    """`ended` is called when the channel ends; `watcher` follows its sessions."""

    ended: Callable[[], None]
    watcher: Watcher

    def __init__(self, owner: ConnectionOwner, number: int) -> None:
        self.owner, self.number = owner, number
        self.declaring = self.session = owner.new_session()
        self.closed = False

    @property
    def working(self) -> SessionCore:
        """Of the session that publishes, consumes and acknowledges."""
        return self.session._waiting.core

    @property
    def transactional(self) -> bool:
        return self.session is not self.declaring

    def watch(self, watcher: Watcher) -> None:
        self.watcher = self._worker(self.session).watcher = watcher

    def begin_transactions(self) -> None:
        self.session = self.owner.new_session(transactional=True)
        self.watch(self.watcher)

    # -- the end

    def check_open(self) -> None:
        """Raises if the channel cannot be used: the first time the reason, then ChannelWrongStateError."""
        if not self.closed:
            if self.session is self.declaring and self._worker(self.session).ending.error is None:
                return
            reason = self.reason()
            if reason is None:
                return
            raise self.failed(reason) from reason
        raise pika.exceptions.ChannelWrongStateError("Channel is closed.")

    def raise_if_ended(self) -> None:
        """As check_open, but does not raise for a channel that the program closed itself."""
        if not self.closed:
            self.check_open()

    def reason(self) -> MessagingError | None:
        """The error that ended a session, or None; a lost transaction does not end one."""
        for session in self._sessions():
            try:
                self._worker(session).check()
            except TransactionError:
                continue
            except MessagingError as error:
                return error
        return None

    def forsake(self) -> None:
        """The connection is being closed, and does the rest."""
        self.closed = True
        self.ended()

    def end(self) -> None:
        """Raises, when the channel is closed, what was refused or is in doubt."""
        self.forsake()
        with contextlib.ExitStack() as stack:
            stack.callback(self.owner.inbox.poke)
            stack.callback(self.owner.dismiss, self.number)
            for session in reversed(self._sessions()):
                stack.callback(session.close, CLOSE_TIME)

    def _sessions(self) -> list[Session]:
        return [self.session, self.declaring] if self.transactional else [self.session]

    @staticmethod
    def _worker(session: Session) -> ChannelWorker:
        return session._waiting.worker

    # -- errors

    def failed(self, error: MessagingError) -> Exception:
        """The error to raise.  A close as the broker's answer ends the channel, and so does the end of its session."""
        if isinstance(error, ServerError) or self.reason() is not None:
            with contextlib.suppress(MessagingError):
                self.end()
        return translate(error)

    def refuse(self, text: str, cause: Exception | None = None) -> NoReturn:
        """Ends the channel with 406, as a broker would."""
        raise self.failed(ServerError(PRECONDITION_FAILED, text)) from cause

    def answer(self, future: Future[Any]) -> Any:
        """Waits for the answer to a command, over fail-overs."""
        try:
            return self.session._waiting.answer(future, None)
        except MessagingError as error:
            raise self.failed(error) from error

    def run(self, steps: Steps[Any]) -> Any:
        """The result of the steps."""
        try:
            return self.session._waiting.run(steps, None)
        except MessagingError as error:
            raise self.failed(error) from error
