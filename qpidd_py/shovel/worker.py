"""Runs the shovels of a broker while it is the primary.                                                         Shell.

Each second it tells its broker how they do, and gets the parameters in return (`management/parameters.py`).  A broker
that refuses (a backup) or does not answer has no shovels here: their runs end, and the messages that were on their way
go to the worker of the next primary.  Two workers at a time, beside an old primary that is cut off and a new one, may
move a message twice, and lose none.

A shovel that fails is begun anew after `reconnect-delay`, which doubles as long as nothing was moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from client_lib import MessagingError
from client_lib.urls.url import Endpoint
from qpidd_py.broker.parameters import SHOVEL
from qpidd_py.cli.client_socket import BrokerError, Deadline, ManagementSocket, RequestRefused, Target
from qpidd_py.cli.output import describe
from qpidd_py.errors import ReplyCode
from qpidd_py.shovel.run import Run

log = logging.getLogger(__name__)
Json = dict[str, Any]

INTERVAL: Final = 1.0
"""Seconds between two requests."""
DELAY: Final = 1.0
"""Seconds: `reconnect-delay` unless it is given."""
DELAY_MAX: Final = 60.0
SHOWN: Final = 200
"""Characters of a reason or an address in a report."""


class Key(NamedTuple):
    """A parameter; one that is set again is another one."""

    name: str
    uid: int
    restarts: int = 0
    """Another number: the same parameter is to begin anew."""


class Broker:
    """The one beside this program; its methods block."""

    def __init__(self, target: Target, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._socket: ManagementSocket | None = None

    def report(self, shovels: list[Json]) -> list[Json]:
        """What shall run.  Raises BrokerError, OSError."""
        return self._ask("shovel.report", {"shovels": shovels})  # type: ignore[no-any-return]

    def clear(self, key: Key) -> None:
        """Unless the parameter was set anew.  Raises BrokerError, OSError."""
        self._ask("parameter.clear", {"component": SHOVEL, "name": key.name, "uid": key.uid})

    def _ask(self, method: str, arguments: Json) -> Any:
        deadline = Deadline(self._seconds)
        try:
            if self._socket is None:
                self._socket = ManagementSocket(self._target, deadline)
            return self._socket.request(method, arguments, deadline)
        except RequestRefused:
            raise
        except (BrokerError, OSError):
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            raise

    @property
    def address(self) -> tuple[Endpoint, Mapping[str, Any]]:
        """For `client_lib`."""
        host, port, login, tls, *_ = self._target
        end = Endpoint(host, port, login.user, login.password, None, "tcp" if tls is None else "ssl")
        options = {"ssl_context": tls, "sasl_mechanisms": login.mechanism or None}
        return end, {name: value for name, value in options.items() if value is not None}


class Shovel:
    """One parameter: runs again and again."""

    def __init__(self, key: Key, value: Mapping[str, Any], broker: Broker, moved: int = 0) -> None:
        """`moved`: before it was restarted."""
        self.key, self._value, self._broker = key, value, broker
        self.done = False
        """It has moved what `src-delete-after` says; the parameter is to be cleared."""
        self._delay = float(value.get("reconnect-delay", DELAY))
        self._run: Run | None = None
        self._moved, self._reason = moved, ""
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        delay = self._delay
        while True:
            run = Run(self.key.name, self._value, self._broker.address, self._moved)
            before, self._run = self._moved, run
            try:
                await run.move()
                self.done = True
                log.info("shovel %s: done, %d messages were moved", self.key.name, run.moved)
                return
            except (MessagingError, ValueError, OSError) as error:
                self._ended(describe(error), delay)
            except Exception as error:  # a defect: the other shovels go on
                log.exception("shovel %s: failed", self.key.name)
                self._ended(describe(error), delay)
            finally:
                self._moved, self._run = run.moved, None
            delay = self._delay if self._moved > before else delay
            await asyncio.sleep(delay)
            delay = max(self._delay, min(delay * 2, DELAY_MAX))

    def _ended(self, reason: str, delay: float) -> None:
        if reason != self._reason:
            log.warning("shovel %s: ended, begins again in %g s: %s", self.key.name, delay, reason)
        self._reason = reason

    @property
    def moved(self) -> int:
        return self._moved if self._run is None else self._run.moved

    def report(self) -> Json:
        run = self._run
        known: Json = {**self.key._asdict(), "moved": self.moved}
        if run is None:
            return {**known, "state": "terminated", "reason": _short(self._reason)}
        ends = {"source": _short(run.place(0)), "destination": _short(run.place(1)), "pending": run.pending}
        if run.running:
            return {**known, **ends, "state": "running"}
        return {**known, **ends, "state": "starting", "reason": _short(run.trouble or self._reason)}


def _short(text: str) -> str:
    """All reports together are one request, whose size is limited."""
    return text.encode("ascii", "backslashreplace").decode()[:SHOWN]


class Worker:
    """All shovels of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shovels: dict[Key, Shovel] = {}
        self._trouble = ""

    async def serve(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(INTERVAL)
        finally:
            await self._follow([])

    async def _look(self) -> None:
        try:
            for key in [key for key, shovel in self._shovels.items() if shovel.done]:
                await self._clear(key)
            shovels = [shovel.report() for shovel in self._shovels.values()]
            wanted, trouble = await asyncio.to_thread(self._broker.report, shovels), ""
        except (BrokerError, OSError) as error:
            backup = isinstance(error, RequestRefused) and error.code == ReplyCode.CONNECTION_FORCED
            wanted, trouble = [], "" if backup else describe(error)
        if trouble and trouble != self._trouble:
            log.warning("no shovels run: %s", trouble)
        self._trouble = trouble
        await self._follow([item for item in wanted if item["component"] == SHOVEL])

    async def _clear(self, key: Key) -> None:
        try:
            await asyncio.to_thread(self._broker.clear, key)
        except RequestRefused as error:
            if error.code == ReplyCode.CONNECTION_FORCED:
                raise
            log.info("shovel %s: %s", key.name, error)  # it was cleared, or set anew

    async def _follow(self, items: list[Json]) -> None:
        """Ends the shovels that are none of these, and begins those that do not run."""
        wanted = {Key(item["name"], item["uid"], item.get("restarts", 0)): item.get("value", {}) for item in items}
        ended = [self._shovels.pop(key) for key in list(self._shovels) if key not in wanted]
        for shovel in ended:
            shovel.task.cancel()
            log.info("shovel %s: ends", shovel.key.name)
        if ended:
            await asyncio.wait([shovel.task for shovel in ended])
        moved = {shovel.key[:2]: shovel.moved for shovel in ended}
        for key in wanted.keys() - self._shovels.keys():
            log.info("shovel %s: begins", key.name)
            self._shovels[key] = Shovel(key, wanted[key], self._broker, moved.get(key[:2], 0))
