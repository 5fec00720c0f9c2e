"""Verifies passwords in threads, so that no client and no heartbeat waits for them.                            Shell.

`logins` decides what runs when.  The threads have a lower priority than the broker: when processors are scarce the
data path goes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from qpidd_py.amqp.sasl import SCRAM, Attempt, Decided, credentials
from qpidd_py.amqp.scram import ServerSide
from qpidd_py.security.logins import WORKERS, Lane, Logins, PendingLogin
from qpidd_py.security.refusals import Refusals, shown
from qpidd_py.security.users import Users, password_matches

log = logging.getLogger(__name__)

NICENESS: Final = 10


class Verifier:
    """The `Authenticate` of a broker."""

    def __init__(
        self, users: Users, loop: asyncio.AbstractEventLoop, guard: Callable[[Callable[[], None]], None]
    ) -> None:
        self._users = users
        self._logins = Logins(users)
        self._loop = loop
        self._guard = guard
        self._refusals = Refusals()
        self.on_refused: Callable[[str], None] = lambda line: None
        """Called with each line of the log about refused logins."""
        self._pool = ThreadPoolExecutor(WORKERS, "login", _step_back)
        self._scheduled: asyncio.Handle | None = None

    def __call__(self, attempt: Attempt, decided: Decided) -> None:
        now = self._loop.time()
        try:
            if attempt.mechanism == SCRAM:
                self._challenge(attempt, decided)
                return
            name, password = credentials(attempt.mechanism, attempt.response)
        except ValueError as error:
            self._malformed(attempt, decided, error)
            return
        waits = self._logins.submit(
            attempt.peer, name, password, partial(self._decided, attempt, name, decided), attempt.wanted, now
        )
        if waits:
            self._schedule(now)

    def _malformed(self, attempt: Attempt, decided: Decided, error: ValueError) -> None:
        what = f"malformed {attempt.mechanism} response: {error}"
        self._tell(self._refusals.refused(attempt.peer, what, self._loop.time()))
        decided(None)

    def _challenge(self, attempt: Attempt, decided: Decided) -> None:
        """Raises ValueError."""
        scram = ServerSide(attempt.response, os.urandom(18).hex())
        name, keys, _ = self._users.keys(scram.name)
        attempt.ask(scram.challenge(keys), partial(self._prove, attempt, scram, name, decided))

    def _prove(self, attempt: Attempt, scram: ServerSide, name: str, decided: Decided, response: bytes) -> None:
        try:
            final = scram.verify(response)
        except ValueError as error:
            self._malformed(attempt, decided, error)
            return
        _, keys, own = self._users.keys(scram.name)  # which may have changed meanwhile
        right = final is not None and own and keys == scram.keys

        def end(user: str | None) -> None:
            if user is None or final is None:
                self._decided(attempt, name, decided, None)
            else:
                attempt.ask(final, lambda last: self._decided(attempt, name, decided, None if last else user))

        now = self._loop.time()
        if self._logins.submit_proof(attempt.peer, name, right, end, attempt.wanted, now):
            self._schedule(now)

    def users_changed(self) -> None:
        self._logins.users_changed()

    def tick(self, now: float) -> None:
        self._tell(self._refusals.period(now))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _decided(self, attempt: Attempt, name: str, decided: Decided, user: str | None) -> None:
        if user is None:
            what = f"user {shown(name)} using {attempt.mechanism}"
            self._tell(self._refusals.refused(attempt.peer, what, self._loop.time()))
        decided(user)

    def _tell(self, lines: list[str]) -> None:
        for line in lines:
            log.warning("%s", line)
            self.on_refused(line)

    def _schedule(self, when: float) -> None:
        """`_run` is called once, at the earliest time that anybody asked for."""
        if self._scheduled is not None:
            if isinstance(self._scheduled, asyncio.TimerHandle) and self._scheduled.when() > when:
                self._scheduled.cancel()
            else:
                return
        self._scheduled = self._loop.call_at(when, self._guard, self._run)

    def _run(self) -> None:
        self._scheduled = None
        for lane, login in self._logins.run(self._loop.time()):
            log.debug("the password of user %s is verified", shown(login.name))
            self._pool.submit(self._verify, lane, login)
        if self._logins.pending:
            self._schedule(self._loop.time())
        elif self._logins.due is not None:
            self._schedule(self._logins.due)

    def _verify(self, lane: Lane, login: PendingLogin) -> None:
        """In a thread."""
        try:
            matches: bool | None = password_matches(login.password, login.stored)
        except (MemoryError, ValueError) as error:  # OpenSSL reports a lack of memory as the second one
            log.error("cannot verify a password: %s", error)
            matches = None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._guard, partial(self._verified, lane, login, matches))

    def _verified(self, lane: Lane, login: PendingLogin, matches: bool | None) -> None:
        now = self._loop.time()
        if matches is None:
            self._logins.failed(lane, login, now)
        else:
            self._logins.finished(lane, login, matches, now)
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._run()


def _step_back() -> None:
    with contextlib.suppress(OSError):  # then they have the broker's priority
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
