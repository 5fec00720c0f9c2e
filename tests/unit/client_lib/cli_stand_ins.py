"""A connection, session, sender and receiver for the tools, steered by the test; time stands still but for sleeps."""

from __future__ import annotations

import io
import json
from collections import deque
from typing import Any

from client_lib.cli.common import World
from client_lib.errors import InsufficientCapacity, Timeout


class FakeWorld(World):
    """Sleeping and fetching nothing take time; `stop_at` is when a signal comes."""

    def __init__(self) -> None:
        self.now, self.stop_at = 50.0, float("inf")
        super().__init__(lambda: self.now >= self.stop_at, io.BytesIO())
        self.clock = lambda: self.now
        self.wall_ns = lambda: 10**18
        self.sleep = self.pass_time
        self.slept = 0.0

    def pass_time(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.slept += seconds

    @property
    def printed(self) -> str:
        return self.out.getvalue().decode()  # type: ignore[attr-defined, no-any-return]

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.printed.splitlines()]


class FakeSession:
    """Everything sent is confirmed at sync(); `script` has what commit, send and fetch shall raise, in order."""

    def __init__(self, world: FakeWorld, transactional: bool) -> None:
        self.world, self.transactional = world, transactional
        self.did: list[Any] = []
        self.arriving: deque[Any] = deque()
        self.commit_script: deque[BaseException | None] = deque()
        self.settles = True
        self.senders: list[FakeSender] = []
        self.receiver_options: dict[str, Any] = {}

    def sender(self, address: str, **options: Any) -> FakeSender:
        self.senders.append(FakeSender(self, address, **options))
        return self.senders[-1]

    def receiver(self, address: str, **options: Any) -> FakeReceiver:
        self.receiver_options = {"address": address, **options}
        return FakeReceiver(self)

    def acknowledge(self, sync: bool = True) -> None:
        self.did.append("acknowledge")
        self.world.out.flush()

    def commit(self) -> None:
        error = self.commit_script.popleft() if self.commit_script else None
        if error is not None:
            raise error
        self.did.append("commit")

    def rollback(self) -> None:
        self.did.append("rollback")

    def sync(self, timeout: float) -> None:
        if not self.settles:
            self.world.pass_time(timeout)
            raise Timeout("not settled")
        for sender in self.senders:
            sender.settle()


class FakeSender:
    """`outcomes`: what becomes of messages at settle(), None = confirmed; `full`: how often there is no room."""

    def __init__(self, session: FakeSession, address: str, capacity: int = 1000, on_settled: Any = None) -> None:
        self.session, self.address, self.capacity, self._on_settled = session, address, capacity, on_settled
        self.sent: list[Any] = []
        self.script: deque[BaseException | None] = deque()
        self.outcomes: deque[Any] = deque()
        self._open: list[Any] = []

    def send(self, message: Any, sync: bool = True, timeout: float | None = None) -> None:
        error = self.script.popleft() if self.script else None
        if isinstance(error, InsufficientCapacity):
            assert timeout is not None
            self.session.world.pass_time(timeout)
        if error is not None:
            raise error
        self.sent.append(message)
        self.session.did.append(message.properties.get("sn", "message"))
        self._open.append(message)

    def settle(self) -> None:
        opened, self._open = self._open, []
        for message in opened:
            if self._on_settled is not None:
                self._on_settled(message, message.id, self.outcomes.popleft() if self.outcomes else None)


class FakeReceiver:
    """Gives what is in session.arriving: messages, errors, or a number of seconds in which nothing comes."""

    def __init__(self, session: FakeSession) -> None:
        self._session = session

    def poll(self, timeout: float) -> Any:
        arriving = self._session.arriving
        if not arriving or isinstance(arriving[0], float):
            self._session.world.pass_time(timeout)
            if arriving:
                arriving[0] -= timeout
                if arriving[0] <= 0:
                    arriving.popleft()
            return None
        found = arriving.popleft()
        if isinstance(found, BaseException):
            raise found
        return found


class FakeConnection:
    def __init__(self, world: FakeWorld) -> None:
        self.is_connected = True
        self.sessions: list[FakeSession] = []
        self._world = world

    def session(self, transactional: bool = False) -> FakeSession:
        self.sessions.append(FakeSession(self._world, transactional))
        return self.sessions[-1]
