"""One run of a route that follows bindings.                                                                   Shell.

It has the queue at the source bound like the exchange here (`here.py`), and listens by which ways messages come to the
source.  The rules are in `federation.py`.

The bindings of the queue at the source outlive a run, and a worker that does not know yet that its broker was deposed
may change them beside us: they are looked at when a run begins, once more after RECHECKS, and mended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from struct import error as StructError
from typing import Any, Final

from pika.exceptions import UnsupportedAMQPFieldException

from client_lib import InvalidOption, MessagingError, ServerError, aio
from qpidd_py.errors import ReplyCode
from qpidd_py.shovel.beside import Json
from qpidd_py.shovel.bound import arguments_of, read_bound
from qpidd_py.shovel.federation import Bound, Path, Terms, Verdict, read_path
from qpidd_py.shovel.here import Here, NotOurs, within

log = logging.getLogger(__name__)
Value = Mapping[str, Any]

LISTEN: Final = 1.0
"""Seconds between two questions to the source."""
RECHECKS: Final = (15.0, 300.0)
"""Seconds; the last one again and again."""
AT_ONCE: Final = 100
"""Bindings that are made without waiting for the answer of each."""


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
                        await within(self._here.change(), left)
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
            for bound in (read_bound(each)[1] for each in page):
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
        where = {"queue": self._queue, "exchange": self._exchange, "routing_key": bound.terms[0]}
        await session.declare(method, False, **where, arguments=arguments_of(bound))


def _is_refusal(error: BaseException) -> bool:
    """Of one binding: the source refuses it, or its arguments cannot be sent."""
    if isinstance(error, ServerError):
        return error.reply_code in (ReplyCode.ACCESS_REFUSED, ReplyCode.PRECONDITION_FAILED)
    return isinstance(error, UnsupportedAMQPFieldException | ValueError | TypeError | StructError)
