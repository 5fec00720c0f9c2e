"""Answers at the ports while the broker reads its journal.                                                    Shell.

Theory.  The main thread reads, as fast as it can, into the broker that will serve.  The doorman is another broker, in a
thread and a loop of its own: without queues, passive, and gone before the first one serves.  So no client can see or
change what is half read, and reading is the same code with a doorman or without.

    admin connections    admitted; `ha.*` is answered by plug-ins (`plugins.Reading`), all else is refused
    others               refused with 320, so that a client goes on to the next address

A journal that is read within GRACE needs no doorman: who connects waits in the system's queue, as for any start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from qpidd_py.broker.ports import Refusal
from qpidd_py.core import Reactor
from qpidd_py.errors import ReplyCode
from qpidd_py.management.amqp_door import AmqpDoor
from qpidd_py.management.model import Management
from qpidd_py.management.request import Json, Reply
from qpidd_py.management.turns import Slices
from qpidd_py.security.verifier import Verifier
from qpidd_py.server.heartbeat import LONGEST, Ticker
from qpidd_py.server.listener import Listener
from qpidd_py.server.notify import Notifier

if TYPE_CHECKING:
    import socket
    import ssl

    from qpidd_py.broker.broker import Broker
    from qpidd_py.broker.client_connection import ClientConnection
    from qpidd_py.config import BrokerSettings, NetworkSettings
    from qpidd_py.plugins import Request
    from qpidd_py.security.users import Users
    from qpidd_py.store.progress import Progress

log = logging.getLogger(__name__)

RECOVERING_JOURNAL: Final = "recovering-journal"
"""The state of a broker that reads its journal, as `qpid-ha status` prints it."""
GRACE: Final = 1.0
"""Seconds of reading before the doorman comes."""
FAREWELL: Final = 0.5
"""Seconds at the end for those who wait for an answer."""
POLL: Final = 0.005


@dataclass
class Ports:
    """Where and for whom the doorman answers."""

    sockets: list[socket.socket]
    tls_sockets: list[socket.socket]
    tls: ssl.SSLContext | None
    network: NetworkSettings
    limits: BrokerSettings
    users: Users | None
    """None: everybody may log in (auth=no)."""
    environment: Mapping[str, str]
    """Of the supervisor (`Notifier`)."""


class Hooks:
    """What the doorman's broker asks (`qpidd_py.broker.hooks.HaHooks`)."""

    def __init__(self, name: str, request: Request) -> None:
        self._name = name
        self.request = request

    cluster = False

    def admit(self, connection: ClientConnection, properties: Mapping[str, Any]) -> Refusal | None:
        if connection.client.admin:
            return None
        text = f"CONNECTION_FORCED - {self._name} is reading its journal ({RECOVERING_JOURNAL}); try again later"
        return Refusal(ReplyCode.CONNECTION_FORCED, text)

    def opened(self, connection: ClientConnection) -> bool:
        return False

    def connection_closed(self, connection: ClientConnection) -> None: ...

    def limited(self, reason: str) -> None: ...

    def alarm(self, name: str, reason: str) -> None: ...

    def damaged(self, reason: str) -> None: ...

    def paging(self, result: str, reason: str) -> None: ...

    def tick(self, now: float) -> None: ...


class Requests(Management):
    """Only plug-ins answer."""

    def __init__(self, broker: Broker, progress: Progress) -> None:
        super().__init__(broker)
        self._progress = progress
        self.served: set[ClientConnection] = set()
        """Those that have asked."""

    def work(self, method: str, arguments: Json, reply: Reply, asker: ClientConnection | None) -> Slices:
        if asker is not None:
            self.served.add(asker)
        if method.startswith("ha."):
            yield from super().work(method, arguments, reply, asker)
        else:
            error = f"{method}: {self.broker.name} is reading its journal: {self._progress.step}"
            reply({"ok": False, "error": error, "code": ReplyCode.CONNECTION_FORCED})


