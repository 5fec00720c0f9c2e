"""What each broker says of itself, every 10 ms, asked on its own host: that works however the network is cut.   Shell.

A thread for each node keeps a management connection open.  Its socket is made in the node's network namespace; a
broker that dies closes it, so that no namespace outlives its node because of us.  A question costs the broker 0.1 ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from tests.pacemaker.primaries import Sample

INTERVAL: Final = 0.010
"""Seconds between two questions."""
AGAIN: Final = 0.020
"""Seconds between two attempts to connect."""
PATIENCE: Final = 1.0
"""Seconds for an answer."""
PORT: Final = 5672


class Place(Protocol):
    """A node, as far as it matters here."""

    name: str
    address: str

    def inside(self) -> AbstractContextManager[None]: ...


class Patience(Deadline):
    """A deadline for each request on a connection, not for the connection."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.renew()

    def renew(self) -> None:
        self._until = time.monotonic() + self.seconds

    def remaining(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Watcher:
    """One node."""

    def __init__(self, node: Place, login: Login, port: int = PORT) -> None:
        self.node = node
        self.samples: list[Sample] = []
        self._target = Target(node.address, port, login)
        self._run = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"sample {node.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def last(self, age: float = 0.5) -> Sample | None:
        """The newest answer, if it is not older than `age` seconds."""
        newest = self.samples[-1] if self.samples else None
        return newest if newest and _micro() - newest.answered < age * 1e6 else None

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                self._watch()
            except (OSError, BrokerError, ValueError):
                pass  # off, booting, hung, being killed: all of it is normal here
            self._end.wait(AGAIN)

    def _watch(self) -> None:
        """Until the connection breaks."""
        patience = Patience(PATIENCE)
        with self.node.inside():
            connection = ManagementSocket(self._target, patience)
        with connection:
            self._run += 1
            due = time.monotonic()
            while not self._end.is_set():
                patience.renew()
                self._ask(connection)
                due = max(due + INTERVAL, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))

    def _ask(self, connection: ManagementSocket) -> None:
        asked = _micro()
        found = connection.request("ha.query")
        if "epoch" not in found:
            return  # it reads its journal, and confirms nothing
        state, epoch, safe = str(found["status"]), int(found["epoch"]), int(found["safe"])
        self.samples.append(Sample(self.node.name, self._run, asked, _micro(), state, epoch, safe))


class Sampler:
    """All nodes."""

    def __init__(self, nodes: Sequence[Place], login: Login) -> None:
        self.watchers = [Watcher(node, login) for node in nodes]

    def start(self) -> None:
        for watcher in self.watchers:
            watcher.start()

    def stop(self) -> None:
        for watcher in self.watchers:
            watcher.stop()

    @property
    def samples(self) -> list[Sample]:
        return [sample for watcher in self.watchers for sample in list(watcher.samples)]

    def states(self) -> dict[str, str]:
        """Node → what its broker says now; "" when it does not answer."""
        return {watcher.node.name: (last.state if (last := watcher.last()) else "") for watcher in self.watchers}

    def primary(self) -> str:
        """The node whose broker is active, or ""."""
        return next((node for node, state in self.states().items() if state == "active"), "")

    def rate(self) -> float:
        """Median of the milliseconds between two answers of one broker, over all."""
        gaps = sorted(
            new.asked - old.asked
            for watcher in self.watchers
            for old, new in zip(watcher.samples, watcher.samples[1:], strict=False)
            if old.run == new.run
        )
        return gaps[len(gaps) // 2] / 1000 if gaps else 0.0


def _micro() -> int:
    return time.monotonic_ns() // 1000
