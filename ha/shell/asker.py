"""Keeps admin connections to the other brokers open, for the questions of promotion and of the shrink rule.    Shell.

The first request opens a connection and later ones use it, so that a promotion needs one round trip without handshakes.
If the connection breaks, requests already written are sent again over a new one: only a refused connection proves that
the broker is gone.  A process that is being killed may accept and break connections for some milliseconds, so this is
repeated until the request's timeout, unless the other broker sends a reason for closing.  A request that times out
closes the connection if nothing was received on it since.  Otherwise the connection is kept: on a slow path a handshake
may take longer than a request's timeout.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ha.environment import Answer, Json, Outcome
from qpidd_py.amqp import management_client
from qpidd_py.amqp.client import Closed, Login, PeerSilent, VersionRefused
from qpidd_py.amqp.management_client import ManagementClient
from qpidd_py.errors import AmqpError

log = logging.getLogger("ha")
AGAIN: Final = 0.01
"""Seconds between attempts after broken connections, from the second on."""
_BROKEN: Final = (errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.EPIPE)
"""Errors of a connection that was accepted."""


@dataclass(eq=False)
class _Request:
    method: str
    arguments: Json
    done: Callable[[Answer], None]
    heard: int = 0
    """Octets received on the connection when the request was sent."""
    breaks: int = 0
    finished: bool = False

    def finish(self, answer: Answer) -> None:
        if not self.finished:
            self.finished = True
            self.done(answer)


class _Conversation(asyncio.Protocol):
    """One connection."""

    def __init__(self, asker: Asker, login: Login) -> None:
        self._asker = asker
        self._client = ManagementClient(login)
        self._transport: asyncio.Transport | None = None
        self._requests: dict[int, _Request] = {}
        self._heard = 0
        self.over = False

    def send(self, request: _Request) -> None:
        request.heard = self._heard
        self._requests[self._client.request(request.method, request.arguments)] = request
        self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def waiting(self) -> list[_Request]:
        return [request for request in self._requests.values() if not request.finished]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._flush()

    def expired(self, request: _Request) -> bool:
        """Give up `request`.  Returns True if anything was received since it was sent."""
        self._requests = {number: each for number, each in self._requests.items() if each is not request}
        return self._heard > request.heard

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        self._heard += len(data)
        try:
            events = self._client.feed(data)
        except AmqpError:
            self._end()
            return
        for event in events:
            if isinstance(event, management_client.Answer):
                self._answered(event)
            elif isinstance(event, Closed | VersionRefused | PeerSilent):
                self._asker.refused(event.reply_text if isinstance(event, Closed) else str(event))
                self._end()
                return
        self._flush()

    def _answered(self, event: management_client.Answer) -> None:
        request = self._requests.pop(event.number, None)
        if request is not None:
            result = event.result if isinstance(event.result, dict) else {}
            request.finish(Answer(Outcome.ANSWERED, result if event.ok else {}, event.error))

    def connection_lost(self, exc: Exception | None) -> None:
        hung_up, self.over = self.over, True
        self._asker.lost(self, self.waiting, hung_up)

    def _end(self) -> None:
        self._flush()
        self.over = True
        self.abort()

    def _flush(self) -> None:
        if self._transport is not None and (output := self._client.take_output()):
            self._transport.write(output)


class Asker:
    """Requests to one address."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int, login: Login) -> None:
        self._loop = loop
        self._host, self._port, self._login = host, port, login
        self._conversation: _Conversation | None = None
        self._connecting: list[_Request] | None = None
        self._task: asyncio.Task[None] | None = None
        self._complaint = ""

    def ask(self, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]) -> None:
        request = _Request(method, arguments, done)
        self._loop.call_later(timeout, self._expire, request)
        self._send(request)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._conversation is not None:
            self._conversation.abort()

    def refused(self, text: str) -> None:
        """The other broker closes our connection, most likely for wrong credentials, which would block promotions."""
        if text != self._complaint:
            self._complaint = text
            log.warning("%s:%d closes our admin connection: %s", self._host, self._port, text)

    def lost(self, conversation: _Conversation, requests: list[_Request], hung_up: bool) -> None:
        """A connection has ended with these requests unanswered; `hung_up`: the peer gave a reason."""
        if self._conversation is conversation:
            self._conversation = None
        for request in requests:
            request.breaks += 1
            if hung_up and request.breaks > 1:
                request.finish(Answer(Outcome.SILENT))
            elif request.breaks == 1:
                self._send(request)
            else:
                self._loop.call_later(AGAIN, self._send, request)

    def _send(self, request: _Request) -> None:
        if request.finished:
            return
        if self._conversation is not None:
            self._conversation.send(request)
        elif self._connecting is not None:
            self._connecting.append(request)
        else:
            self._connecting = [request]
            self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        conversation = _Conversation(self, self._login)
        try:
            await self._loop.create_connection(lambda: conversation, self._host, self._port)
        except OSError as error:
            requests, self._connecting = self._connecting or [], None
            if error.errno in _BROKEN:
                self.lost(conversation, requests, hung_up=False)
            else:
                _finish(requests, Outcome.REFUSED if error.errno == errno.ECONNREFUSED else Outcome.SILENT)
            return
        requests, self._connecting = self._connecting or [], None
        if conversation.over:  # it ended before we knew that it had begun: no other code would finish these requests
            self.lost(conversation, requests, hung_up=False)
            return
        self._conversation = conversation
        for request in requests:
            conversation.send(request)

    def _expire(self, request: _Request) -> None:
        if request.finished:
            return
        request.finish(Answer(Outcome.SILENT))
        if self._conversation is not None:
            if not self._conversation.expired(request):
                self._conversation.abort()
                self._conversation = None
        elif self._task is not None and self._connecting is not None:
            self._task.cancel()
            requests, self._connecting = self._connecting, None
            _finish(requests, Outcome.SILENT)


def _finish(requests: list[_Request], outcome: Outcome) -> None:
    for request in requests:
        request.finish(Answer(outcome))
