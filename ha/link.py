"""The real environment of the HA core: asyncio, sockets, files.                                               Shell.

A replication link begins as an AMQP connection: the handshake is done here with the pure client, then the socket goes
to the core's reactor and everything that follows is parsed there.  On the primary's side the broker's session has
done the handshake; `IncomingLink` only lends it the form that the core of HA expects.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ha.asker import Asker
from ha.environment import Answer, Json, Link, Outcome
from ha.events import EventLog
from ha.membership import HaState
from ha.node import Node
from qpidd_py.amqp.client import ClientConnection, ClientHandshake, Closed, Login, Opened, VersionRefused
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.session import Session
from qpidd_py.core import Batch, Connection, Engine, Reactor
from qpidd_py.errors import AmqpError, InvariantError, LinkError

log = logging.getLogger("ha")

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO + 5,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT, an IPv6 host in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class CoreLink:
    """A link over a core connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def received(self) -> int:
        return self.connection.received

    @property
    def sent(self) -> int:
        return self.connection.sent

    @property
    def backlog(self) -> int:
        return self.connection.backlog

    def send_frame(self, kind: int, position: int, body: bytes) -> None:
        self.connection.send_frame(kind, position, body)

    def send_batch(self, batch: Batch) -> None:
        self.connection.send_batch(batch)

    def close(self) -> None:
        raise NotImplementedError


class IncomingLink(CoreLink):
    """The primary's end: a session of the broker that has become a link (`hooks.LinkHandler`)."""

    def __init__(self, node: Node, session: Session) -> None:
        super().__init__(session.connection)
        self._node = node
        self._session = session
        self._over = False

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._session.close(320, "the replication link is closed")

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        if not self._over:
            self._node.link_frame(self, kind, position, body)

    def link_batches(self, position: int) -> None:
        raise LinkError("a backup has sent a batch")

    def closed(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._node.link_closed(self, reason)


class OutgoingLink(CoreLink):
    """The backup's end; owner of its core connection."""

    def __init__(self, node: Node, engine: Engine, reactor: Reactor) -> None:
        super().__init__(Connection(engine, self, True))
        self._node = node
        self._reactor = reactor
        self._over = False
        self.connection.switch_to_link(True)

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._reactor.remove(self.connection)
            self.connection.close()

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        self._node.link_frame(self, kind, position, body)

    def link_batches(self, position: int) -> None:
        self._node.link_batches(self, position)

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        self._lost(text)

    def closed(self, reason: str) -> None:
        self._lost(reason)

    def output_ready(self) -> None:
        """Not called: the reactor serves the socket."""

    def _lost(self, reason: str) -> None:
        if not self._over:
            self.close()
            self._node.link_closed(self, reason)


class ClusterEnvironment:
    """What `environment.Environment` asks for; `node` is set by the plug-in right after both exist."""

    node: Node

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        reactor: Reactor,
        login: Login,
        state_file: Path | None,
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._reactor = reactor
        self._login = login
        self._state_file = state_file
        self._askers: dict[str, Asker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self.events: EventLog | None = None

    def stop(self) -> None:
        self._stopped = True
        for asker in self._askers.values():
            asker.close()
        for task in self._tasks:
            task.cancel()

    # ---- time -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def after(self, delay: float, call: Callable[[], None]) -> None:
        if delay > 0:
            self._loop.call_later(delay, self._run, call)
        else:
            self._loop.call_soon(self._run, call)

    def _run(self, call: Callable[[], None]) -> None:
        if self._stopped:
            return
        try:
            call()
        except InvariantError:
            raise
        except Exception as error:
            # A broker whose HA core is broken must not go on confirming: the loop's handler ends the process.
            raise InvariantError(f"in the HA core: {error!r}") from error

    # ---- other brokers --------------------------------------------------------------------------------------------

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        asker = self._askers.get(address)
        if asker is None:
            asker = self._askers[address] = Asker(self._loop, *split_address(address), self._login)
        asker.ask(method, arguments, timeout, lambda answer: self._run(lambda: done(answer)))

    def connect(
        self, address: str, properties: Mapping[str, object], timeout: float, done: Callable[[Link | Answer], None]
    ) -> None:
        task = self._loop.create_task(self._connect(address, properties, timeout, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(
        self, address: str, properties: Mapping[str, object], limit: float, done: Callable[[Link | Answer], None]
    ) -> None:
        client = ClientConnection(ClientHandshake(self._login, properties), stop_when_open=True)
        sock = None
        try:
            async with asyncio.timeout(limit):
                sock = await self._open_socket(address)
                answer = await self._handshake(client, sock)
        except (OSError, TimeoutError, AmqpError) as error:
            refused = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
            answer = Answer(Outcome.REFUSED if refused else Outcome.SILENT, error=str(error) or "no answer in time")
        except asyncio.CancelledError:
            if sock is not None:
                sock.close()
            raise
        if answer is not None:
            if sock is not None:
                sock.close()
            self._run(lambda: done(answer))
            return
        assert sock is not None
        self._hand_over(client, sock, done)

    async def _open_socket(self, address: str) -> socket.socket:
        host, port = split_address(address)
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, target = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await self._loop.sock_connect(sock, target)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _handshake(self, client: ClientConnection, sock: socket.socket) -> Answer | None:
        """None when the connection is open; raises OSError and AmqpError."""
        while True:
            if output := client.take_output():
                await self._loop.sock_sendall(sock, output)
            data = await self._loop.sock_recv(sock, 1 << 16)
            if not data:
                raise ConnectionResetError("closed during the handshake")
            for event in client.feed(data):
                if isinstance(event, Opened):
                    return None
                if isinstance(event, Closed | VersionRefused):
                    text = event.reply_text if isinstance(event, Closed) else str(event)
                    with contextlib.suppress(OSError):
                        sock.send(client.take_output())
                    return Answer(Outcome.ANSWERED, error=text)

    def _hand_over(self, client: ClientConnection, sock: socket.socket, done: Callable[[Link | Answer], None]) -> None:
        link = OutgoingLink(self.node, self._broker.engine, self._reactor)
        self._reactor.add(link.connection, sock)

        def begin() -> None:
            done(link)
            rest = client.left_over()
            if rest:
                link.connection.feed(rest)

        self._run(begin)

    # ---- what is kept ---------------------------------------------------------------------------------------------

    def persist(self, state: HaState) -> None:
        """Replaces the file as a whole.  Raises InvariantError, which ends the process, when the disk does not take it:
        a vote that cannot be kept must not be given."""
        if self._state_file is None:
            return
        try:
            self._replace(self._state_file, state)
        except OSError as error:
            raise InvariantError(f"{self._state_file} cannot be written: {error}") from error

    @staticmethod
    def _replace(path: Path, state: HaState) -> None:
        temporary = path.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump(state.to_json(), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # ---- this broker ----------------------------------------------------------------------------------------------

    def close_clients(self, code: int, text: str) -> None:
        for session in list(self._broker.sessions):
            if session.link is None and (not session.admin or session.holds_messages):
                session.close(code, text)

    def event(self, kind: str, **fields: Any) -> None:
        if self.events is not None:
            self.events.write(kind, **fields)

    def log(self, level: str, text: str) -> None:
        log.log(LEVELS[level], "%s(%s) %s", self.node.id[:8], self.node.state.value, text)
