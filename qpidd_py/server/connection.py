"""One accepted TCP connection: the transport behind a `ClientConnection` whose socket the reactor serves.

The core owns the socket while the connection lives.  Closing is done here: closing a socket with unread input makes the
kernel send a reset, which can destroy the last output (the `connection.close` with the reason).  So the socket lingers:
its sending side is shut down, and input is discarded until the peer closes too or a timeout ends.
"""

import asyncio
import socket
from typing import Final

from qpidd_py.core import Connection, Reactor

DRAIN_TIME: Final = 2.0  # seconds that unsent output may take
DRAIN_POLL: Final = 0.02  # seconds between two checks of it
LINGER_TIME: Final = 1.0  # seconds we wait for the peer to close
_WASTE: Final = 65536


class PlainTransport:
    """The `SocketPort` of one client connection; `attach` gives it the core's connection once that exists."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reactor: Reactor, sock: socket.socket) -> None:
        self._loop = loop
        self._reactor = reactor
        self._socket = sock
        self._connection: Connection | None = None
        self.lingers = True
        """Whether it may stay for a while, with its descriptor, until the peer has read why it was closed."""

    def attach(self, connection: Connection) -> None:
        """Hands the socket to the reactor; input may arrive from the next turn on."""
        self._connection = connection
        self._reactor.add(connection, self._socket)

    def disconnect(self) -> None:
        """Called from inside a turn: output leaves at its end, so the socket is closed in the next one."""
        self._loop.call_soon(self._drain, self._loop.time() + DRAIN_TIME)

    def output_ready(self) -> None:
        """The reactor writes the output of connections with a descriptor."""

    @property
    def waiting(self) -> int:
        return 0

    def _drain(self, deadline: float) -> None:
        connection = self._connection
        if connection is None or connection.fd < 0:
            return  # the peer closed first
        if connection.backlog and self._loop.time() < deadline:
            self._loop.call_later(DRAIN_POLL, self._drain, deadline)
            return
        lingering = self._another() if self.lingers else None
        self._reactor.remove(connection)
        if lingering is not None:
            _linger(self._loop, lingering)

    def _another(self) -> socket.socket | None:
        try:
            return self._socket.dup()
        except OSError:
            return None  # there is no descriptor


def _linger(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    try:
        sock.setblocking(False)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        sock.close()  # the peer is gone already
        return
    descriptor = sock.fileno()

    def end() -> None:
        timer.cancel()
        if sock.fileno() >= 0:
            loop.remove_reader(descriptor)
            sock.close()

    def discard() -> None:
        try:
            if sock.recv(_WASTE):
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # a reset also ends it
        end()

    timer = loop.call_later(LINGER_TIME, end)
    loop.add_reader(descriptor, discard)
