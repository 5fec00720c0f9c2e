"""Accepts sockets and makes a `ClientConnection` for each; plain ones go to the reactor, TLS ones to asyncio."""

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qpidd_py.broker.client_connection import ClientConnection, State, Transport
from qpidd_py.broker.limits import RESERVED
from qpidd_py.config import Address, BrokerSettings, NetworkSettings
from qpidd_py.server.connection import PlainTransport
from qpidd_py.server.descriptors import Descriptors
from qpidd_py.server.tls import TlsConnection

if TYPE_CHECKING:
    from qpidd_py.broker.broker import Broker
    from qpidd_py.core import Reactor

log = logging.getLogger(__name__)

ACCEPTS: Final = 64  # connections taken in one turn
PAUSE: Final = 0.5  # seconds without accepting when the process is out of descriptors
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """The open ports of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: "Broker",
        reactor: "Reactor",
        network: NetworkSettings,
        limits: BrokerSettings,
        guard: Callable[[Callable[[], None]], None],
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._reactor = reactor
        self._network = network
        self._limits = limits
        self._guard = guard
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._tls: set[TlsConnection] = set()
        self._negotiating: deque[tuple[float, ClientConnection]] = deque()
        self._descriptors = Descriptors(broker.alarm)
        self._scarce: deque[ClientConnection] = deque()  # in their handshake, with a descriptor of the reserve

    def open(self, sockets: list[socket.socket]) -> None:
        """Accept plain connections on these listening sockets from now on."""
        for sock in sockets:
            self._sockets.append(sock)
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    async def open_tls(self, sockets: list[socket.socket], context: ssl.SSLContext) -> None:
        for sock in sockets:
            server = await self._loop.create_server(
                lambda: TlsConnection(self._accept_tls, self._guard),
                sock=sock,
                ssl=context,
                ssl_handshake_timeout=self._network.max_negotiate_time,
            )
            self._servers.append(server)

    def close(self) -> None:
        """Accept nothing more; connections stay."""
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        for server in self._servers:
            server.close()
        self._sockets.clear()
        self._servers.clear()

    def tick(self, now: float) -> None:
        """Ends handshakes that take too long.  All have the same time limit, so the oldest is first."""
        self._descriptors.tick(now)
        waiting = self._negotiating
        while waiting and (waiting[0][0] <= now or waiting[0][1].state is not State.HANDSHAKE):
            _, connection = waiting.popleft()
            if connection.state is State.HANDSHAKE:
                limit = self._network.max_negotiate_time
                log.info("%r: no connection.open within %g s", connection, limit)
                connection.close(320, "handshake timed out")
        for tls in self._tls:
            tls.look()
        self._tls = {tls for tls in self._tls if not tls.closed}

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._cannot_accept(listening, error)
                return
            scarce = self._descriptors.scarce(sock.fileno())
            self._accept_plain(sock, f"{peer[0]}:{peer[1]}")
            if scarce:
                return  # who gives way is closed before the next one is taken

    def _cannot_accept(self, listening: socket.socket, error: OSError) -> None:
        if not self._descriptors.alarmed:
            log.error("cannot accept a connection: %s", error)
        if error.errno in _OUT_OF_RESOURCES:
            self._descriptors.out()
            # The connection stays pending, and asyncio would call us again in a tight loop.
            self._loop.remove_reader(listening.fileno())
            self._loop.call_later(PAUSE, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept_plain(self, sock: socket.socket, peer: str) -> None:
        try:
            sock.setblocking(False)
            if self._network.tcp_nodelay:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()  # it was reset before it was accepted
            return
        transport = PlainTransport(self._loop, self._reactor, sock)
        connection = self._new_connection(peer, transport, sock.fileno())
        if connection is None:
            sock.close()
        else:
            self._guard(lambda: transport.attach(connection.core))

    def _accept_tls(self, peer: str, transport: TlsConnection) -> ClientConnection | None:
        connection = self._new_connection(peer, transport, transport.fileno())
        if connection is not None:
            self._tls.add(transport)
        return connection

    def _new_connection(self, peer: str, transport: Transport, descriptor: int) -> ClientConnection | None:
        """None if there is nothing left to find out whether it may open (`broker/limits.py`)."""
        most, scarce = self._network.max_connections, self._descriptors.scarce(descriptor)
        crowded = bool(most) and len(self._broker.connections) >= most + 2 * RESERVED
        while self._scarce and self._scarce[0].state is not State.HANDSHAKE:
            self._scarce.popleft()
        if scarce and len(self._scarce) >= self._descriptors.full_from - self._descriptors.scarce_from:
            self._make_way(self._scarce.popleft())
        elif crowded or descriptor >= self._descriptors.full_from:
            log.warning("connection from %s refused: %d are open", peer, len(self._broker.connections))
            return None
        connection = ClientConnection(self._broker, peer, transport)
        connection.scarce = scarce
        if scarce:
            self._scarce.append(connection)
        connection.handshake.channel_max = self._limits.channel_max or 65535
        connection.handshake.frame_max = self._limits.frame_max
        self._negotiating.append((self._loop.time() + self._network.max_negotiate_time, connection))
        return connection

    def _make_way(self, connection: ClientConnection) -> None:
        """The one that began its handshake first gives way to the next."""
        if isinstance(connection.transport, PlainTransport):
            connection.transport.lingers = False
        connection.close(320, "others wait for a connection")


def listening_sockets(interfaces: tuple[str, ...], port: int, backlog: int) -> list[socket.socket]:
    """Non-blocking listening sockets, all on one port; `OSError` names the address that failed."""
    sockets: list[socket.socket] = []
    try:
        for interface in interfaces or ("0.0.0.0", "::"):
            for address in _resolve(interface, port):
                if not port and sockets:
                    address = (*address[:1], sockets[0].getsockname()[1], *address[2:])
                try:
                    sockets.append(_listen(address, backlog))
                except OSError as error:
                    if interface == "::" and not interfaces:
                        log.debug("not listening on IPv6: %s", error)  # many machines have none
                        continue
                    raise OSError(error.errno, f"{address[0]}:{address[1]}: {error.strerror}") from None
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def bound_addresses(sockets: list[socket.socket]) -> list[Address]:
    return [Address(*sock.getsockname()[:2]) for sock in sockets]


def _resolve(interface: str, port: int) -> list[tuple[str, int]]:
    try:
        found = socket.getaddrinfo(interface, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"interface {interface!r}: {error.strerror}") from None
    return [item[4] for item in found]  # type: ignore[misc]


def _listen(address: tuple[str, int], backlog: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
