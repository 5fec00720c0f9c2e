"""`ha.backup`: a consistent copy of configuration and messages, in bounded slices, while the broker runs.

    {"action": "begin", "messages": true|false}   {"id", "broker", "queues", "messages", "octets", "leaders",
                                                   "remember": queues whose remembered keys are not copied,
                                                   "hosts": are there other virtual hosts than `/`?}
    {"action": "next", "id"}                      {"messages": [...], "left"}, again and again; then, with "position",
                                                  {"objects": [...]} and {"held": [...]}, as often as needed;
                                                  {"end": true}
    {"action": "cancel", "id"}                    {}

Theory.  Passes over all queues: the first one copies what is older than its *cut*, the end of the log when it begins;
each later one what came since the cut before.  When the rest fits into one slice, the last slice, the configuration
and the ids that each queue holds are taken in one turn: that turn's position is that of the copy.  What was copied and
has left its queue since is not among these ids, so the tool drops it; what is among them and was not copied would be a
defect of the copy, and the tool refuses it.  Nothing is kept for the copy: no message waits for it, no memory grows
with it.

A slice takes a share of the loop only (`REST`).  A copy that is not asked for `IDLE` seconds is over.
                                                                                                                 Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from ha.model.environment import Json, Reply
from ha.model.protocol import need
from qpidd_py.broker.broker import Broker
from qpidd_py.core import Queue, soon
from qpidd_py.errors import LinkError, RotError
from qpidd_py.store.archive import Message
from qpidd_py.store.content import Objects, kept_queues, next_messages

SLICE: Final = 256 << 10
"""Octets of headers and bodies in one answer, approximately; a larger message is answered alone."""
MOST: Final = 512
"""Messages in one answer."""
REST: Final = 2.0
"""A slice is answered so many times later than it took."""
PAUSE: Final = 0.05
"""Seconds until a slice that lacks messages is answered."""
IDLE: Final = 60.0
COPIES: Final = 2
"""At the same time."""
PIECE: Final = 192 << 10
"""Octets of ids or objects in one answer."""

LAST: Final = (1 << 64) - 1
After = Callable[[float, Callable[[], None]], None]
Numbered = tuple[int, Message]
"""(number of its queue, message)"""
Held = tuple[Queue, int, bytes]
"""(queue, up to which id messages were handed out, encoded ids)"""
Item = TypeVar("Item")


class Copying:
    """One copy."""

    def __init__(self, broker: Broker, with_messages: bool, now: float) -> None:
        self._broker = broker
        self.used = now
        self.ended = False
        self._cut = 0
        self._with_messages = with_messages
        self._left = 0
        self._pass: Iterator[Numbered | None] = iter(())
        self._closing: Iterator[Json] | None = None
        self.hosts = self._has_hosts()
        """Whether there were other virtual hosts than `/` when it began."""
        self.waits = False
        """For messages that are being read from the page file."""
        self._came: dict[tuple[int, int], list[Message]] = {}
        """What has been read from there: number of its queue, and id that it follows."""
        if with_messages:
            self._begin_pass()

    def next(self) -> Json:
        """The next answer."""
        if self._closing is None:
            found, octets = _take(self._pass)
            self._left = max(0, self._left - octets)
            if found or self.waits:
                return {"messages": [_shown(*item) for item in found], "left": self._left}
            self._end_pass()
        if self._closing is None:
            return {"messages": [], "left": self._left}
        answer = next(self._closing)
        self.ended = "end" in answer
        return answer

    def _has_hosts(self) -> bool:
        return len(self._broker.vhosts) > 1

    def _queues(self) -> list[Queue]:
        return kept_queues(self._broker.configurations) if self._with_messages else []

    def _waiting(self, low: int, high: int = LAST) -> Iterator[Numbered | None]:
        """None while the next one is not in memory."""
        for queue in self._queues():
            after = low
            while True:
                if not self._in_memory(queue, after):
                    yield None
                    continue
                came = self._came.pop((queue.number, after), [])  # some may belong to a later pass
                some = [message for message in came if message.id <= high] or next_messages(queue, after, high)
                if not some:
                    break
                yield from ((queue.number, message) for message in some)
                after = some[-1].id

    def _in_memory(self, queue: Queue, after: int) -> bool:
        if not self.waits and (queue.number, after) not in self._came:
            self.waits = not queue.deleted and not soon(queue, after, partial(self._come, queue, after))
        return not self.waits

    def _come(self, queue: Queue, after: int) -> None:
        """Takes them now: at the limit of the memory they have left it again before the next slice is asked for."""
        self.waits = False
        with suppress(RotError):  # the next slice says so
            if soon(queue, after, lambda: None):
                self._came = {(queue.number, after): next_messages(queue, after)}

    def _begin_pass(self) -> None:
        low, self._cut = self._cut, self._broker.engine.sequence
        self._left = 0 if low else sum(queue.bytes for queue in self._queues())
        self._pass = self._waiting(low, self._cut)

    def _end_pass(self) -> None:
        """The end of the copy in this turn, if the rest fits into a slice; else another pass."""
        rest = self._waiting(self._cut)
        found, _ = _take(rest)
        if not self.waits and next(rest, None) is None and not self.waits:
            if self._has_hosts() and not self.hosts:
                raise LinkError("a virtual host was made while this was copied: try again")
            held = [(queue, queue.handed_out, queue.held()) for queue in self._queues()]
            end = Objects(self._broker.configurations)
            self._closing = _closing(self._broker.engine.sequence, found, end, held)
        else:
            self._begin_pass()


def _take(messages: Iterator[Numbered | None]) -> tuple[list[Numbered], int]:
    """A slice, and the octets in it; less if it has to wait."""
    found: list[Numbered] = []
    octets = 0
    for item in messages:
        if item is None:
            break
        found.append(item)
        octets += len(item[1].header) + len(item[1].body)
        if octets >= SLICE or len(found) == MOST:
            break
    return found, octets


def _closing(position: int, rest: list[Numbered], objects: Objects, held: list[Held]) -> Iterator[Json]:
    """The last answers: everything is as of one turn."""
    yield {"position": position, "messages": [_shown(*item) for item in rest], "left": 0}
    payloads = (base64.b64encode(payload).decode() for payload in objects)
    for payload in _pieces(payloads, len):
        yield {"objects": payload}
    for ids in _pieces(_parts(held), lambda item: len(item["ids"])):
        yield {"held": ids}
    yield {"end": True}


def _parts(held: list[Held]) -> Iterator[Json]:
    for queue, handed_out, ids in held:
        for start in range(0, max(len(ids), 1), PIECE):
            part = base64.b64encode(ids[start : start + PIECE]).decode()
            named = {"queue": queue.name, "vhost": queue.host, "number": queue.number}
            yield {**named, "handed_out": handed_out, "ids": part}


def _shown(number: int, message: Message) -> Any:
    """As a list: the names would be longer than most values."""
    header, body = base64.b64encode(message.header).decode(), base64.b64encode(message.body).decode()
    route = [part.decode("utf-8", "surrogateescape") for part in (message.exchange, message.routing_key)]
    return [number, message.id, message.redelivered, message.arrival, *route, header, body]


def _pieces(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    piece: list[Item] = []
    octets = 0
    for item in items:
        piece.append(item)
        octets += size(item) + 64
        if octets >= PIECE:
            yield piece
            piece, octets = [], 0
    if piece:
        yield piece


class CopyDoor:
    """Answers `ha.backup`; one per broker."""

    def __init__(
        self,
        broker: Broker,
        leaders: Callable[[], dict[int, str]],
        refusal: Callable[[], str],
        clock: Callable[[], float],
        after: After,
    ) -> None:
        """`leaders`: epoch -> broker that assigned its ids; `refusal`: why the content may not be copied now."""
        self._broker = broker
        self._leaders = leaders
        self._refusal = refusal
        self._clock = clock
        self._after = after
        self._copies: dict[int, Copying] = {}
        self._last = 0

    def request(self, arguments: Json, user: str, reply: Reply) -> None:
        """Raises LinkError with the reason of a refusal."""
        action = arguments.get("action")
        if action == "cancel":
            self._copies.pop(need(arguments, "id", int), None)
            reply({"ok": True, "result": {}})
            return
        if why := self._refusal():
            raise LinkError(why)
        if action == "begin":
            reply({"ok": True, "result": self._begin(need({"messages": False, **arguments}, "messages", bool))})
        elif action == "next":
            self._next(need(arguments, "id", int), reply)
        else:
            raise LinkError(f"action {action!r}, expected begin, next or cancel")

    def _begin(self, with_messages: bool) -> Json:
        now = self._clock()
        self._copies = {id: copy for id, copy in self._copies.items() if now - copy.used < IDLE}
        if len(self._copies) >= COPIES:
            raise LinkError(f"{COPIES} backups are being made already")
        self._last += 1
        copy = self._copies[self._last] = Copying(self._broker, with_messages, now)
        queues = kept_queues(self._broker.configurations)
        counts = {"messages": sum(queue.ready + queue.unacked for queue in queues)}
        counts["octets"] = sum(queue.bytes for queue in queues)
        remember = [queue.label for queue in queues if queue.window is not None]
        leaders = [[epoch, leader] for epoch, leader in self._leaders().items()]
        return {
            "id": self._last,
            "broker": self._broker.name,
            "queues": len(queues),
            **counts,
            "leaders": leaders,
            "remember": remember,
            "hosts": copy.hosts,
        }

    def _next(self, id: int, reply: Reply) -> None:
        copy = self._copies.get(id)
        if copy is None:
            raise LinkError(f"no backup {id} is being made here: it was not asked for {IDLE:g} s, or cancelled")
        began = self._clock()
        try:
            answer = copy.next()
        except (RotError, LinkError):
            del self._copies[id]
            raise
        copy.used = self._clock()
        if copy.ended:
            del self._copies[id]
        rest = PAUSE if copy.waits else REST * (copy.used - began)
        self._after(rest, lambda: reply({"ok": True, "result": answer}))
