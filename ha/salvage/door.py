"""The management method `ha.salvage`: list, show, restore and discard salvage files.                            Shell.

    {"action": "list"}                          {"files": [...], "limit": octets of all files together}
    {"action": "show", "file", "offset", "limit"}    the messages from number `offset` + 1 on, and how many are left
    {"action": "restore", "file", "after"}      publishes those behind number `after` to the present primary, each to
                                                the queue that it was in, or to the exchange in which it
                                                waited, to wait anew; `next` is where to go on, 0 at the end
    {"action": "restored", "messages"}          from another broker: it has restored these, from a file of its own
    {"action": "discard", "file"}               deletes the file, restored or not

Files are read in threads.  `restorer.py` restores.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from ha.model.environment import Json
from ha.model.position import text
from ha.model.protocol import need
from ha.model.salvaged import Record
from ha.salvage.files import Marks, Place, SalvageFiles
from ha.salvage.lines import SalvageError
from ha.salvage.restorer import Restorer
from qpidd_py.errors import LinkError

log = logging.getLogger("ha")

Reply = Callable[[Json], None]

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


class SalvageDoor:
    """Answers `ha.salvage`; one per broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, files: SalvageFiles, restorer: Restorer) -> None:
        self._loop = loop
        self._files = files
        self._restorer = restorer
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened: dict[tuple[str, int], _Opened] = {}
        self._actions: dict[str, Callable[[Json], Coroutine[Any, Any, Json]]] = {
            "list": self._list,
            "show": self._show,
            "restore": self._restore,
            "restored": self._restorer.restored,
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
        del shown["header"], shown["hosts"]
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
        self._restorer.check_idle(name)
        summary = await asyncio.to_thread(self._summary, name)
        await asyncio.to_thread(self._files.discard, name)
        dropped = summary.get("found", 0) - summary.get("restored", 0)
        log.warning("salvage: %s is discarded, with %d messages that were not restored", name, dropped)
        return {"file": name, "dropped": dropped}

    async def _restore(self, arguments: Json) -> Json:
        return await self._restorer.restore(need(arguments, "file", str), need({"after": 0, **arguments}, "after", int))


def _shown(number: int, record: Record, marks: Marks) -> Json:
    state = "restored" if number in marks.restored else "tried" if number in marks.tried else ""
    shown: Json = {"number": number, "id": text(record.id), "queue": record.label, "grade": record.grade.value}
    shown.update(redelivered=record.redelivered, arrival=record.arrival or None, octets=len(record.body), state=state)
    shown.update(exchange=_readable(record.exchange), routing_key=_readable(record.routing_key))
    return {**shown, "body": _readable(record.body[:SHOWN_BODY])}


def _readable(octets: bytes) -> str | Json:
    """The octets as text if they are UTF-8, as elsewhere in management."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(octets).decode()}
