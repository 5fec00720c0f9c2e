"""The management method `ha.salvage`: list, show, restore and discard salvage files.                            Shell.

    {"action": "list"}                          {"files": [...], "limit": octets of all files together}
    {"action": "show", "file", "offset", "limit"}    the messages from number `offset` + 1 on, and how many are left
    {"action": "restore", "file", "after"}      publishes those behind number `after` to the present primary, each to
                                                the queue that it was in, or to the exchange in which it
                                                waited, to wait anew; `next` is where to go on, 0 at the end
    {"action": "restored", "messages"}          from another broker: it has restored these, from a file of its own
    {"action": "discard", "file"}               deletes the file, restored or not

Restoring is the union of both histories: nothing that the cluster holds is replaced.  A message is marked as restored
when the primary has confirmed it, so a repeated restore sends only the rest.  If this broker dies between the confirm
and the mark, the next restore sends such messages again; it reports how many these may be (`maybe_twice`), and they
have the same message id and `x-recovered`.  Messages that no queue takes stay in the file.  The other brokers are told,
since they may have put the same messages aside (`salvage/copies.py`); `untold` names those that did not answer.

If this broker is the primary, it connects to itself as a client.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ha.dial import Dial
from ha.model.environment import Answer, Json, Outcome
from ha.model.position import text
from ha.model.protocol import need
from ha.model.salvaged import Record
from ha.model.settings import split_address
from ha.salvage.copies import Copies, key_to_json, keys_from_json
from ha.salvage.files import Marks, Place, SalvageFiles
from ha.salvage.lines import SalvageError, recovered_header
from ha.salvage.publisher import Publisher, RestoreOutcome
from qpidd_py.amqp.fields import FieldError
from qpidd_py.errors import LinkError

log = logging.getLogger("ha")

Reply = Callable[[Json], None]
Numbered = tuple[int, Record]

BATCH: Final = 256
"""Most messages under way to the primary at once."""
BATCH_SIZE: Final = 1 << 20
"""Octets of bodies read at once, approximately."""
TURN: Final = 3.0
"""Seconds after which a restore answers, finished or not: the caller has a timeout."""
PATIENCE: Final = 10.0
"""Seconds of silence of the primary after which a restore gives up."""
TELL_LIMIT: Final = 1.0
"""Seconds that another broker has to mark what was restored."""
SHOWN: Final = 1000
"""Messages in one answer to `show`."""
SHOWN_BODY: Final = 4096
"""Octets of a body in an answer to `show`."""


OPENED: Final = 16
"""Files of which the place of the next page is remembered."""


class _Opened(NamedTuple):
    """Where the next page of a file begins."""

    summary: Json
    place: Place

    @property
    def size(self) -> int:
        return int(self.summary.get("octets", -1))


@dataclass
class Restored:
    """The result of a restore."""

    file: str
    restored: int = 0
    before: int = 0
    """Restored by earlier attempts."""
    maybe_twice: int = 0
    """Sent again, because an earlier attempt was interrupted before it could record their outcome."""
    stay: dict[tuple[str, str], int] = field(default_factory=dict)
    """(queue, reason) -> number of messages that stay in the file."""
    untold: list[str] = field(default_factory=list)
    """Addresses of brokers that could not be told what was restored."""
    next: int = 0
    """Number of the last message examined, if there are more."""
    error: str = ""
    """Why it ended early."""

    def to_json(self) -> Json:
        stay = [{"queue": queue, "why": why, "messages": number} for (queue, why), number in sorted(self.stay.items())]
        return {**vars(self), "stay": stay}


@dataclass(frozen=True)
class Peers:
    """The other brokers."""

    primary: Callable[[], str]
    """Returns the primary's address as HOST:PORT; our own if we are primary, empty if it is not known."""
    others: Callable[[], list[str]]
    """Returns the addresses of all other brokers."""
    request: Callable[[str, str, Json, float, Callable[[Answer], None]], None]
    """`environment.Environment.request`"""


