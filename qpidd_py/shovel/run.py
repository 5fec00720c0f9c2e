"""One run of a shovel: a connection to its source, one to its destination, and what goes between them.         Shell.

A message is acknowledged at the source when the destination has confirmed it (`ack-mode` on-confirm), so neither a
fail-over of one of them nor the end of this process loses it; one that comes again is marked `x-resent`.  A connection
to another cluster fails over by itself.  What is not acknowledged is here at most `src-prefetch-count` times.

A run ends with an error (a queue or a right is missing, the destination refuses a message, its own broker is not the
primary any more), when it has moved what `src-delete-after` says, or by being cancelled.  Its unacknowledged messages
are back in their queue then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from client_lib import Message, MessagingError, ServerError, aio
from client_lib.forwarded import Forwarded, Headers
from client_lib.urls.url import Endpoint, Given
from qpidd_py.broker.parameters import NEVER, NO_ACK, ON_CONFIRM, ON_PUBLISH, QUEUE_LENGTH, addresses, local_host
from qpidd_py.cli.output import describe
from qpidd_py.errors import ReplyCode
from qpidd_py.shovel.federation import Verdict, traces
from qpidd_py.shovel.follower import Follower
from qpidd_py.shovel.here import Here

PREFETCH: Final = 1000
CLOSE_TIME: Final = 1.0
"""Seconds for what is unconfirmed when a run ends."""
EXPIRES: Final = 7 * 86400 * 1000
"""Milliseconds that a named queue of an exchange is kept without a shovel."""
SHOVELLED: Final = "x-shovelled"
STAMP: Final = "x-shovelled-timestamp"
TRACE: Final = "x-qpid.trace"
"""Qpid's header of the tags of a message's way, with commas between them."""
TAKE_DOWN: Final = 5.0
"""Seconds for taking down what a deleted route has left at its source."""
Value = Mapping[str, Any]
Local = Callable[[str], tuple[Endpoint, Mapping[str, Any]]]
log = logging.getLogger(__name__)


class Run:
    """See the head of this module.  `local`: address and options for a virtual host of the cluster of this program's
    broker; `moved`: by earlier runs of this shovel; `here`: of a route that follows bindings."""

    def __init__(
        self, name: str, host: str, value: Value, local: Local, moved: int = 0, here: Here | None = None
    ) -> None:
        self.moved = moved
        """Messages that the destination has taken, or that were sent with another ack-mode."""
        self._name, self._host, self._value, self._local = name, host, value, local
        self._follower = None if here is None else Follower(here, name, value)
        self._after = value.get("src-delete-after", NEVER)
        self._ends: list[aio.Connection] = []
        self._outcomes: asyncio.Queue[tuple[Message, MessagingError | None]] = asyncio.Queue()
        self._senders: dict[str, aio.Sender] = {}
        self._moves = False
        self._mode = value.get("ack-mode", ON_CONFIRM)
        self._prefetch = value.get("src-prefetch-count", PREFETCH)

    async def move(self) -> None:
        """Returns when `src-delete-after` is reached.  Raises MessagingError, ValueError, OSError."""
        # A source that was lost may give messages again that were moved: what is left to move is counted anew.
        async with self._connected("src-uri", reconnect=self._after == NEVER) as source:
            queue = await self._source_queue(source)
            limit = await self._limit(source, queue)
            if limit == 0:
                return
            if self._follower is not None:
                await self._follower.begin(source)
            taking = await source.session()
            try:
                async with self._connected("dest-uri") as destination:
                    await self._check_destination(destination)
                    fetched = min(self._prefetch, limit or self._prefetch)
                    consumer = self._value.get("src-consumer-args", {})
                    receiver = await taking.queue_receiver(queue, fetched, self._mode == NO_ACK, arguments=consumer)
                    giving, self._moves = await destination.session(), True
                    work = [self._forward(receiver, taking, giving, limit), self._settle(taking, limit)]
                    if self._follower is not None:
                        work += [self._follower.bind(source), self._follower.listen(source)]
                    await _all_of(*work)
            finally:
                await self._settle_late(taking)

    # ---- what is shown

    @property
    def pending(self) -> int:
        """Messages on their way."""
        return sum(sender.unsettled() for sender in self._senders.values())

    @property
    def running(self) -> bool:
        return self._moves and all(each.is_connected for each in self._ends)

    @property
    def trouble(self) -> str:
        """Why there is no connection."""
        lost = next((each for each in self._ends if not each.is_connected), None)
        return "" if lost is None else lost.link.trouble.removeprefix("; last: ")

    def place(self, number: int) -> str:
        """Where the source (0) or the destination (1) is now."""
        found = self._ends[number].address if number < len(self._ends) else None
        return "" if found is None else str(found)

    # ---- both ends

    @contextlib.asynccontextmanager
    async def _connected(self, name: str, reconnect: bool = True) -> AsyncIterator[aio.Connection]:
        given, options = _address(self._value[name], self._local)
        connection = aio.Connection(
            given, client_id=f"Shovel {self._name}", reconnect=reconnect and not isinstance(given, Endpoint), **options
        )
        self._ends.append(connection)
        try:
            await connection.open()
            _check_home(given, connection.address)
            yield connection
        finally:
            await connection.close(CLOSE_TIME)

    async def _source_queue(self, source: aio.Connection) -> str:
        """Declared where it is missing; of an exchange one of its own, which ends with the connection unless it has a
        name."""
        value = self._value
        if "src-queue" in value:
            await _ensure(source, value["src-queue"], value.get("src-queue-args"))
            return str(value["src-queue"])
        session, name = await source.session(), value.get("src-exchange-queue")
        if self._follower is not None:
            await _ensure(source, str(name), {"x-expires": EXPIRES})
            return str(name)
        if name is not None:
            await _ensure(source, name, {"x-expires": EXPIRES})
        else:
            name = await session.declare_queue(exclusive=True)
        await session.bind_queue(name, value["src-exchange"], value.get("src-exchange-key", ""))
        return str(name)

    async def _limit(self, source: aio.Connection, queue: str) -> int | None:
        """How many messages to move; None: all."""
        if self._after == QUEUE_LENGTH:
            session = await source.session()
            return int((await session.declare("queue_declare", False, queue=queue, passive=True)).method.message_count)
        return None if self._after == NEVER else max(0, self._after - self.moved)

    async def _check_destination(self, destination: aio.Connection) -> None:
        value = self._value
        if "dest-queue" in value:
            await _ensure(destination, value["dest-queue"], value.get("dest-queue-args"))
        elif "dest-exchange" in value:
            async with await destination.session() as session:
                await session.declare_exchange(value["dest-exchange"], passive=True)

    # ---- between them

    async def _forward(
        self, receiver: aio.Receiver, taking: aio.Session, giving: aio.Session, limit: int | None
    ) -> None:
        properties, headers = self._value.get("dest-publish-properties"), self._headers()
        excluded = frozenset(self._value.get("src-exclude-traces", ()))
        taken = 0
        while limit is None or taken < limit:
            message = await receiver.fetch()
            taken += 1
            verdict = self._judge(message, excluded)
            if verdict is Verdict.LEAVE:
                await taking.acknowledge(message, sync=False)
                continue
            forwarded = Forwarded(message, properties, headers)
            forwarded.doubtful |= verdict is Verdict.MARK
            forwarded.subject = self._value.get("dest-queue", self._value.get("dest-exchange-key", message.routing_key))
            await self._sender(giving, message).send(forwarded, sync=False)
            if self._mode != ON_CONFIRM:
                self._outcomes.put_nowait((message, None))

    def _judge(self, message: Message, excluded: frozenset[str]) -> Verdict:
        if self._follower is not None:
            return self._follower.judge([*traces(message.properties, TRACE), self._follower.source])
        known = not excluded or excluded.isdisjoint(traces(message.properties, TRACE))
        return Verdict.TAKE if known else Verdict.LEAVE

    def _sender(self, giving: aio.Session, message: Message) -> aio.Sender:
        """To the queue or exchange that is wanted, or to the exchange where the message came from."""
        value = self._value
        exchange = value.get("dest-exchange", "" if "dest-queue" in value else message.exchange)
        found = self._senders.get(exchange)
        if found is None:
            mandatory = exchange == ""  # an exchange may well have no queue, as for any publisher
            found = giving.queue_sender("", exchange, self._prefetch, mandatory, self._settled)
            self._senders[exchange] = found
        return found

    def _settled(self, message: Message, _: str, error: MessagingError | None) -> None:
        assert isinstance(message, Forwarded)
        if error is not None or self._mode == ON_CONFIRM:
            self._outcomes.put_nowait((message.source, error))

    async def _settle(self, taking: aio.Session, limit: int | None) -> None:
        """Raises what the destination has refused."""
        settled = 0
        while limit is None or settled < limit:
            message, error = await self._outcomes.get()
            if error is not None:
                raise error
            if self._mode != NO_ACK:
                await taking.acknowledge(message, sync=False)
            settled += 1
            self.moved += 1
        if self._mode == ON_PUBLISH:
            for sender in self._senders.values():
                await sender.sync()
        await taking.fence()

    async def _settle_late(self, taking: aio.Session) -> None:
        """What was confirmed while the destination was closed, so that it does not come again."""
        with contextlib.suppress(MessagingError):
            while self._mode == ON_CONFIRM and not self._outcomes.empty():
                message, error = self._outcomes.get_nowait()
                if error is None:
                    await taking.acknowledge(message, sync=False)
                    self.moved += 1
            await taking.fence(CLOSE_TIME)

    def _headers(self) -> Headers | None:
        """Those that are asked for."""
        forward, stamp = (self._value.get(f"dest-add-{name}") for name in ("forward-headers", "timestamp-header"))
        source = "" if self._follower is None else self._follower.source
        trace = [each for each in (source, str(self._value.get("dest-add-trace", ""))) if each]
        if not forward and not stamp and not trace:
            return None
        names = ("src-queue", "src-exchange", "src-exchange-key", "dest-queue", "dest-exchange", "dest-exchange-key")
        said = {name: self._value[name] for name in names if name in self._value}
        way = {"shovel-type": "dynamic", "shovel-name": self._name, "shovel-vhost": self._host, **said}

        def added(headers: dict[str, Any]) -> dict[str, Any]:
            former = headers.get(SHOVELLED)
            ways = [way, *(former if isinstance(former, list) else [])]
            passed = list(dict.fromkeys([*traces(headers, TRACE), *trace]))
            return {
                **headers,
                **({SHOVELLED: ways} if forward else {}),
                **({STAMP: int(time.time())} if stamp else {}),
                **({TRACE: ",".join(passed)} if trace else {}),
            }

        return added


def _address(value: Any, local: Local) -> tuple[Given, Mapping[str, Any]]:
    """And options, for `client_lib`."""
    host = local_host(value)
    return (addresses(value), {}) if host is None else local(host)


def _check_home(given: Given, found: Endpoint | None) -> None:
    """A backup names the primary, which has a worker of its own: two at once would put messages out of order."""
    if isinstance(given, Endpoint) and found is not None and not given.same_place(found):
        raise MessagingError(f"{given} is not the primary, which is {found}")


async def take_down(name: str, value: Value) -> None:
    """The queue of a deleted route, with what is in it; if it cannot be had now, it ends by itself (EXPIRES)."""
    try:
        options = {"reconnect": False, "client_id": f"Shovel {name}"}
        async with asyncio.timeout(TAKE_DOWN), aio.Connection(addresses(value["src-uri"]), **options) as source:
            session = await source.session()
            await session.delete_queue(value["src-exchange-queue"])
    except (MessagingError, ValueError, OSError) as error:  # a timeout is an OSError
        log.warning("shovel %s: its queue is left at the source for a week: %s", name, describe(error))


async def _ensure(connection: aio.Connection, queue: str, arguments: Mapping[str, Any] | None) -> None:
    """Declares a queue, durable, if there is none of that name."""
    try:
        async with await connection.session() as session:
            await session.declare("queue_declare", False, queue=queue, passive=True)
    except ServerError as error:
        if error.reply_code != ReplyCode.NOT_FOUND:
            raise
        async with await connection.session() as session:
            table = dict(arguments or {})
            await session.declare("queue_declare", False, queue=queue, durable=True, arguments=table)


async def _all_of(*work: Any) -> None:
    """Ends with the first error; a group of tasks would hide it in a group of errors."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
