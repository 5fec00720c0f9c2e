"""A broker outside of the cluster, a shovel to it and a dynamic route from it, and what serves them.             Shell.

The broker has a journal: it may be killed at any time.  Shovel and route are parameters of the cluster, so a
`qpid-shovel` runs beside each of its brokers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

from qpidd_py.cli import qpid_route
from testkit import queues
from torture.brokers import PASSWORD, PORT, USER, Broker, Exit, die_with_parent
from torture.decisions import exchange_of
from torture.moved import declare_bound, declare_exchange
from torture.network import Host
from torture.watch import RequestFailed, request

RESTART: Final = 1.0


def _queue(kind: str) -> str:
    """As the load has it (`context.py`)."""
    return f"torture.{kind}"


LANDED: Final = _queue(queues.LANDED)


class Shovel:
    """The process beside one broker."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.name = f"shovel of {broker.name}"
        self.broker = broker
        self.log_file = directory / f"shovel-{broker.name}.log"
        self.held_down = 0
        """The number of faults that keep it dead."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """From the main thread only: the process dies with the thread that has started it."""
        if self.held_down or self.running:
            return
        address = f"{USER}/{PASSWORD}@{self.broker.address}"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("QPID_")}
        with self.log_file.open("ab") as log, self.broker.host.inside():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "qpidd_py.shovel.main", "-b", address, "--timeout", "2"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def release(self) -> None:
        """It is started again at the next tick."""
        self.held_down -= 1

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Routes:
    """All of it; from the main thread."""

    def __init__(
        self, host: Host, brokers: Sequence[Broker], directory: Path, users: Path, login: str, exits: list[Exit]
    ) -> None:
        """`login`: of clients, USER/PASSWORD, as the file `users` has it."""
        words = ["--journal", "yes", "--heartbeat", "2", "--user-file", str(users), "--federation-tag", "far"]
        self.far = Broker("far", host, directory, words, exits)
        self.shovels = [Shovel(broker, directory) for broker in brokers]
        self._login = login
        self._made = False

    def start(self) -> None:
        """The broker and the programs; again, what has died and no fault holds down."""
        self.far.collect()
        dead = not self.far.running and not self.far.held_down
        if dead and time.monotonic() - self.far.died > RESTART:
            self.far.start("")
        for shovel in self.shovels:
            shovel.start()

    def at_work(self, primary: Broker | None, clients: Host) -> bool:
        """Asked until it is true: makes shovel and route first."""
        if primary is None or not self.far.responsive:
            return False
        if not self._made:
            self._made = self._make(primary, clients)
            return False
        return self._running(primary) and self._bound()

    def close(self) -> None:
        for shovel in self.shovels:
            shovel.kill()
        self.far.terminate()
        self.far.ended(5.0)

    # ---- parts

    def _make(self, primary: Broker, clients: Host) -> bool:
        try:
            self._declare(primary, clients, declare_bound)
            self._declare(self.far, clients, declare_exchange)
            request(primary, "parameter.set", 3.0, component="shovel", name="ship", value=self._shovel())
        except (RequestFailed, pika.exceptions.AMQPError, OSError):
            return False
        near, far = f"{USER}/{PASSWORD}@{primary.address}", f"{self._login}@{self.far.address}"
        with primary.host.inside(), redirect_stdout(StringIO()):
            return not qpid_route.main(["-q", "dynamic", "add", near, far, exchange_of(LANDED)])

    def _declare(self, broker: Broker, clients: Host, declare: Callable[[BlockingChannel, str], None]) -> None:
        user, _, password = self._login.partition("/")
        credentials = pika.PlainCredentials(user, password)
        with clients.inside():
            connection = pika.BlockingConnection(
                pika.ConnectionParameters(broker.host.address, PORT, credentials=credentials)
            )
            declare(connection.channel(), LANDED)
            connection.close()

    def _shovel(self) -> dict[str, Any]:
        login = self._login.replace("/", ":")
        ends = {"src-uri": "amqp://", "dest-uri": f"amqp://{login}@{self.far.address}"}
        return {**ends, "src-queue": _queue(queues.SHIP), "dest-queue": _queue(queues.SHIPPED)}

    def _running(self, primary: Broker) -> bool:
        try:
            found: Any = request(primary, "shovel.list", 3.0)
        except RequestFailed:
            return False
        return [each["state"] for each in found] == ["running", "running"]

    def _bound(self) -> bool:
        """The exchange at the far end leads into the queue of the route."""
        try:
            found: Any = request(self.far, "binding.list", 3.0)
        except RequestFailed:
            return False
        return any(each["source"] == exchange_of(LANDED) for each in found)
