"""Accepts sockets and makes a `ClientConnection` for each; plain ones go to the reactor, TLS ones to asyncio."""

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.limits import RESERVED
from qpidd_py.broker.ports import SocketPort
from qpidd_py.config import BrokerSettings, NetworkSettings
from qpidd_py.core import Reactor
from qpidd_py.logrules import Floods
from qpidd_py.option_values import Address
from qpidd_py.security.logins import origin
from qpidd_py.server.connection import PlainTransport
from qpidd_py.server.descriptors import Descriptors
from qpidd_py.server.newcomers import Newcomers
from qpidd_py.server.tls import TlsConnection, TlsFailures

log = logging.getLogger(__name__)

ACCEPTS: Final = 16
"""Connections taken in one turn of the loop.  Each brings three reads and 0.1 ms of work: in a storm of logins other
clients wait for the logins of some turns, so few are under way and the others stay in the system's queue."""
HANDSHAKES: Final = 500
"""TLS handshakes under way.  Each has buffers of 300 KiB before its peer has said anything; see `Newcomers`."""
GRACE: Final = 1.0
"""Seconds after which we end a handshake that asyncio, which says why, has not ended."""
PAUSE: Final = 0.5  # seconds without accepting when the process is out of descriptors
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Handshake:
    """Of TLS."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task

    @property
    def negotiating(self) -> bool:
        return not self.task.done()


class Listener:
    """The open ports of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
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
        self._sockets: dict[socket.socket, ssl.SSLContext | None] = {}
        self._handshakes: Newcomers[Handshake] = Newcomers(HANDSHAKES, network.max_negotiate_time + GRACE)
        self._failures = TlsFailures(loop.time)
        self._pending: set[TlsConnection] = set()
        self._newcomers: Newcomers[ClientConnection] = Newcomers(network.max_newcomers, network.max_negotiate_time)
        self._floods = Floods(log)
        self._descriptors = Descriptors(broker.alarm)
        self._scarce: deque[ClientConnection] = deque()  # not logged in, with a descriptor of the reserve

    def open(self, sockets: list[socket.socket], context: ssl.SSLContext | None = None) -> None:
        """Accept connections on these listening sockets from now on, with TLS if there is a `context`."""
        for sock in sockets:
            self._sockets[sock] = context
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def retune(self, network: NetworkSettings, limits: BrokerSettings) -> None:
        """For the connections to come."""
        self._network, self._limits = network, limits
        self._newcomers.retune(network.max_newcomers, network.max_negotiate_time)
        self._handshakes.retune(HANDSHAKES, network.max_negotiate_time + GRACE)

    def close(self) -> None:
        """Accept nothing more; connections stay."""
        for sock in self.leave():
            sock.close()

    def leave(self) -> list[socket.socket]:
        """The same, and the sockets stay open: who connects waits."""
        left = list(self._sockets)
        for sock in left:
            self._loop.remove_reader(sock.fileno())
        self._sockets.clear()
        return left

    def tick(self, now: float) -> None:
        """Ends handshakes that take too long."""
        self._descriptors.tick(now)
        for handshake in self._handshakes.late(now):
            handshake.task.cancel()
        for connection in self._newcomers.late(now):
            log.info("%r: no connection.open within %g s", connection, self._network.max_negotiate_time)
            connection.close(320, "handshake timed out")
        self._floods.tick(now)
        for tls in [*self._pending]:
            tls.look()

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
            context = self._sockets.get(listening)
            if context is None:
                self._accept_plain(sock, str(Address(*peer[:2])))
            else:
                self._accept_encrypted(sock, context, Address(*peer[:2]))
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

    def _accept_encrypted(self, sock: socket.socket, context: ssl.SSLContext, peer: Address) -> None:
        room, oldest = self._handshakes.room(origin(str(peer)))
        if oldest is not None:
            oldest.task.cancel()
        if not room:
            text = "connection refused: from %s, %d TLS handshakes are under way, many of them from there"
            self._floods.write(logging.WARNING, text, peer, len(self._handshakes))
            sock.close()
            return
        task = self._loop.create_task(self._shake_hands(sock, context, *peer[:2]))
        self._handshakes.add(origin(str(peer)), Handshake(task), self._loop.time())

    async def _shake_hands(self, sock: socket.socket, context: ssl.SSLContext, host: str, port: int) -> None:
        try:
            sock.setblocking(False)
            if self._network.tcp_nodelay:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self.tls_protocol,
                sock,
                ssl=context,
                ssl_handshake_timeout=self._network.max_negotiate_time,
            )
        except OSError as error:
            sock.close()
            self._failures.failed(host, port, error)

    def tls_protocol(self) -> TlsConnection:
        """For the next TLS connection."""
        return TlsConnection(self._accept_tls, self._guard, self._pending)

    def _accept_tls(self, peer: str, transport: TlsConnection) -> ClientConnection | None:
        return self._new_connection(peer, transport, transport.descriptor)

    def _new_connection(self, peer: str, transport: SocketPort, descriptor: int) -> ClientConnection | None:
        now, scarce = self._loop.time(), self._descriptors.scarce(descriptor)
        if (reason := self._refusal(peer, descriptor)) != "":
            self._floods.write(logging.WARNING, "connection refused: from %s, %s", peer, reason)
            return None
        connection = ClientConnection(self._broker, peer, transport)
        connection.scarce = scarce
        if scarce:
            self._scarce.append(connection)
        connection.handshake.channel_max = self._limits.channel_max or 65535
        connection.handshake.frame_max = self._limits.frame_max
        self._newcomers.add(origin(peer), connection, now)
        return connection

    def _refusal(self, peer: str, descriptor: int) -> str:
        """Why it is not taken, since nothing is left to find out whether it may open (`broker/limits.py`); empty if it
        is."""
        most = self._network.max_connections
        if most and len(self._broker.connections) >= most + 2 * RESERVED:
            return f"{len(self._broker.connections)} are open, max-connections allows {most}"
        if not self._has_descriptor(descriptor):
            return "there are no file descriptors"
        room, oldest = self._newcomers.room(origin(peer))
        if oldest is not None:
            oldest.close(320, "too many connections from its address are not logged in")
        return "" if room else f"{len(self._newcomers)} are not logged in, many of them from there (max-newcomers)"

    def _has_descriptor(self, descriptor: int) -> bool:
        """Of those with a descriptor of the reserve, the one that began its handshake first gives way to the next."""
        descriptors, waiting = self._descriptors, self._scarce
        while waiting and not waiting[0].negotiating:
            waiting.popleft()
        if descriptor < descriptors.scarce_from or len(waiting) < descriptors.full_from - descriptors.scarce_from:
            return descriptor < descriptors.full_from
        oldest = waiting.popleft()
        if isinstance(oldest.transport, PlainTransport):
            oldest.transport.lingers = False
        oldest.close(320, "others wait for a connection")
        return True


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


def bound_addresses(sockets: list[socket.socket], tls: bool = False) -> list[Address]:
    return [Address(*sock.getsockname()[:2])._replace(tls=tls) for sock in sockets]


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
