"""A broker without reactor and processes: real connections behind a real socket, served by one thread.

For tests of tools that block.  `hooks` plays the HA module; `behaviour` spoils the connection on purpose.
"""

import selectors
import socket
import threading
from typing import Any

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.management.amqp_door import install


def closed_port() -> int:
    """Nothing listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Peer:
    """The transport of one connection."""

    waiting = 0

    def __init__(self, broker: Broker, connection: socket.socket) -> None:
        self.socket = connection
        self.ending = False
        self.connection = ClientConnection(broker, "test", self)

    def disconnect(self) -> None:
        self.ending = True

    def output_ready(self) -> None:
        pass


class SocketBroker:
    """A context manager; `address` is where it listens.  `greeting` is sent in place of AMQP, if not None."""

    def __init__(self, hooks: Any = None, greeting: bytes | None = None, authenticate: Any = None) -> None:
        extra = {"authenticate": authenticate} if authenticate else {}
        self.broker = Broker("fake", version="1", **extra)
        self.broker.hooks = hooks
        install(self.broker)
        self.greeting = greeting
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.seen: list[dict[str, Any]] = []
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "SocketBroker":
        self._selector.register(self.listener, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.close()
        self._thread.join(5)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is self:
                    return
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        if self.greeting is not None:
            connection.sendall(self.greeting)
        self._selector.register(connection, selectors.EVENT_READ, Peer(self.broker, connection))

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(65536)
        except OSError:
            data = b""
        if self.greeting is not None and data:
            return
        if data:
            peer.connection.core.feed(data)
            self.broker.engine.end_turn()
            self.seen.append(dict(peer.connection.client.properties))
            self._write(peer)
        if not data or peer.ending:
            self._selector.unregister(peer.socket)
            peer.connection.closed("end of file")
            peer.socket.close()

    def _write(self, peer: Peer) -> None:
        try:
            peer.socket.sendall(peer.connection.core.take_output())
        except OSError:
            peer.ending = True
