"""Keeps admin connections to the other brokers open, for the questions of promotion and of the shrink rule.    Shell.

The first request opens a connection and later ones use it, so that a promotion needs one round trip without handshakes.
If the connection breaks, requests already written are sent again over a new one: only a refused connection says that
the broker may be gone, and only if all its other ports refuse, too (`Doors`): a broker that listens elsewhere is alive,
and one whose other port does not answer is silent.  What a refusal is then worth is decided in `model/refusals.py`.
A TLS handshake that fails, or a connection that is closed with a reason, makes the broker silent, too; the log has one
line that names it and the reason.  A process that is being killed may accept and break connections for some
milliseconds, so this is repeated until the request's timeout.  A request that times out closes the connection if
nothing was received on it since.  Otherwise the connection is kept: on a slow path a handshake may take longer than a
request's timeout.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ha.dial import Dial, why
from ha.model.environment import Answer, Json, Outcome
from ha.model.settings import split_address
from ha.shell.management_link import End, ManagementLink
from qpidd_py.amqp import management_client

log = logging.getLogger("ha")
AGAIN: Final = 0.01
"""Seconds between attempts after broken connections, from the second on."""
Doors = Callable[[], Iterable[tuple[str, int]]]
"""Host and port of all other doors at which the broker may listen."""
HANDSHAKE: Final = 5.0
"""Seconds for a TLS handshake; requests that wait for it have their own time limits."""
_BROKEN: Final = (errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.EPIPE)
"""Errors of a connection that was accepted."""


@dataclass(eq=False)
class _Request:
    method: str
    arguments: Json
    done: Callable[[Answer], None]
    heard: int = 0
    """Octets received on the connection when the request was sent."""
    number: int = 0
    breaks: int = 0
    finished: bool = False

    def answered(self, event: management_client.Answer) -> None:
        result = event.result if event.ok and isinstance(event.result, dict) else {}
        self.finish(Answer(Outcome.ANSWERED, result, event.error))

    def finish(self, answer: Answer) -> None:
        if not self.finished:
            self.finished = True
            self.done(answer)


class _Conversation:
    """One connection, and the requests on it."""

    def __init__(self, asker: Asker, dial: Dial) -> None:
        self.link = ManagementLink(dial.login, self._closed, asker.admitted)
        self._asker = asker
        self._requests: list[_Request] = []

    def send(self, request: _Request) -> None:
        request.heard = self.link.heard
        self._requests = [*self._waiting, request]
        request.number = self.link.request(request.method, request.arguments, request.answered)

    def expired(self, request: _Request) -> bool:
        """`request` was given up.  Returns True if anything was received since it was sent."""
        self.link.forget(request.number)
        return self.link.heard > request.heard

    @property
    def _waiting(self) -> list[_Request]:
        return [request for request in self._requests if not request.finished]

    def _closed(self, end: End) -> None:
        if end.complaint:
            self._asker.refused(end.complaint)
        self._asker.lost(self, self._waiting, end.hung_up)


class Asker:
    """Requests to one address."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, dial: Dial, doors: Doors = tuple) -> None:
        self._loop, self._address, self._dial, self._doors = loop, address, dial, doors
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
            self._conversation.link.close()

    def admitted(self) -> None:
        self._complaint = ""

    def refused(self, text: str) -> None:
        """The other broker closes our connection, most likely for wrong credentials, which would block promotions."""
        self._complain("%s closes our admin connection: %s", text)

    def _complain(self, what: str, text: str) -> None:
        """Once, until a connection is admitted again."""
        if text != self._complaint:
            self._complaint = text
            log.warning(what, self._address, text)

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
        conversation = _Conversation(self, self._dial)
        try:
            options = self._dial.options(self._address, HANDSHAKE)
            await self._loop.create_connection(lambda: conversation.link, *split_address(self._address), **options)
        except OSError as error:
            dead = error.errno == errno.ECONNREFUSED and await self._all_refuse()
            requests, self._connecting = self._connecting or [], None
            self._not_connected(conversation, requests, error, dead)
            return
        requests, self._connecting = self._connecting or [], None
        if conversation.link.over:
            # It ended before we knew that it had begun: no other code would finish these requests.
            self.lost(conversation, requests, hung_up=False)
            return
        self._conversation = conversation
        for request in requests:
            conversation.send(request)

    def _not_connected(self, conversation: _Conversation, requests: list[_Request], error: OSError, dead: bool) -> None:
        if error.errno in _BROKEN and not isinstance(error, ssl.SSLError):
            self.lost(conversation, requests, hung_up=False)
            return
        if error.errno != errno.ECONNREFUSED:
            self._complain("%s cannot be asked: %s", why(error))
        _finish(requests, Outcome.REFUSED if dead else Outcome.SILENT)

    async def _all_refuse(self) -> bool:
        """True if no other door is open, or may be."""
        for host, port in self._doors():
            try:
                transport, _ = await self._loop.create_connection(asyncio.Protocol, host, port)
            except OSError as error:
                if error.errno == errno.ECONNREFUSED:
                    continue
                return False
            transport.abort()
            self._complain("%s refuses connections, but its broker lives: %s", f"it listens on port {port}")
            return False
        return True

    def _expire(self, request: _Request) -> None:
        if request.finished:
            return
        request.finish(Answer(Outcome.SILENT))
        if self._conversation is not None:
            if not self._conversation.expired(request):
                self._conversation.link.close()
                self._conversation = None
        elif self._task is not None and self._connecting is not None:
            self._task.cancel()
            requests, self._connecting = self._connecting, None
            _finish(requests, Outcome.SILENT)


def _finish(requests: list[_Request], outcome: Outcome) -> None:
    for request in requests:
        request.finish(Answer(outcome))
