"""Restores the messages of a salvage file: publishes them to the present primary as a client.                    Shell.

Restoring is the union of both histories: nothing that the cluster holds is replaced.  A message is marked as restored
when the primary has confirmed it, so a repeated restore sends only the rest.  If this broker dies between the confirm
and the mark, the next restore sends such messages again; it reports how many these may be (`maybe_twice`), and they
have the same message id and `x-recovered`.  Messages that no queue takes stay in the file.  The other brokers are told,
since they may have put the same messages aside (`salvage/copies.py`); `untold` names those that did not answer.

If this broker is the primary, it connects to itself as a client.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from ha.dial import Dial
from ha.model.environment import Answer, Json, Outcome
from ha.model.salvaged import Record
from ha.model.settings import split_address
from ha.salvage.copies import Copies, key_to_json, keys_from_json
from ha.salvage.files import SalvageFiles
from ha.salvage.lines import recovered_header
from ha.salvage.publisher import NoHostError, Publisher, RestoreOutcome
from qpidd_py.amqp.fields import FieldError
from qpidd_py.errors import LinkError

log = logging.getLogger("ha")

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


@dataclass
class Restored:
    """The result of a restore."""

    file: str
    restored: int = 0
    before: int = 0
    """Restored by earlier attempts."""
    maybe_twice: int = 0
    """Sent again, because an earlier attempt was interrupted before it could record their outcome."""
    stay: Counter[tuple[str, str]] = field(default_factory=Counter)
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


class Restorer:
    """One per broker; a file is restored by one request at a time."""

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
        self._busy: set[str] = set()
        self._dial = dial
        self._address_of = address_of

    def check_idle(self, name: str) -> None:
        """Raises LinkError."""
        if name in self._busy:
            raise LinkError(f"{name} is being restored")

    async def restore(self, name: str, after: int) -> Json:
        """The messages behind number `after`.  Raises LinkError; what ends it on the way is in the answer."""
        self.check_idle(name)
        address = self._peers.primary()
        if not address:
            raise LinkError("the primary is not known")
        self._busy.add(name)
        try:
            return await self._restore_to(name, after, address)
        finally:
            self._busy.discard(name)

    async def restored(self, arguments: Json) -> Json:
        """Another broker has restored these messages."""
        keys = keys_from_json(arguments.get("messages"))
        return {"noted": await asyncio.to_thread(self._copies.restored_elsewhere, keys)}

    async def _restore_to(self, name: str, after: int, address: str) -> Json:
        marks = await asyncio.to_thread(self._files.marks, name)
        result = Restored(name, before=len(marks.restored), maybe_twice=len(marks.tried))
        records = (item for item in self._files.records(name) if item[0] > after and item[0] not in marks.restored)
        time, end = self._files.time(name), self._loop.time() + TURN
        try:
            async with AsyncExitStack() as stack:
                connections = _Connections(address, self._dial, stack)
                while batch := await asyncio.to_thread(_batch, records):
                    for host in dict.fromkeys(record.host for _, record in batch):
                        part = [(number, record) for number, record in batch if record.host == host]
                        await self._send(name, part, time, await connections.to(host), result)
                    if self._loop.time() > end:
                        result.next = batch[-1][0]
                        break
        except (LinkError, OSError) as error:
            result.error = f"{address}: {error}"
        log.warning("salvage: %d messages of %s are restored to %s", result.restored, name, address)
        return result.to_json()

    async def _send(
        self, name: str, batch: list[Numbered], time: int, connection: _Connection | None, result: Restored
    ) -> None:
        """One batch: mark it as tried, send it, wait for all outcomes, mark them.  Raises LinkError and OSError.
        `connection` None: its virtual host is not there."""
        queues = {number: record.label for number, record in batch}
        if connection is None:
            result.stay.update((queue, RestoreOutcome.NO_HOST.value) for queue in queues.values())
            return
        await asyncio.to_thread(self._files.mark, name, "tried", list(queues))
        outcomes = self._publish(batch, time, connection.publisher)
        async for number, outcome in connection.outcomes():
            outcomes.append((number, "" if outcome is RestoreOutcome.RESTORED else outcome.value))
        done = [number for number, why in outcomes if not why]
        restored = set(done)
        for what, numbers in (("restored", done), ("refused", [number for number, why in outcomes if why])):
            if numbers:
                await asyncio.to_thread(self._files.mark, name, what, numbers)
        await self._tell(name, [record for number, record in batch if number in restored], result)
        result.restored += len(done)
        result.stay.update((queues[number], why) for number, why in outcomes if why)

    def _publish(self, batch: list[Numbered], time: int, publisher: Publisher) -> list[tuple[int, str]]:
        """Returns those that cannot be published, each with the reason."""
        left = []
        for number, record in batch:
            address = self._address_of(record)
            try:
                header = recovered_header(record, self._broker, time)
            except FieldError as error:
                left.append((number, f"its content header cannot be read: {error}"))
                continue
            if address is None:
                left.append((number, RestoreOutcome.NO_EXCHANGE.value))
            else:
                publisher.publish(number, *address, header, record.body)
        return left

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


def _batch(records: Iterator[Numbered]) -> list[Numbered]:
    found: list[Numbered] = []
    octets = 0
    for item in records:
        found.append(item)
        octets += len(item[1].body)
        if len(found) == BATCH or octets >= BATCH_SIZE:
            break
    return found


class _Connections:
    """One for each virtual host."""

    def __init__(self, address: str, dial: Dial, stack: AsyncExitStack) -> None:
        self._address, self._dial, self._stack = address, dial, stack
        self._open: dict[str, _Connection | None] = {}

    async def to(self, host: str) -> _Connection | None:
        """None if the virtual host is not there.  Raises LinkError and OSError."""
        if host not in self._open:
            try:
                made = _Connection(self._address, self._dial, host)
                self._open[host] = await self._stack.enter_async_context(made)
            except NoHostError:
                self._open[host] = None
        return self._open[host]


class _Connection:
    """A connection to the primary; open and ready inside `async with`."""

    def __init__(self, address: str, dial: Dial, host: str) -> None:
        self._address, self._dial = address, dial
        self.publisher = Publisher(dial.login, host)
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
