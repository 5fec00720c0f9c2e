"""Opens replication links: AMQP handshake with the pure client, then hand-over of the socket to the core.    Shell."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping

from ha.environment import Answer, Link, Outcome
from ha.settings import split_address
from ha.shell.core_link import LinkOwner, OutgoingLink
from qpidd_py.amqp.client import AmqpClient, ClientHandshake, Closed, Login, Opened, VersionRefused
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
        login: Login,
        properties: Mapping[str, object],
        timeout: float,
        done: Done,
    ) -> None:
        """See `Environment.connect`; `owner` receives what arrives over the link."""
        client = AmqpClient(ClientHandshake(login, properties), stop_when_open=True)
        task = self._loop.create_task(self._connect(owner, address, client, timeout, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, owner: LinkOwner, address: str, client: AmqpClient, limit: float, done: Done) -> None:
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
        self._hand_over(owner, client, sock, done)

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
