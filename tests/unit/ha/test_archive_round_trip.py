"""What `ha.backup` copies, `ha.restore` brings back: through both doors and the archive's lines, without a process."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from ha.archive import copying
from ha.archive.copying import COPIES, IDLE, MOST, CopyDoor
from ha.archive.restoring import RestoreDoor
from ha.model.environment import Json
from ha.qpid_ha.archive import Copy
from qpidd_py.amqp.codec import encode_properties
from qpidd_py.amqp.fields import decode_table
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.exchange import DELAYED
from qpidd_py.core import Engine, Queue, Route
from qpidd_py.core.letters import hand_out
from qpidd_py.errors import LinkError
from qpidd_py.store.archive import Message, encode_message, encode_object
from qpidd_py.store.content import messages

FLAGS = (True, False, False)
"""Durable, not exclusive, not deleted by itself."""


class Site:
    """A broker and its two doors."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.broker, self.now, self.refusal = Broker("b", engine=engine), 0.0, ""
        self.broker.vhosts.rules.default_replicate = "all"
        self.rests: list[float] = []
        leaders: dict[int, str] = {0: "id-b"}
        self.copies = CopyDoor(self.broker, lambda: leaders, lambda: self.refusal, lambda: self.now, self._after)
        self.restores = RestoreDoor(self.broker, lambda: self.refusal, lambda *line: None)

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self.rests.append(seconds)
        call()

    def queue(self, name: str, **arguments: Any) -> Queue:
        return self.broker.vhost.declare_queue(None, name, *FLAGS, arguments)[0].core

    def publish(self, queue: Queue, body: bytes) -> None:
        header = encode_properties({"message_id": body.decode()[:9]}, len(body))
        assert self.broker.engine.publish(Route([queue]), b"x", b"key", header, body)

    def backup(self, action: str, **arguments: Any) -> Any:
        return _answer(self.copies, {"action": action, **arguments})

    def restore(self, action: str, **arguments: Any) -> Any:
        return _answer(self.restores, {"action": action, **arguments})

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        """What is in each queue, without ids."""
        queues = self.broker.vhost.queues.values()
        return {queue.name: [_shown(each) for each in messages(queue.core)] for queue in queues}


def _answer(door: Any, arguments: Json) -> Any:
    replies: list[Json] = []
    door.request(arguments, "admin", replies.append)
    assert replies and replies[0]["ok"], replies
    return replies[0]["result"]


def _shown(message: Message) -> tuple[Any, ...]:
    return message.redelivered, message.exchange, message.routing_key, message.header, message.body


def copied(site: Site, with_messages: bool = True, meanwhile: Callable[[], None] = lambda: None) -> Copy:
    def ask(action: str, **arguments: Any) -> Any:
        answer = site.backup(action, **arguments)
        if action == "next":
            meanwhile()
        return answer

    return Copy(ask, io.BytesIO(), with_messages)  # type: ignore[arg-type]


def objects(site: Site) -> list[dict[str, Any]]:
    """What is declared there; the numbers of queues are new in each cluster."""
    return [{**decode_table(payload)[0], "number": 0} for payload in copied(site).objects]


def restored(copy: Copy, piece: int = 1000) -> Site:
    """In pieces that end anywhere in a line."""
    site, found = Site(), list(copy.messages())
    text = b"".join([*map(encode_object, copy.objects), *map(encode_message, found)]).decode()
    id = site.restore("begin")["id"]
    assert site.restores.closed
    for start in range(0, len(text), piece):
        counts = site.restore("lines", id=id, text=text[start : start + piece])
    assert counts == {"objects": len(copy.objects), "messages": len(found)}
    assert site.restore("end", id=id, **counts) == counts
    assert not site.restores.closed
    return site