class SalvageDoor:
    """Answers `ha.salvage`; one per broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        files: SalvageFiles,
        broker: str,
        peers: Peers,
        dial: Dial,
        address_of: Callable[[Record], tuple[str, str] | None],
    ) -> None:
        """`broker`: the name of this broker.  `address_of`: exchange and routing key by which it comes back; None
        if the exchange in which it waited is gone."""
        self._loop = loop
        self._files = files
        self._broker = broker
        self._peers = peers
        self._copies = Copies(files)
        self._dial = dial
        self._address_of = address_of
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        self._opened: dict[tuple[str, int], _Opened] = {}
        self._actions: dict[str, Callable[[Json], Coroutine[Any, Any, Json]]] = {
            "list": self._list,
            "show": self._show,
            "restore": self._restore,
            "restored": self._restored,
            "discard": self._discard,
        }

    def request(self, arguments: Json, user: str, reply: Reply) -> None:
        """Raises LinkError for an action that does not exist."""
        action = self._actions.get(str(arguments.get("action")))
        if action is None:
            raise LinkError(f"action {arguments.get('action')!r}, expected {', '.join(self._actions)}")
        task = self._loop.create_task(self._answer(action(arguments), reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answer(self, result: Coroutine[Any, Any, Json], reply: Reply) -> None:
        try:
            reply({"ok": True, "result": await result})
        except (LinkError, SalvageError, OSError) as error:
            reply({"ok": False, "error": str(error)})

    # ---- looking --------------------------------------------------------------------------------------------------

    async def _list(self, arguments: Json) -> Json:
        return {"files": await asyncio.to_thread(self._summaries), "limit": self._files.limit}

    def _summaries(self) -> list[Json]:
        return [self._summary(name) for name in self._files.names()]

    def _summary(self, name: str) -> Json:
        try:
            summary = self._files.summary(name)
        except (SalvageError, OSError) as error:
            return {"file": name, "error": str(error)}
        shown = {**vars(summary), **vars(summary.header)}
        del shown["header"]
        return shown

    async def _show(self, arguments: Json) -> Json:
        name = need(arguments, "file", str)
        offset, limit = arguments.get("offset", 0), arguments.get("limit", SHOWN)
        if not isinstance(offset, int) or not isinstance(limit, int) or offset < 0 or limit < 1:
            raise LinkError(f"offset {offset!r} and limit {limit!r}, expected numbers from 0 and from 1 on")
        return await asyncio.to_thread(self._messages, name, offset, min(limit, SHOWN))

    def _messages(self, name: str, offset: int, limit: int) -> Json:
        """In a thread; one page costs what it shows, if it follows another one, whatever the size of the file."""
        opened, marks = self._opened.pop((name, offset), None), self._files.marks(name)
        if opened is None or opened.size != self._files.size(name):
            opened = _Opened(self._summary(name), self._behind(name, offset))
        summary = opened.summary
        found, place = self._files.page(name, opened.place, limit)
        left = max(0, summary.get("found", 0) - offset - len(found)) if found else 0
        if left:
            self._opened[name, offset + len(found)] = _Opened(summary, place)
            for key in list(self._opened)[:-OPENED]:
                self._opened.pop(key, None)
        return {**summary, "messages": [_shown(number, record, marks) for number, record in found], "left": left}

    def _behind(self, name: str, offset: int) -> Place:
        place = Place()
        while offset > 0:
            found, place = self._files.page(name, place, min(offset, SHOWN))
            if not found:
                break
            offset -= len(found)
        return place

    # ---- changing -------------------------------------------------------------------------------------------------

    async def _discard(self, arguments: Json) -> Json:
        name = need(arguments, "file", str)
        self._check_idle(name)
        summary = await asyncio.to_thread(self._summary, name)
        await asyncio.to_thread(self._files.discard, name)
        dropped = summary.get("found", 0) - summary.get("restored", 0)
        log.warning("salvage: %s is discarded, with %d messages that were not restored", name, dropped)
        return {"file": name, "dropped": dropped}

    async def _restore(self, arguments: Json) -> Json:
        name = need(arguments, "file", str)
        after = need({"after": 0, **arguments}, "after", int)
        self._check_idle(name)
        address = self._peers.primary()
        if not address:
            raise LinkError("the primary is not known")
        self._busy.add(name)
        try:
            return await self._restore_to(name, after, address)
        finally:
            self._busy.discard(name)

    def _check_idle(self, name: str) -> None:
        if name in self._busy:
            raise LinkError(f"{name} is being restored")

    async def _restore_to(self, name: str, after: int, address: str) -> Json:
        marks = await asyncio.to_thread(self._files.marks, name)
        result = Restored(name, before=len(marks.restored), maybe_twice=len(marks.tried))
        records = (item for item in self._files.records(name) if item[0] > after and item[0] not in marks.restored)
        time, end = self._files.time(name), self._loop.time() + TURN
        try:
            async with _Connection(address, self._dial) as connection:
                while batch := await asyncio.to_thread(_batch, records):
                    await self._send(name, batch, time, connection, result)
                    if self._loop.time() > end:
                        result.next = batch[-1][0]
                        break
        except (LinkError, OSError) as error:
            result.error = f"{address}: {error}"
        log.warning("salvage: %d messages of %s are restored to %s", result.restored, name, address)
        return result.to_json()

    async def _send(
        self, name: str, batch: list[Numbered], time: int, connection: _Connection, result: Restored
    ) -> None:
        """One batch: mark it as tried, send it, wait for all outcomes, mark them.  Raises LinkError and OSError."""
        queues = {number: record.queue for number, record in batch}
        await asyncio.to_thread(self._files.mark, name, "tried", list(queues))
        outcomes: list[tuple[int, str]] = []
        for number, record in batch:
            try:
                header = recovered_header(record, self._broker, time)
            except FieldError as error:
                outcomes.append((number, f"its content header cannot be read: {error}"))
                continue
            address = self._address_of(record)
            if address is None:
                outcomes.append((number, RestoreOutcome.NO_EXCHANGE.value))
                continue
            connection.publisher.publish(number, *address, header, record.body)
        async for number, outcome in connection.outcomes():
            outcomes.append((number, "" if outcome is RestoreOutcome.RESTORED else outcome.value))
        await self._note(name, outcomes)
        done = {number for number, why in outcomes if not why}
        await self._tell(name, [record for number, record in batch if number in done], result)
        result.restored += len(done)
        for number, why in outcomes:
            if why:
                key = queues[number], why
                result.stay[key] = result.stay.get(key, 0) + 1

    async def _tell(self, name: str, records: list[Record], result: Restored) -> None:
        """Mark our other files, then tell the other brokers in parallel; one that did not answer is not asked again."""
        keys = [key_to_json(record) for record in records]
        if not keys:
            return
        await asyncio.to_thread(self._copies.restored_elsewhere, keys_from_json(keys), name)
        addresses = [address for address in self._peers.others() if address not in result.untold]
        answers = await asyncio.gather(*(self._request(address, keys) for address in addresses))
        result.untold += [address for address, told in zip(addresses, answers, strict=True) if not told]

    async def _request(self, address: str, keys: list[list[str]]) -> bool:
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def done(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        arguments = {"action": "restored", "messages": keys}
        self._peers.request(address, "ha.salvage", arguments, TELL_LIMIT, done)
        answer = await answered
        return answer.outcome is Outcome.ANSWERED and not answer.error

    async def _restored(self, arguments: Json) -> Json:
        keys = keys_from_json(arguments.get("messages"))
        return {"noted": await asyncio.to_thread(self._copies.restored_elsewhere, keys)}

    async def _note(self, name: str, outcomes: list[tuple[int, str]]) -> None:
        for what, numbers in (
            ("restored", [number for number, why in outcomes if not why]),
            ("refused", [number for number, why in outcomes if why]),
        ):
            if numbers:
                await asyncio.to_thread(self._files.mark, name, what, numbers)


def _batch(records: Iterator[Numbered]) -> list[Numbered]:
    found: list[Numbered] = []
    octets = 0
    for item in records:
        found.append(item)
        octets += len(item[1].body)
        if len(found) == BATCH or octets >= BATCH_SIZE:
            break
    return found


def _shown(number: int, record: Record, marks: Marks) -> Json:
    state = "restored" if number in marks.restored else "tried" if number in marks.tried else ""
    shown: Json = {"number": number, "id": text(record.id), "queue": record.queue, "grade": record.grade.value}
    shown.update(redelivered=record.redelivered, arrival=record.arrival or None, octets=len(record.body), state=state)
    shown.update(exchange=_readable(record.exchange), routing_key=_readable(record.routing_key))
    return {**shown, "body": _readable(record.body[:SHOWN_BODY])}


def _readable(octets: bytes) -> str | Json:
    """The octets as text if they are UTF-8, as elsewhere in management."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(octets).decode()}


