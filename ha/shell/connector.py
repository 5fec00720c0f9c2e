"""Opens replication links: AMQP handshake with the pure client, then hand-over of the socket to the core.    Shell.

A link over TLS stays with asyncio (`tls_link.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping

from ha.dial import Dial, why
from ha.model.environment import Answer, Link, Outcome
from ha.model.settings import split_address, uses_tls
from ha.shell.core_link import LinkOwner, OutgoingLink
from ha.shell.tls_link import TlsStream
from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import ClientHandshake, Closed, Opened, VersionRefused
from qpidd_py.core import Engine, Reactor
from qpidd_py.errors import AmqpError

Done = Callable[[Link | Answer], None]


class Connector:
    """Opens links for one user of links; `run` guards calls from the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        reactor: Reactor,
        run: Callable[[Callable[[], None]], None],
    ) -> None:
        self._loop, self._engine, self._reactor, self._run = loop, engine, reactor, run
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Cancel attempts under way; their callbacks are not called."""
        for task in self._tasks:
            task.cancel()

    def connect(
        self,
        owner: LinkOwner,
        address: str,
        dial: Dial,
        properties: Mapping[str, object],
        timeout: float,
        done: Done,
    ) -> None:
        """See `Environment.connect`; `owner` receives what arrives over the link."""
        client = AmqpClient(ClientHandshake(dial.login, properties), stop_when_open=True)
        task = self._loop.create_task(self._connect(owner, address, client, dial, timeout, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(
        self, owner: LinkOwner, address: str, client: AmqpClient, dial: Dial, limit: float, done: Done
    ) -> None:
        opened: socket.socket | TlsStream | None = None
        answer: Answer | None
        try:
            async with asyncio.timeout(limit):
                if uses_tls(address):
                    opened = await self._open_stream(address, client, dial, limit)
                    refusal = await opened.opened
                    answer = Answer(Outcome.ANSWERED, error=refusal) if refusal else None
                else:
                    opened = await self._open_socket(address)
                    answer = await self._handshake(client, opened)
        except (OSError, TimeoutError, AmqpError) as error:
            refused = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
            text = "no answer in time" if isinstance(error, TimeoutError) else why(error)
            answer = Answer(Outcome.REFUSED if refused else Outcome.SILENT, error=text)
        except asyncio.CancelledError:
            if opened is not None:
                opened.close()
            raise
        if answer is not None:
            if opened is not None:
                opened.close()
            self._run(lambda: done(answer))
            return
        assert opened is not None
        if isinstance(opened, TlsStream):
            self._begin(owner, opened, done)
        else:
            self._hand_over(owner, client, opened, done)

    async def _open_stream(self, address: str, client: AmqpClient, dial: Dial, limit: float) -> TlsStream:
        stream = TlsStream(self._loop, client, self._run)
        await self._loop.create_connection(lambda: stream, *split_address(address), **dial.options(address, limit))
        return stream

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

    async def _handshake(self, client: AmqpClient, sock: socket.socket) -> Answer | None:
        """None if the connection is open, else the refusal.  Raises OSError and AmqpError."""
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

    def _hand_over(self, owner: LinkOwner, client: AmqpClient, sock: socket.socket, done: Done) -> None:
        link = OutgoingLink(owner, self._engine, self._reactor)
        self._reactor.add(link.connection, sock)

        def begin() -> None:
            done(link)
            rest = client.left_over()
            if rest:
                link.connection.feed(rest)

        self._run(begin)

    def _begin(self, owner: LinkOwner, stream: TlsStream, done: Done) -> None:
        link = OutgoingLink(owner, self._engine, self._reactor, stream)

        def begin() -> None:
            done(link)
            stream.begin(link.connection, link.closed)

        self._run(begin)
