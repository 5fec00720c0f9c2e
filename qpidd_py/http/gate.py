"""Which requests may go to the broker now: a broker takes its time over a wrong password, and each of them holds a
thread.                                                                                                         Shell.

A login that the broker has accepted lately goes straight on.  Of all others `UNPROVEN` are tried at a time, of one
address `OF_ADDRESS`, and `WAITING` of it wait; more are refused (429).  So guesses delay no user who has logged in
before, and those from one address no other address.  The broker judges every request all the same.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.http.door import Problem, WrongLogin

UNPROVEN: Final = 8
"""Logins that are tried at a time; half of the threads are left for the others."""
OF_ADDRESS: Final = 2
"""Of one address."""
WAITING: Final = 16
"""Others of that address that wait."""
REMEMBERED: Final = 1000
"""Logins that were accepted last."""


class Gate:
    """Of one server; used by its loop only."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        self._places = asyncio.Semaphore(UNPROVEN)
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def passed(self, login: Login, address: str) -> AsyncIterator[None]:
        """For the time of one request.  Raises Problem, also that of the request."""
        name = self._name(login)
        async with self._turn(name, address):
            try:
                yield
            except WrongLogin:
                self._proven.pop(name, None)
                raise
            except Problem as problem:
                if problem.judged:  # others say nothing of the login: it may not have come to the broker
                    self._learn(name)
                raise
        self._learn(name)

    def _name(self, login: Login) -> bytes:
        """It tells logins apart, and nobody can tell the password by it."""
        user = login.user.encode()
        return hmac.digest(self._secret, len(user).to_bytes(4) + user + login.password.encode(), "sha256")

    def _learn(self, name: bytes) -> None:
        self._proven[name] = None
        self._proven.move_to_end(name)
        if len(self._proven) > REMEMBERED:
            self._proven.popitem(last=False)

    @asynccontextmanager
    async def _turn(self, name: bytes, address: str) -> AsyncIterator[None]:
        if name in self._proven:
            yield
            return
        lane = self._lanes.setdefault(address, _Lane())
        with lane.queued():
            try:
                async with lane.places, self._places:
                    yield
            finally:
                if lane.requests == 1:
                    del self._lanes[address]


class _Lane:
    """The logins of one address that are not proven."""

    def __init__(self) -> None:
        self.requests = 0
        self.places = asyncio.Semaphore(OF_ADDRESS)

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Raises Problem."""
        if self.requests >= OF_ADDRESS + WAITING:
            raise Problem(429, "too_many_requests", f"{self.requests} logins of this address are being tried")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