def filled(count: int) -> Site:
    site = Site()
    main, other = site.queue("main", **{"x-max-length": 5000}), site.queue("other")
    vhost = site.broker.vhost
    vhost.declare_exchange("events", "topic", True, False, False, {})
    vhost.bindings.bind("events", vhost.queues["other"], b"a.#", {})
    for number in range(count):
        site.publish(main if number % 3 else other, b"m%d" % number)
    return site


def test_what_waits_for_its_time_comes_back_and_waits_again() -> None:
    site = filled(2)
    site.broker.vhost.declare_exchange("later", DELAYED, True, False, False, {"x-delayed-type": "direct"})
    (waiting,) = site.broker.vhost.configuration.own_queues()
    header = encode_properties({"headers": {"x-delay": 5000}}, 1)
    assert site.broker.engine.publish(Route([waiting.core]), b"later", b"k", header, b"x")
    assert [message.queue for message in copied(site).messages()].count("amq.delayed.later") == 1
    again = restored(copied(site))
    (waiting,) = again.broker.vhost.configuration.own_queues()
    assert waiting.core.delays is not None and len(waiting.core.delays) == 1
    assert [_shown(each) for each in messages(waiting.core)] == [(False, b"later", b"k", header, b"x")]
    again.broker.engine.now += 5001
    again.broker.engine.tick()
    again.broker.engine.end_turn()
    assert waiting.core.ready == 0


def test_what_an_exchange_keeps_comes_back_and_reaches_no_queue_twice() -> None:
    site = filled(0)
    vhost = site.broker.vhost
    vhost.declare_exchange("last", "fanout", True, False, False, {"qpid.ive": 1})
    vhost.bindings.bind("last", vhost.queues["other"], b"", {})
    route = vhost.routing.route(b"last", b"k")
    assert site.broker.engine.publish(route, b"last", b"k", encode_properties({}, 1), b"x")
    again = restored(copied(site)).broker.vhost
    assert again.queues["other"].core.ready == 1
    assert [own.core.ready for own in again.configuration.own_queues()] == [1]
    again.bindings.bind("last", again.queues["main"], b"", {})
    assert again.queues["main"].core.ready == 1


def test_a_message_of_an_exchange_that_is_not_there_is_refused() -> None:
    site = Site()
    id = site.restore("begin")["id"]
    line = encode_message(Message("amq.delayed.gone", 1, False, 0, b"", b"k", encode_properties({}, 0), b"", ""))
    with pytest.raises(LinkError, match="which is not in the archive"):
        site.restore("lines", id=id, text=line.decode())


def test_a_backup_says_which_queues_remember_keys() -> None:
    site = filled(1)
    site.queue("once", **{"x-message-deduplication": True})
    assert site.backup("begin", messages=True)["remember"] == ["once"]


@pytest.mark.parametrize(
    ("count", "piece"), [(0, 17), (5, 17), (MOST, 100_000), (MOST + 1, 100_000), (3 * MOST, 100_000)]
)
def test_all_that_was_there_comes_back(count: int, piece: int) -> None:
    site = filled(count)
    again = restored(copied(site), piece)
    assert again.content() == site.content()
    assert sum(map(len, again.content().values())) == count
    assert again.broker.vhost.queues["main"].core.max_count == 5000
    assert objects(again) == objects(site)


def test_what_comes_and_goes_meanwhile_is_as_of_the_last_turn() -> None:
    site = filled(3 * MOST)
    main = site.broker.vhost.queues["main"].core
    left = iter(range(20))

    def change() -> None:
        if next(left, None) is not None:
            site.broker.engine.purge(main)
            for number in range(3):
                site.publish(main, b"late %d" % number)

    copy = copied(site, meanwhile=change)
    found = restored(copy).content()
    assert {body for *_, body in found["main"]} == {b"late 0", b"late 1", b"late 2"}
    assert len(found["main"]) == 3 and found["other"] == site.content()["other"]