class Doorman:
    """One, for the reading at one start: `start` and `stop` are called by the thread that reads."""

    def __init__(
        self,
        make_broker: Callable[[], Broker],
        ports: Ports,
        progress: Progress,
        request: Request,
        guard: Callable[[Callable[[], None]], None],
        begun: Callable[[str], None],
    ) -> None:
        """`make_broker` makes the doorman's own.  `begun` is called when it answers, with how far the reading is."""
        self._make_broker = make_broker
        self._ports = ports
        self._progress = progress
        self._request = request
        self._guard = guard
        self._begun = begun
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="doorman", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It has left the ports when this returns; who has not connected to it waits for the broker."""
        self._over.set()
        if (loop := self._loop) is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        if self._over.wait(GRACE):
            return
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("no answers while the journal is read")

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        if self._over.is_set():
            return
        guard, ports = self._guard, self._ports
        broker, requests = self._new_broker()
        broker.engine.schedule = partial(_soon, loop, guard, broker.engine.end_turn)
        users = ports.users
        verifier = None if users is None else Verifier(users, loop, guard)
        if users is not None and verifier is not None:
            broker.authenticate, broker.scram = verifier, lambda: users.has_scram
        reactor = Reactor(broker.engine)
        loop.add_reader(reactor.fileno(), guard, reactor.poll)
        listener = Listener(loop, broker, reactor, ports.network, ports.limits, guard)
        listener.open(ports.sockets)
        if ports.tls is not None:
            listener.open(ports.tls_sockets, ports.tls)
        notices = ReadingNotices(Notifier(loop, ports.environment), self._progress)
        ticker = Ticker(loop, LONGEST, lambda now: guard(lambda: _tick(broker, listener, verifier, notices, now)))
        ticker.start()
        self._begun(str(self._progress.step))
        await self._end.wait()
        listener.leave()
        await _see_off(broker, reactor, requests.served)
        ticker.stop()
        notices.close()
        loop.remove_reader(reactor.fileno())
        if verifier is not None:
            verifier.close()

    def _new_broker(self) -> tuple[Broker, Requests]:
        broker = self._make_broker()
        requests = Requests(broker, self._progress)
        broker.passive = True
        broker.hooks = Hooks(broker.name, self._request)
        broker.management = AmqpDoor(requests)
        return broker, requests


def _soon(
    loop: asyncio.AbstractEventLoop, guard: Callable[[Callable[[], None]], None], end_turn: Callable[[], None]
) -> None:
    loop.call_soon(guard, end_turn)


def _tick(broker: Broker, listener: Listener, verifier: Verifier | None, notices: ReadingNotices, now: float) -> None:
    listener.tick(now)
    if verifier is not None:
        verifier.tick(now)
    broker.tick(now)
    notices.look(now)
    broker.engine.end_turn()


async def _see_off(broker: Broker, reactor: Reactor, served: set[ClientConnection]) -> None:
    """Who has connected gets an answer, then the connection is closed, whether its peer answers that or not."""
    await _until(lambda: all(each in served or each.finished for each in broker.connections), FAREWELL)
    broker.close_clients(ReplyCode.CONNECTION_FORCED, f"{broker.name} has read its journal; connect again")
    broker.engine.end_turn()
    await _until(lambda: not broker.connections, FAREWELL)
    for connection in list(broker.connections):
        reactor.remove(connection.core)
        connection.transport.disconnect()
    await asyncio.sleep(0)


async def _until(done: Callable[[], bool], seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not done() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 (it has no event)
        await asyncio.sleep(POLL)


class ReadingNotices:
    """What a supervisor hears: beats, the state, and that a start may take longer while the reading goes on."""

    def __init__(self, notifier: Notifier, progress: Progress) -> None:
        self._notifier = notifier
        self._progress = progress
        self._due = 0.0
        self._seen = ("", -1)
        notifier.tell({"X_QPID_STATE": RECOVERING_JOURNAL, "X_QPID_SCORE": "", "X_QPID_LAST": ""})
        notifier.begin()

    def look(self, now: float) -> None:
        """Once a second; `now` in seconds of a monotonic clock."""
        step = self._progress.step
        if now < self._due or (step.what, step.done) == self._seen:
            return
        self._due, self._seen = now + 1.0, (step.what, step.done)
        self._notifier.tell({"STATUS": f"{RECOVERING_JOURNAL}: {step}"})
        self._notifier.extend()

    def close(self) -> None:
        self._notifier.close()
