"""Replication links over connections of the core (`environment.Link`), and the interface of their owners.      Shell.

`OutgoingLink` is the end that connected and receives the log.  `IncomingLink` is the other end: a client connection
that has become a link.  Backups and followers of single queues use both classes.
"""

from __future__ import annotations

from typing import Protocol

from ha.model.environment import Link
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import Batch, Connection, Engine, Reactor
from qpidd_py.errors import LinkError


class LinkOwner(Protocol):
    """Receives frames and closings: a node, a follower of a queue, or a source."""

    def link_frame(self, link: Link, kind: int, position: int, body: bytes) -> None: ...

    def link_batches(self, link: Link, position: int) -> None: ...

    def link_closed(self, link: Link, reason: str) -> None: ...


class Stream(Protocol):
    """Octets of a connection between the core and the kernel."""

    @property
    def waiting(self) -> int: ...


class OwnStream(Stream, Protocol):
    """The same, of a connection that we have opened."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class CoreLink:
    """A link over a core connection."""

    def __init__(self, connection: Connection, stream: Stream | None = None) -> None:
        """`stream` holds the socket if the reactor does not (TLS)."""
        self.connection = connection
        self._stream = stream

    @property
    def received(self) -> int:
        return self.connection.received

    @property
    def sent(self) -> int:
        return self.connection.sent

    @property
    def backlog(self) -> int:
        return self.connection.backlog + (self._stream.waiting if self._stream is not None else 0)

    def send_frame(self, kind: int, position: int, body: bytes) -> None:
        self.connection.send_frame(kind, position, body)

    def send_batch(self, batch: Batch) -> None:
        self.connection.send_batch(batch)

    def hold_batches(self, on: bool) -> None:
        self.connection.receives_batches = not on

    def close(self) -> None:
        raise NotImplementedError


class IncomingLink(CoreLink):
    """The primary's end: a client connection of the broker that has become a link (`hooks.LinkHandler`)."""

    def __init__(self, owner: LinkOwner, connection: ClientConnection) -> None:
        super().__init__(connection.core, connection.transport)
        self._told = owner
        self._accepted = connection
        self._over = False

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._accepted.close(320, "the replication link is closed")

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        if not self._over:
            self._told.link_frame(self, kind, position, body)

    def link_batches(self, position: int) -> None:
        raise LinkError("a backup has sent a batch")

    def closed(self, reason: str) -> None:
        if not self._over:
            self._over = True
            self._told.link_closed(self, reason)


class OutgoingLink(CoreLink):
    """The backup's end; owner of its core connection."""

    def __init__(self, owner: LinkOwner, engine: Engine, reactor: Reactor, stream: OwnStream | None = None) -> None:
        super().__init__(Connection(engine, self, True), stream)
        self._told = owner
        self._reactor, self._tls = reactor, stream
        self._over = False
        self.connection.switch_to_link(True)

    def close(self) -> None:
        if not self._over:
            self._over = True
            if self._tls is not None:
                self._tls.close()
            else:
                self._reactor.remove(self.connection)
            self.connection.close()

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        self._told.link_frame(self, kind, position, body)

    def link_batches(self, position: int) -> None:
        self._told.link_batches(self, position)

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        self._lost(text)

    def closed(self, reason: str) -> None:
        self._lost(reason)

    def output_ready(self) -> None:
        """Only called if the reactor does not serve the socket."""
        if self._tls is not None:
            self._tls.flush()

    def _lost(self, reason: str) -> None:
        if not self._over:
            self.close()
            self._told.link_closed(self, reason)