def test_what_had_been_handed_out_says_so_and_nothing_else_does() -> None:
    site = filled(9)
    main = site.broker.vhost.queues["main"].core
    third = [message.id for message in messages(main)][2]
    hand_out(site.broker.engine, main, third)
    found = restored(copied(site)).content()
    assert [again for again, *_ in found["main"]] == [True, True, True, False, False, False]
    assert not any(again for again, *_ in found["other"])


def test_without_messages_only_what_is_declared_comes_back() -> None:
    found = restored(copied(filled(9), with_messages=False)).content()
    assert found == {"main": [], "other": []}


def test_a_message_that_fills_a_slice_ends_it() -> None:
    site = Site()
    queue, large = site.queue("main"), b"x" * (copying.SLICE + 1)
    for body in (b"a", large, b"b", large):
        site.publish(queue, body)
    id, sizes = site.backup("begin", messages=True)["id"], []
    while not (answer := site.backup("next", id=id)).get("end"):
        sizes.append(len(answer.get("messages", ())))
    assert sizes[:2] == [2, 2]
    assert restored(copied(site), 100_000).content() == site.content()


def test_a_copy_that_is_not_asked_for_makes_room_for_another() -> None:
    site = filled(1)
    first, *_ = [site.backup("begin")["id"] for _ in range(COPIES)]
    site.now = IDLE - 1
    with pytest.raises(LinkError, match="are being made already"):
        site.backup("begin")
    site.now = IDLE
    assert site.backup("begin")["id"] == COPIES + 1
    with pytest.raises(LinkError, match="no backup 1 is being made here"):
        site.backup("next", id=first)


def test_an_ended_or_cancelled_copy_is_over() -> None:
    site = filled(1)
    id = site.backup("begin")["id"]
    while not site.backup("next", id=id).get("end"):
        pass
    for ended in (id, site.backup("begin")["id"]):
        site.backup("cancel", id=ended)
        with pytest.raises(LinkError, match=f"no backup {ended} is being made here"):
            site.backup("next", id=ended)


@pytest.mark.parametrize("action", ["begin", "next"])
def test_a_broker_that_may_not_be_copied_says_why(action: str) -> None:
    site = filled(1)
    site.refusal = "it is joining"
    with pytest.raises(LinkError, match="it is joining"):
        site.backup(action, id=1)
    with pytest.raises(LinkError, match="it is joining"):
        site.restore("begin")
    site.refusal = ""
    with pytest.raises(LinkError, match="action 'look', expected begin, next or cancel"):
        site.backup("look")


def test_an_interrupted_restore_is_deleted_by_the_next_one() -> None:
    copy, site = copied(filled(9)), Site()
    id = site.restore("begin")["id"]
    site.restore("lines", id=id, text=b"".join(map(encode_object, copy.objects)).decode())
    again = site.restore("begin")
    assert again == {"id": id + 1, "again": True}
    assert sorted(site.content()) == ["amq.qpid.restore"] and "events" not in site.broker.vhost.exchanges
    with pytest.raises(LinkError, match=f"no restore {id} is under way here"):
        site.restore("lines", id=id, text="")
    assert site.restore("abandon") == {"again": True} and not site.content()
    assert site.restore("abandon") == {"again": False}


def test_a_restore_that_lacks_something_does_not_end() -> None:
    copy, site = copied(filled(3)), Site()
    id = site.restore("begin")["id"]
    counts = site.restore("lines", id=id, text=b"".join(map(encode_object, copy.objects)).decode())
    with pytest.raises(LinkError, match=r"0 messages and \d objects have come, expected 3 and"):
        site.restore("end", id=id, objects=counts["objects"], messages=3)
    assert site.restores.closed, "no client has seen a part of it"


def test_nothing_is_restored_into_what_is_there() -> None:
    site = filled(1)
    with pytest.raises(
        LinkError, match="the cluster is not empty: it has queue 'main', queue 'other', exchange 'events'"
    ):
        site.restore("begin")
