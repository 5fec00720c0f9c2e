"""Opens a socket: TCP to one IP address, then TLS if it is wanted (shell; in the loop's thread).

The result is told once, later: never while `start` runs.  No timeout: the planner keeps the time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from client_lib.connecting.proposal import Parameters, TlsOptions
from client_lib.connecting.services import Services


@dataclass(frozen=True)
class Result:
    """Who is told: `reached` when there is a TCP connection, then one of `opened` and `failed`."""

    reached: Callable[[], None]
    opened: Callable[[socket.socket], None]
    failed: Callable[[BaseException], None]


def kernel_address(ip: str, port: int) -> tuple[Any, ...]:
    """Family, type, protocol, name, and what connect(2) takes; the zone of an IPv6 address is a number there."""
    found = socket.getaddrinfo(ip, port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_NUMERICHOST)
    *kind, where = found[0]
    return (*kind, (str(where[0]).partition("%")[0], *where[1:]))


class Opening:
    """One attempt."""

    def __init__(self, parameters: Parameters, services: Services, result: Result) -> None:
        self._parameters, self._services, self._result = parameters, services, result
        self._sock: socket.socket | None = None
        self._over = False

    def start(self, ip: str, port: int) -> None:
        try:
            family, kind, protocol, _, where = kernel_address(ip, port)
            self._sock = sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            if self._parameters.tcp_nodelay:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(BlockingIOError):
                sock.connect(where)
            self._services.set_writer(sock.fileno(), self._connected)
        except (OSError, ValueError, OverflowError) as error:  # no such family, no descriptor left, refused at once
            failure = error
            self._services.add_callback_threadsafe(lambda: self._fail(failure))

    def _connected(self) -> None:
        assert self._sock is not None
        number = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._services.remove_writer(self._sock.fileno())
        if number:
            self._fail(OSError(number, os.strerror(number)))
            return
        self._result.reached()
        if self._over:
            return
        if self._parameters.ssl_options is None:
            self._finish()
        else:
            self._begin_tls(self._sock, self._parameters.ssl_options)

    def _begin_tls(self, sock: socket.socket, options: TlsOptions) -> None:
        try:
            self._sock = options.context.wrap_socket(
                sock,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
                server_hostname=options.server_hostname,
            )
        except (OSError, ValueError) as error:  # the peer has gone again already
            self._fail(error)
            return
        self._shake_hands()

    def _shake_hands(self) -> None:
        sock = self._sock
        assert isinstance(sock, ssl.SSLSocket)
        self._unwatch()
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._services.set_reader(sock.fileno(), self._shake_hands)
        except ssl.SSLWantWriteError:
            self._services.set_writer(sock.fileno(), self._shake_hands)
        except (OSError, ValueError) as error:
            self._fail(error)
        else:
            self._finish()

    def _finish(self) -> None:
        sock, self._sock = self._sock, None
        self._over = True
        if sock is not None:
            self._result.opened(sock)

    def _fail(self, error: BaseException) -> None:
        if not self._over:
            self.abort()
            self._result.failed(error)

    def abort(self) -> None:
        """Nothing is told any more."""
        self._over = True
        if self._sock is not None:
            self._unwatch()
            self._sock.close()
            self._sock = None

    def forget(self) -> None:
        """In a child after fork(2): closes our copy of the socket."""
        self._over = True
        if self._sock is not None:
            with contextlib.suppress(OSError):
                os.close(self._sock.detach())

    def _unwatch(self) -> None:
        if self._sock is not None and self._sock.fileno() >= 0:
            self._services.remove_reader(self._sock.fileno())
            self._services.remove_writer(self._sock.fileno())
