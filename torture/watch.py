"""What the brokers say of themselves, asked on their own hosts as a resource manager's agents do.  Shell.

The agent of a host reaches its broker whatever the network does.  A paused broker does not answer; what it said last
stays with its age.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ha.model.status import RECOVERING_JOURNAL
from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, Target
from torture.brokers import PASSWORD, PORT, USER, Broker

INTERVAL: Final = 0.25
"""Seconds between two questions."""
PATIENCE: Final = 1.0
"""Seconds for an answer."""
TROUBLE: Final = (OSError, BrokerError)


class RequestFailed(Exception):
    """A request was refused or not answered; the text is the broker's or the socket's."""


def request(broker: Broker, method: str, timeout: float, **arguments: Any) -> Any:
    """One request over a connection of its own.  Raises RequestFailed."""
    target = Target(broker.host.address, PORT, Login(USER, PASSWORD, "PLAIN"))
    try:
        with broker.host.inside():
            connection = ManagementSocket(target, Deadline(timeout))
        with connection:
            return connection.request(method, arguments)
    except TROUBLE as error:
        raise RequestFailed(f"{broker.name}: {error}") from None


@dataclass(frozen=True)
class View:
    """One answer to `ha.query`; `at` is the monotonic second at which it was asked for.  A broker that is still reading
    its journal answers with few facts."""

    at: float = -1e9
    facts: Mapping[str, Any] | None = None

    @property
    def state(self) -> str:
        return str(self.facts["status"]) if self.facts else ""

    @property
    def is_primary(self) -> bool:
        return self.state in ("recovering", "active")

    @property
    def reads_journal(self) -> bool:
        """It takes part in nothing, and cannot be promoted yet."""
        return self.state == RECOVERING_JOURNAL

    @property
    def whole(self) -> bool:
        return bool(self._fact("whole", False))

    @property
    def id(self) -> str:
        return str(self._fact("broker_id", ""))

    @property
    def position(self) -> int:
        return int(self._fact("position", 0))

    @property
    def epoch(self) -> int:
        return int(self._fact("epoch", 0))

    @property
    def set_key(self) -> tuple[int, str, int]:
        found = self._fact("in_sync", {})
        return int(found.get("epoch", 0)), str(found.get("leader", "")), int(found.get("version", 0))

    @property
    def set_ids(self) -> frozenset[str]:
        members = self._fact("in_sync", {}).get("members", ())
        return frozenset(str(member["id"]) for member in members)

    def _fact(self, name: str, otherwise: Any) -> Any:
        return self.facts.get(name, otherwise) if self.facts else otherwise


def look(broker: Broker, timeout: float = PATIENCE) -> View:
    """Asks now; a view without facts when there is no answer."""
    now = time.monotonic()
    try:
        return View(now, request(broker, "ha.query", timeout))
    except RequestFailed:
        return View()


class Watch:
    """Asks one broker again and again, in a thread of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.view = View()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {broker.name}", daemon=True)
        self._thread.start()

    def fresh(self, age: float = 1.5) -> View:
        """The last answer, or a view without facts when it is older than `age` seconds or the broker cannot answer."""
        view = self.view
        return view if self.broker.responsive and time.monotonic() - view.at <= age else View()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(INTERVAL):
            if not self.broker.responsive:
                continue
            view = look(self.broker)
            if view.facts is not None:
                self.view = view
