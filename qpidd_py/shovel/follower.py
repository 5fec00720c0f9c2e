"""Routes that follow bindings, beside the primary of their destination.                                        Shell.

`Here` follows the bindings of one exchange of this cluster, for all routes to it: it asks the broker for what has
changed.  A `Follower` is one run of a route: it has the queue at the source bound like them, and tells `Here` by which
ways messages come.  The rules are in `federation.py`.

The bindings of the queue at the source outlive a run, and a worker that does not know yet that its broker was deposed
may change them beside us: they are looked at when a run begins, once more after RECHECKS, and mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from base64 import b64decode
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import chain, repeat
from struct import error as StructError
from typing import Any, Final, NamedTuple

from pika.exceptions import UnsupportedAMQPFieldException

from client_lib import InvalidOption, MessagingError, ServerError, aio
from qpidd_py.amqp.fields import decode_table, encode_table
from qpidd_py.broker.arguments import REPLICATE
from qpidd_py.broker.followed import FED_PATH
from qpidd_py.broker.parameters import local_host
from qpidd_py.broker.qpid_arguments import EXCLUSIVE_BINDING
from qpidd_py.cli.client_socket import BrokerError
from qpidd_py.cli.output import describe
from qpidd_py.errors import ReplyCode
from qpidd_py.shovel.beside import Broker
from qpidd_py.shovel.federation import Bindings, Bound, Destination, Path, Terms, Verdict, Ways, read_path

log = logging.getLogger(__name__)
Json = dict[str, Any]
Value = Mapping[str, Any]

INTERVAL: Final = 0.25
"""Seconds between two looks at the bindings here."""
GATHER: Final = 0.02
"""Seconds between two looks while there is something new."""
LISTEN: Final = 1.0
"""Seconds between two questions to the source."""
PATIENCE: Final = 10.0
"""Seconds for which a route waits until the others to this exchange have heard of their sources, too."""
RECHECKS: Final = (15.0, 300.0)
"""Seconds; the last one again and again."""
AT_ONCE: Final = 100
"""Bindings that are made without waiting for the answer of each."""
_KEPT_HERE: Final = (FED_PATH, REPLICATE, EXCLUSIVE_BINDING)
"""Arguments of a binding that are not handed on."""


class NotOurs(MessagingError):
    """The source cannot have routes that follow bindings."""


class Place(NamedTuple):
    """Where a route leads to."""

    host: str
    exchange: str


def place_of(value: Value) -> Place:
    return Place(local_host(value["dest-uri"]) or "", value["dest-exchange"])


class Here:
    """See the head of this module."""

    def __init__(self, broker: Broker, place: Place) -> None:
        """`broker`: nobody else asks it."""
        self.bindings, self.routes = Bindings(), set[str]()
        self.type = self.tag = self.trouble = ""
        self._broker, self._place = broker, place
        loop = asyncio.get_running_loop()
        self.ways = Ways("", loop.time)
        self._until = loop.time() + PATIENCE
        self._changed = asyncio.Event()
        self._history, self._last = "", 0
        self.task = asyncio.create_task(self._follow())

    async def ready(self) -> None:
        """The bindings are known."""
        while not self._history or self.trouble:
            if self.trouble:
                raise NotOurs(f"the bindings here: {self.trouble}")
            await self.change()

    async def change(self) -> None:
        await self._changed.wait()

    async def settled(self) -> None:
        """All ways are known, or it is time to begin without some."""
        loop = asyncio.get_running_loop()
        while (left := self._until - loop.time()) > 0 and not all(map(self.ways.heard, self.routes)):
            await _within(self.change(), left)

    def hear(self, route: str, source: str, paths: list[Path] | None, excluded: Iterable[str]) -> None:
        fresh = not self.ways.heard(route)
        self.ways.hear(route, source, paths, list(excluded))
        if fresh:
            self._wake()

    def forget(self, route: str) -> None:
        """It was deleted."""
        self.routes.discard(route)
        self.ways.forget(route)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self._broker.close()

    async def _follow(self) -> None:
        while True:
            try:
                news = await self._look()
                self.trouble = ""
            except (BrokerError, OSError) as error:
                news, self.trouble = True, describe(error)
            if news:
                self._wake()
                await asyncio.sleep(LISTEN if self.trouble else GATHER)
            else:
                await asyncio.sleep(INTERVAL)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _look(self) -> bool:
        """Whether there was anything new."""
        found = await self._ask("route.changes", history=self._history, after=self._last)
        if found["tag"] != self.tag:
            self.tag, self.type = found["tag"], found["type"]
            self.ways = Ways(self.tag, asyncio.get_running_loop().time)
        if found["changes"] is None:
            listed = await self._ask("route.bindings")
            self.bindings.replace(_read(each) for each in listed)
        else:
            for each in found["changes"]:
                self._apply(each)
        self._history, self._last = found["history"], found["last"]
        return bool(found["changes"] is None or found["changes"])

    async def _ask(self, method: str, **arguments: Any) -> Any:
        where = {"vhost": self._place.host, "exchange": self._place.exchange}
        return await asyncio.to_thread(self._broker.ask, method, {**where, **arguments})

    def _apply(self, change: Json) -> None:
        if change["key"] is None:
            self.bindings.lose(_destination(change))
        elif change["added"]:
            self.bindings.add(*_read(change))
        else:
            self.bindings.remove(*_read(change))


class Follower:
    """One run of a route; `name`: of the route, `value`: its parameter."""

    def __init__(self, here: Here, name: str, value: Value) -> None:
        self._here, self._name = here, name
        self._queue, self._exchange = value["src-exchange-queue"], value["src-exchange"]
        self._excluded = value.get("src-exclude-traces", ())
        self.source = ""
        """The tag of the source."""
        self._made: dict[Terms, set[Path]] = {}
        self._refused: set[Bound] = set()
        self._session: aio.Session | None = None
        """On which bindings are made; the source closes it if it refuses one."""

    async def begin(self, source: aio.Connection) -> None:
        """Raises NotOurs for a source that is none."""
        await self._here.ready()
        found = await self._paths(await source.session())
        self.source = found["tag"]
        if self.source == self._here.tag:
            text = "is the one here, too: a cluster has no route to itself, and each has a federation-tag of its own"
            raise NotOurs(f"federation tag {self.source!r:.80} of the source {text}")
        if found["type"] != self._here.type:
            raise NotOurs(f"exchange {self._exchange!r:.80} is {found['type']} there, and {self._here.type} here")
        self._hear(found)
        await self._here.settled()

    def judge(self, trace: Iterable[str]) -> Verdict:
        return self._here.ways.judge(self._name, trace)

    async def listen(self, source: aio.Connection) -> None:
        """To what the source says of its ways."""
        session = await source.session()
        while True:
            await asyncio.sleep(LISTEN)
            self._hear(await self._paths(session))

    async def bind(self, source: aio.Connection) -> None:
        """Keeps the queue at the source bound."""
        changed = self._here.bindings.watch()
        checks = chain(RECHECKS, repeat(RECHECKS[-1]))
        try:
            while True:
                async with await source.session() as session:
                    self._made = await self._bound(session)
                changed |= self._made.keys() | self._here.bindings.terms()
                check = asyncio.get_running_loop().time() + next(checks)
                while (left := check - asyncio.get_running_loop().time()) > 0:
                    await self._carry_over(source, changed)
                    if not changed:
                        await _within(self._here.change(), left)
        finally:
            self._here.bindings.unwatch(changed)

    # ---- parts

    async def _paths(self, session: aio.Session) -> Json:
        answer = await self._asked(session, "route.paths", exchange=self._exchange)
        return answer if isinstance(answer, dict) else {}

    async def _asked(self, session: aio.Session, method: str, **arguments: Any) -> Any:
        try:
            answer = await session.manage(method, arguments)
        except InvalidOption as error:
            text = "only a broker of this kind has routes that follow bindings; add a route for each key"
            raise NotOurs(f"the source: {text} ({error})") from None
        if not answer.get("ok"):
            raise NotOurs(f"the source: {answer.get('error', 'no reason given')}")
        return answer["result"]

    def _hear(self, found: Json) -> None:
        paths = found.get("paths")
        ways = None if paths is None else [read_path(each) for each in paths]
        self._here.hear(self._name, self.source, ways, self._excluded)

    async def _bound(self, session: aio.Session) -> dict[Terms, set[Path]]:
        """What the queue at the source is bound like."""
        made: dict[Terms, set[Path]] = {}
        offset = 0
        while True:
            page = await self._asked(
                session, "queue.bindings", queue=self._queue, exchange=self._exchange, offset=offset
            )
            for bound in (_read(each)[1] for each in page):
                made.setdefault(bound.terms, set()).add(bound.path)
            offset += len(page)
            if not page:
                return made

    async def _carry_over(self, source: aio.Connection, changed: set[Terms]) -> None:
        """New bindings before those that go."""
        terms = [changed.pop() for _ in range(min(AT_ONCE, len(changed)))]
        wanted = {each: self._here.bindings.wanted(each, self._here.tag, self.source) for each in terms}
        adding, going = [], []
        for each, paths in wanted.items():
            made = self._made.get(each, set())
            adding += [Bound(each, path) for path in paths - made if Bound(each, path) not in self._refused]
            going += [Bound(each, path) for path in made - paths]
        await self._change(source, "queue_bind", adding)
        await self._change(source, "queue_unbind", going)
        for each, paths in wanted.items():
            self._made[each] = paths
            if not paths:
                del self._made[each]

    async def _change(self, source: aio.Connection, method: str, those: list[Bound]) -> None:
        if self._session is None:
            self._session = await source.session()
        session = self._session
        answers = await asyncio.gather(
            *(self._declare(session, method, each) for each in those), return_exceptions=True
        )
        lacking = [each for each, answer in zip(those, answers, strict=True) if answer is not None]
        for error in (answer for answer in answers if answer is not None and not _is_refusal(answer)):
            raise error
        if lacking:
            self._session = None
            with contextlib.suppress(MessagingError):
                await session.close()
        for each in lacking:
            await self._try(source, method, each)

    async def _try(self, source: aio.Connection, method: str, bound: Bound) -> None:
        """One that the source refuses must not stand in the way of the others."""
        try:
            async with await source.session() as session:
                await self._declare(session, method, bound)
        except Exception as error:
            if not _is_refusal(error):
                raise
            self._refused.add(bound)
            log.warning("shovel %s: a binding is left out: %s", self._name, error)

    async def _declare(self, session: aio.Session, method: str, bound: Bound) -> None:
        (key, arguments), path = bound
        table = sendable(decode_table(arguments)[0])
        if path:
            table[FED_PATH] = ",".join(path)
        where = {"queue": self._queue, "exchange": self._exchange, "routing_key": key, "arguments": table}
        await session.declare(method, False, **where)


def _is_refusal(error: BaseException) -> bool:
    """Of one binding: the source refuses it, or its arguments cannot be sent."""
    if isinstance(error, ServerError):
        return error.reply_code in (ReplyCode.ACCESS_REFUSED, ReplyCode.PRECONDITION_FAILED)
    return isinstance(error, UnsupportedAMQPFieldException | ValueError | TypeError | StructError)


async def _within(waiting: Any, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        pass


def sendable(value: Any) -> Any:
    """As pika takes it: octets of both kinds are sent as one kind."""
    if isinstance(value, dict):
        return {name: sendable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [sendable(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def canonical(value: Any) -> Any:
    """The same for what is to be sent, and for what the source shows of it then: else it would be bound anew, and
    unbound."""
    if isinstance(value, dict):
        return {name: canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return [canonical(each) for each in value]
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # of 64 bits, or a time: equal ones match
    return bytearray(value) if isinstance(value, bytes) else value


def _destination(item: Json) -> Destination:
    return bool(item["to_exchange"]), str(item["destination"])


def _read(item: Json) -> tuple[Destination, Bound]:
    """Of an answer."""
    table = decode_table(b64decode(item["arguments"]))[0]
    path = read_path(table.get(FED_PATH))
    rest = {name: canonical(value) for name, value in table.items() if name not in _KEPT_HERE}
    return _destination(item), Bound((b64decode(item["key"]), encode_table(rest)), path)
