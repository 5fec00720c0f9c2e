"""The real environment of the HA core: asyncio, sockets, files.                                               Shell.

A replication link begins as an AMQP connection: the pure client does the handshake (`connector.py`), then the socket is
handed to the core's reactor, which parses everything that follows.  On the primary's side `ClientConnection` does the
handshake; `IncomingLink` adapts it to the interface of the HA core (`core_link.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ha.dial import Dial
from ha.model.environment import EXIT_TWIN, Answer, Exchanged, Json, Link, SalvageFile, StateNotStored
from ha.model.membership import HaState
from ha.model.public_url import public_address
from ha.model.salvaged import Header
from ha.model.settings import split_address
from ha.model.state_file import StateFile
from ha.node import Node
from ha.registry.worker import RegistryWorker
from ha.salvage.files import SalvageFiles
from ha.shell.asker import Asker
from ha.shell.connector import Connector
from ha.shell.consistent import consistently
from ha.shell.events import EventLog
from qpidd_py.broker.broker import Broker
from qpidd_py.core import Reactor

log = logging.getLogger("ha")

LIVE: Final = frozenset(
    (
        *("state", "promote_request", "promoted", "claim", "demote", "resumed", "relocate", "isolated"),
        *("membership", "primary_lost", "backup_connected", "backup_lost", "backup_late", "catchup_begin"),
        *("catchup_end", "salvage", "state_file", "stop_request", "identity_lost", "twin"),
    )
)
"""Kinds of events that are told to those who look on: what is said of the cluster, and not of clients and messages."""

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO + 5,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class ClusterEnvironment:
    """Implements `environment.Environment`; the plug-in sets `node` and `fail` as soon as both exist."""

    node: Node
    fail: Callable[[str, int], None]
    """Ends the process, with the reason."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        reactor: Reactor,
        dial: Dial,
        state_file: StateFile,
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._dial = dial
        self._state_file = state_file
        self._askers: dict[str, Asker] = {}
        self._connector = Connector(loop, broker.engine, reactor, self._run)
        self._stopped = False
        self.events: EventLog | None = None
        self.salvage_files = SalvageFiles(None, 0)
        self.registry: RegistryWorker | None = None
        """The manager's registry, set by the plug-in if there is one."""

    def stop(self) -> None:
        self._stopped = True
        for asker in self._askers.values():
            asker.close()
        self._connector.stop()
        if self.registry is not None:
            self.registry.stop()

    # ---- time -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> int:
        return time.time_ns() // 1000

    def after(self, delay: float, call: Callable[[], None]) -> None:
        if delay > 0:
            self._loop.call_later(delay, self._run, call)
        else:
            self._loop.call_soon(self._run, call)

    def _run(self, call: Callable[[], None]) -> None:
        if not self._stopped:
            consistently(call, "the HA core")

    # ---- other brokers --------------------------------------------------------------------------------------------

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        asker = self._askers.get(address)
        if asker is None:
            doors = partial(self._doors, address)
            asker = self._askers[address] = Asker(self._loop, address, self._dial, doors)
        asker.ask(method, arguments, timeout, lambda answer: self._run(lambda: done(answer)))

    def _doors(self, address: str) -> list[tuple[str, int]]:
        """Where else the broker at `address` may listen: ports that it has named, our own ones (members are configured
        alike) unless its host is ours, and its public address."""
        settings, (host, port) = self.node.local.settings, split_address(address)
        ports = {*self.node.local.cluster.ports.get(address, ())}
        if not is_own_host(host, settings.address):
            ports |= {*settings.ports}
        found = [(host, other) for other in sorted(ports)]
        public = public_address(address, settings.brokers, settings.public_url).removeprefix("tcp:")
        with suppress(ValueError):
            found.append(split_address(public))
        return [door for door in found if door != (host, port)]

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Link | Answer], None]
    ) -> None:
        self._connector.connect(self.node, address, self._dial, properties, timeout, done)

    # ---- stored state ---------------------------------------------------------------------------------------------

    def persist(self, state: HaState) -> None:
        try:
            self._state_file.store(state)
        except OSError as error:
            why = f"[Errno {error.errno}] {error.strerror}"  # without the path, which only some errors contain
            raise StateNotStored(f"{self._state_file} cannot be written: {why}") from error

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        assert self.registry is not None
        self.registry.exchange(state, timeout, lambda exchanged: self._run(lambda: done(exchanged)))

    def salvage(self, header: Header) -> SalvageFile:
        return self.salvage_files.begin(header)

    # ---- this broker ----------------------------------------------------------------------------------------------

    def close_clients(self, code: int, text: str) -> None:
        for connection in list(self._broker.connections):
            # `admit` decides about connections that have not sent connection.open yet.
            if connection.opened and (not connection.client.admin or connection.holds_messages):
                connection.close(code, text)

    def end(self, reason: str, code: int = EXIT_TWIN) -> None:
        self.fail(reason, code)

    def event(self, kind: str, **fields: Any) -> None:
        if self.events is not None:
            self.events.write(kind, **fields)
        if kind in LIVE:
            known = {name: value for name, value in fields.items() if value and name != "attrs"}
            attrs = {name: str(value) for name, value in fields.get("attrs", {}).items()}
            self._broker.events.note(f"ha.{kind}", **known, **({"attrs": attrs} if attrs else {}))

    def lost_events(self) -> tuple[int, str]:
        """How many events could not be written, and why the last one could not."""
        return (self.events.lost, self.events.trouble) if self.events is not None else (0, "")

    def log(self, level: str, text: str) -> None:
        log.log(LEVELS[level], "%s(%s) %s", self.node.local.id[:8], self.node.local.state.value, text)


def is_own_host(host: str, own: str) -> bool:
    """True if a broker at `host` runs on our machine, as far as the text tells; `own` is our address."""
    return host in ("localhost", "::1") or host.startswith("127.") or (bool(own) and host == split_address(own)[0])