class _Connection:
    """A connection to the primary; open and ready inside `async with`."""

    def __init__(self, address: str, dial: Dial) -> None:
        self._address, self._dial = address, dial
        self.publisher = Publisher(dial.login)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> _Connection:
        async with asyncio.timeout(PATIENCE):
            where, options = split_address(self._address), self._dial.options(self._address, PATIENCE)
            self._reader, self._writer = await asyncio.open_connection(*where, **options)
        try:
            while not self.publisher.ready:
                await self._talk()
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.publisher.close()
        self._writer.write(self.publisher.take_output())
        self._writer.close()

    async def outcomes(self) -> AsyncIterator[tuple[int, RestoreOutcome]]:
        """Yields outcomes until nothing is under way.  Raises LinkError and OSError."""
        while self.publisher.outstanding:
            for item in await self._talk():
                yield item

    async def _talk(self) -> list[tuple[int, RestoreOutcome]]:
        self._writer.write(self.publisher.take_output())
        try:
            async with asyncio.timeout(PATIENCE):
                await self._writer.drain()
                data = await self._reader.read(1 << 16)
        except TimeoutError as error:
            raise LinkError(f"nothing received for {PATIENCE:g} s") from error
        if not data:
            raise LinkError("the connection was closed")
        return self.publisher.feed(data)
