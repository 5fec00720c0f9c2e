"""Messages that an earlier primary may have handed out or sent on, without this one knowing it."""

from __future__ import annotations

from typing import Any

import pamqp.header
import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue, Route
from tests.support.memory import MemoryClient, deliveries


def headers(frames: list[tuple[int, Any]]) -> list[dict[str, Any]]:
    return [frame.properties.headers or {} for _, frame in frames if isinstance(frame, pamqp.header.ContentHeader)]


class Heir:
    """A primary of epoch 2 with a queue `q`, whose dead letters go to `dead`; each has a message of epoch 1."""

    def __init__(self, unsure: int, counts: bool = False, **properties: Any) -> None:
        self.engine = Engine(segment_size=8192)
        self.engine.frame_max = 4096
        self.engine.begin_epoch(1)
        self.queue, self.dead = (self.engine.create_queue(number, name, True) for number, name in ((1, "q"), (2, "d")))
        if counts:
            self.queue.count_returns(2)
        self.queue.dead_letter = self._letter
        client = MemoryClient(self.engine, q=self.queue, d=self.dead)
        client.publish(b"old", "q", **properties)
        client.turn()
        client.connection.close()
        self.engine.begin_epoch(2, unsure)
        self.client = MemoryClient(self.engine, q=self.queue, d=self.dead)
        self.client.publish(b"new", "q", **properties)

    def _letter(self, reason: str, exchange: bytes, key: bytes, header: bytes, body: bytes) -> Any:
        return Route([self.dead]), exchange, key, header

    def taken(self, queue: Queue) -> list[tuple[int, Any]]:
        self.client.channel.consume(queue, "c", False)
        return self.client.turn()

    def buried(self) -> list[tuple[bytes, dict[str, Any]]]:
        """The dead letters of all messages: body, fields of the header."""
        self.taken(self.queue)
        self.client.send(Basic.Nack(2, multiple=True, requeue=False))
        self.client.turn()
        frames = self.taken(self.dead)
        assert [redelivered for _, _, redelivered in deliveries(frames)] == [False, False]
        return list(zip([body for _, body, _ in deliveries(frames)], headers(frames), strict=True))


@pytest.mark.parametrize(("unsure", "marks"), [(2, [True, False]), (1, [False, False]), (0, [False, False])])
def test_messages_of_earlier_epochs_say_redelivered(unsure: int, marks: list[bool]) -> None:
    heir = Heir(unsure)
    assert [redelivered for _, _, redelivered in deliveries(heir.taken(heir.queue))] == marks


def test_it_does_not_count_as_a_return() -> None:
    heir = Heir(2, counts=True)
    frames = heir.taken(heir.queue)
    assert [redelivered for _, _, redelivered in deliveries(frames)] == [True, False]
    assert headers(frames) == [{}, {}]


@pytest.mark.parametrize("fields", [None, {}, {"a": 1}, {"x-resent": False, "a": 1}, {"x-resent": "no"}])
@pytest.mark.parametrize("more", [{}, {"content_type": "text/plain", "content_encoding": "utf-8", "message_id": "m"}])
def test_dead_letters_of_them_say_resent(fields: dict[str, Any] | None, more: dict[str, Any]) -> None:
    (old, said), (new, unsaid) = Heir(2, headers=fields, **more).buried()
    assert (old, new) == (b"old", b"new")
    assert said == {**(fields or {}), "x-resent": True} and said["x-resent"] is True
    assert unsaid == (fields or {})


def test_properties_stay_as_they_are() -> None:
    heir = Heir(2, message_id="m", priority=3, headers={"a": "b"}, content_type="t", content_encoding="e")
    heir.taken(heir.queue)
    heir.client.send(Basic.Nack(1, requeue=False))
    heir.client.turn()
    ((_, frame),) = [each for each in heir.taken(heir.dead) if isinstance(each[1], pamqp.header.ContentHeader)]
    found = frame.properties
    assert (found.message_id, found.priority, found.content_type, found.content_encoding) == ("m", 3, "t", "e")
    assert frame.body_size == 3


@pytest.mark.parametrize(("free", "marked"), [(11, True), (10, False)])
def test_a_header_that_would_not_fit_a_frame_goes_without(free: int, marked: bool) -> None:
    """The field takes 11 octets."""
    empty = 8 + 14 + 4 + len(b"\x01aS") + 4
    (_, said), _ = Heir(2, headers={"a": "x" * (4096 - empty - free)}).buried()
    assert ("x-resent" in said) is marked


def test_what_is_moved_says_resent_as_well() -> None:
    heir = Heir(2)
    heir.client.turn()
    route = Route([heir.dead])
    assert heir.engine.move(heir.queue, 5, lambda *_: route) == 2
    frames = heir.taken(heir.dead)
    assert headers(frames) == [{"x-resent": True}, {}]
