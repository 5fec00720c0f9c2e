"""Backup and restore at the edges: what a small mistake in `ha/archive` would change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.archive import copying
from ha.archive.copying import COPIES, IDLE, MOST, PAUSE, PIECE, REST, SLICE, CopyDoor, Copying
from ha.archive.restoring import CLOSED, MARKER, RestoreDoor, Restoring, check_content
from ha.model.environment import Json
from qpidd_py.amqp.codec import encode_properties
from qpidd_py.errors import LinkError, ReplyCode, RotError
from qpidd_py.store.archive import DECLARE_QUEUE, ArchiveError, Message, encode_message, encode_object
from qpidd_py.store.content import messages
from tests.simulator.mistakes_safety import patched
from tests.unit.ha.test_archive_round_trip import Site, copied, filled


def lines(site: Site) -> tuple[list[str], list[str]]:
    """The lines of objects and of messages of an archive of this site."""
    copy = copied(site)
    messages = list(copy.messages())
    return [encode_object(each).decode() for each in copy.objects], [encode_message(each).decode() for each in messages]


def begun() -> tuple[Site, int]:
    site = Site()
    return site, site.restore("begin")["id"]


def refused(site: Site, id: int, text: str) -> str:
    with pytest.raises(LinkError) as error:
        site.restore("lines", id=id, text=text)
    with pytest.raises(LinkError, match=f"no restore {id} is under way"):  # it is over
        site.restore("lines", id=id, text="")
    return str(error.value)


def one_queue(**arguments: Any) -> Site:
    site = Site()
    site.publish(site.queue("main", **arguments), b"m1")
    return site


class TestLinesThatCannotBeRestored:
    def test_a_message_of_an_unknown_queue(self) -> None:
        site, id = begun()
        _, (message,) = lines(one_queue())
        assert refused(site, id, message) == "a message in queue 'main', which is not in the archive"

    def test_a_binding_to_what_is_not_there(self) -> None:
        source = Site()
        source.queue("main")
        source.broker.vhost.bindings.bind("amq.topic", source.broker.vhost.queues["main"], b"k", {})
        objects, _ = lines(source)
        site, id = begun()
        binding = next(line for line in objects if "amq.topic" in line or line is objects[-1])
        assert "a binding to 'main', which is not in the archive" in refused(site, id, binding)

    def test_the_mark_of_a_restore(self) -> None:
        source = Site()
        source.queue(MARKER)
        (queue,), _ = lines(source)
        site, id = begun()
        assert "the archive is of a cluster into which one was being restored" in refused(site, id, queue)

    def test_a_full_broker(self) -> None:
        objects, messages = lines(one_queue())
        engine: Any = SimpleNamespace(publish=lambda *message: 0)
        other = Site().broker
        broker: Any = SimpleNamespace(vhost=other.vhost, vhosts=other.vhosts, engine=engine)
        with pytest.raises(ArchiveError, match="queue 'main' has refused a message: it is full"):
            Restoring(broker).take("".join([*objects, *messages]))

    def test_an_object_that_lacks_a_field(self) -> None:
        queue = {"op": DECLARE_QUEUE, "name": "q", "durable": True, "arguments": {}}
        with pytest.raises(ArchiveError, match=rf"an object of the archive \({DECLARE_QUEUE}\) lacks 'auto_delete'"):
            Restoring(Site().broker)._restore(queue)

    def test_a_message_that_would_break_consumers(self) -> None:
        source = one_queue()
        objects, _ = lines(source)
        (message,) = copied(source).messages()
        site, id = begun()
        wrong = encode_message(message._replace(body=b"longer"))
        assert "its header does not fit a body of 6 octets" in refused(site, id, "".join(objects) + wrong.decode())

    def test_a_part_of_a_line_is_missing_at_the_end(self) -> None:
        site, id = begun()
        site.restore("lines", id=id, text='{"obj')
        with pytest.raises(LinkError, match="0 messages and 0 objects have come, expected 0 and 0"):
            site.restore("end", id=id, objects=0, messages=0)

    def test_nothing_follows_a_part(self) -> None:
        site, id = begun()
        objects, _ = lines(one_queue())
        for letter in objects[0][:-1]:
            assert site.restore("lines", id=id, text=letter) == {"objects": 0, "messages": 0}
        assert site.restore("lines", id=id, text="\n")["objects"] == 1

    @pytest.mark.parametrize("limits", [{"x-max-length": 7}, {"x-max-length-bytes": 900}])
    def test_limits_count_at_the_end(self, limits: dict[str, int]) -> None:
        site, id = begun()
        objects, messages = lines(one_queue(**limits))
        site.restore("lines", id=id, text="".join([*objects, *messages]))
        core = site.broker.vhost.queues["main"].core
        wanted = one_queue(**limits).broker.vhost.queues["main"].core
        assert (core.max_count, core.max_bytes) != (wanted.max_count, wanted.max_bytes)
        site.restore("end", id=id, objects=1, messages=1)
        assert (core.max_count, core.max_bytes) == (wanted.max_count, wanted.max_bytes)

    def test_flags_of_exchanges(self) -> None:
        for flags in ((True, False, False), (False, True, False), (False, False, True), (True, True, True)):
            source = Site()
            source.broker.vhost.declare_exchange("e", "topic", *flags, {})
            objects, _ = lines(source)
            site, id = begun()
            site.restore("lines", id=id, text="".join(objects))
            if not objects:
                continue
            found = site.broker.vhost.exchanges["e"]
            assert (found.durable, found.auto_delete, found.internal) == flags


class TestContent:
    def message(self, header: bytes, body: bytes = b"body", exchange: bytes = b"x", key: bytes = b"k") -> Message:
        (found,) = copied(one_queue()).messages()
        return found._replace(header=header, body=body, exchange=exchange, routing_key=key)

    def test_what_fits(self) -> None:
        check_content(self.message(encode_properties({}, 4)))
        check_content(self.message(encode_properties({}, 4), exchange=b"x" * 255, key=b"k" * 255))
        check_content(self.message(encode_properties({}, 300), b"b" * 300))

    @pytest.mark.parametrize(
        ("header", "exchange", "key", "why"),
        [
            (encode_properties({}, 5), b"x", b"k", "its header does not fit a body of 4 octets"),
            (encode_properties({}, 4), b"x" * 256, b"k", "its exchange or routing key has more than 255 octets"),
            (encode_properties({}, 4), b"x", b"k" * 256, "its exchange or routing key has more than 255 octets"),
            (encode_properties({"message_id": "m"}, 4)[:-1], b"x", b"k", "message "),
        ],
    )
    def test_what_no_client_could_have_published(self, header: bytes, exchange: bytes, key: bytes, why: str) -> None:
        with pytest.raises(ArchiveError, match=why):
            check_content(self.message(header, exchange=exchange, key=key))


class TestTheDoorOfRestores:
    def test_an_unknown_action(self) -> None:
        with pytest.raises(LinkError, match="action 'x', expected begin, lines, end, abandon"):
            Site().restore("x")

    def test_a_refusal_and_a_full_broker(self) -> None:
        site = Site()
        site.refusal = "it is a backup"
        with pytest.raises(LinkError, match="it is a backup"):
            site.restore("begin")
        site.refusal = ""
        broker: Any = SimpleNamespace(blocked="memory", vhost=site.broker.vhost)
        door = RestoreDoor(broker, lambda: "", lambda *line: None)
        with pytest.raises(LinkError, match="memory"):
            door.request({"action": "begin"}, "admin", lambda reply: None)

    def test_clients_are_sent_away_but_neither_links_nor_administrators(self) -> None:
        site = Site()
        closed: list[tuple[str, Any, str]] = []
        broker: Any = site.broker
        kinds = {"client": (None, False), "link": (object(), False), "admin": (None, True)}
        broker.connections = [
            SimpleNamespace(
                link=link,
                client=SimpleNamespace(admin=admin),
                close=lambda code, text, name=name: closed.append((name, code, text)),
            )
            for name, (link, admin) in kinds.items()
        ]
        assert site.restore("begin") == {"id": 1, "again": False}
        assert closed == [("client", ReplyCode.CONNECTION_FORCED, CLOSED)]
        assert site.restore("begin") == {"id": 2, "again": True}

    def test_an_abandoned_one(self) -> None:
        site, id = begun()
        objects, messages = lines(filled(4))
        site.restore("lines", id=id, text="".join([*objects, *messages]))
        assert site.restore("abandon") == {"again": True}
        assert (site.broker.vhost.queues, "events" in site.broker.vhost.exchanges, site.restores.closed) == (
            {},
            False,
            "",
        )
        assert site.restore("abandon") == {"again": False}
        with pytest.raises(LinkError, match="begin again"):
            site.restore("lines", id=id, text="")

    def test_the_mark_goes_last_and_nothing_is_moved_to_another_queue(self) -> None:
        site, _ = begun()
        vhost, removed = site.broker.vhost, list[tuple[str, int]]()
        site.publish(site.queue("main"), b"m1")
        for name in ("e1", "e2"):
            vhost.declare_exchange(name, "topic", True, False, False, {})
        vhost.bindings.bind("e1", vhost.exchanges["e2"], b"k", {})
        old = vhost.endings.remove_queue

        def remove_queue(queue: Any) -> None:
            removed.append((queue.name, queue.core.ready))
            old(queue)

        with patched(vhost.endings, remove_queue=remove_queue):
            assert site.restore("begin")["again"]
        assert removed == [("main", 0)]
        assert (list(vhost.queues), "e1" in vhost.exchanges, "e2" in vhost.exchanges) == ([MARKER], False, False)

    def test_queues_of_one_connection_are_nothing_that_is_there(self) -> None:
        site = Site()
        site.queue("main")
        queue: Any = site.broker.vhost.queues["main"]
        vhost = SimpleNamespace(queues={"main": queue}, exchanges={})
        broker: Any = SimpleNamespace(vhosts=[vhost], settings=())
        door = RestoreDoor(broker, lambda: "", lambda *line: None)
        assert door._found() == "queue 'main'"
        vhost.queues = {"main": SimpleNamespace(name="main", exclusive=True)}
        assert door._found() == ""

    def test_none_has_begun(self) -> None:
        with pytest.raises(LinkError, match="no restore 0 is under way here"):
            Site().restore("lines", id=0, text="")

    def test_what_people_read(self) -> None:
        site, said = Site(), list[tuple[str, str]]()
        door = site.restores = RestoreDoor(site.broker, lambda: "", lambda *line: said.append(line))
        site.restore("begin")
        mark = site.broker.vhost.queues[MARKER]
        assert (mark.durable, mark.exclusive, mark.auto_delete) == (True, False, False)
        assert door.closed == CLOSED
        site.restore("abandon")
        id = site.restore("begin")["id"]
        site.restore("end", id=id, objects=0, messages=0)
        begins = "a restore has begun: no client is admitted until it has ended"
        assert [text.partition(":")[0] for _, text in said] == [
            begins.partition(":")[0],
            "an interrupted restore was abandoned",
            begins.partition(":")[0],
            "restored",
        ]
        assert said[0] == ("notice", begins)
        assert said[-1] == ("notice", "restored: 0 messages, 0 objects; clients are admitted")
        assert {level for level, _ in said} == {"notice"}

    def test_only_the_last_one_goes_on(self) -> None:
        site, first = begun()
        second = site.restore("begin")["id"]
        with pytest.raises(LinkError, match=f"no restore {first} is under way here"):
            site.restore("lines", id=first, text="")
        assert site.restore("lines", id=second, text="") == {"objects": 0, "messages": 0}
        site.broker.vhost.delete_queue(None, MARKER, False, False)
        with pytest.raises(LinkError, match=f"no restore {second} is under way here"):
            site.restore("lines", id=second, text="")

    def test_what_is_there_is_named(self) -> None:
        site = Site()
        for name in ("q1", "q2", "q3"):
            site.queue(name)
        with pytest.raises(LinkError, match=r"it has queue 'q1', queue 'q2', queue 'q3'$"):
            site.restore("begin")
        site.broker.vhost.declare_exchange("e", "topic", True, False, False, {})
        with pytest.raises(LinkError, match=r"it has queue 'q1', queue 'q2', queue 'q3' and 1 more$"):
            site.restore("begin")

    def test_who_was_deposed_says_so(self) -> None:
        site = Site()
        engine: Any = SimpleNamespace(when_safe=lambda sealed, answer: answer(False))
        known: Any = {"vhost": site.broker.vhost, "vhosts": site.broker.vhosts, "settings": ()}
        broker: Any = SimpleNamespace(**known, engine=engine, blocked="", connections=[])
        replies: list[Json] = []
        RestoreDoor(broker, lambda: "", lambda *line: None).request({"action": "begin"}, "admin", replies.append)
        assert replies == [{"ok": False, "error": "this broker has been deposed meanwhile"}]


class TestTheDoorOfCopies:
    def test_what_a_copy_has(self) -> None:
        site = filled(9)
        begun = site.backup("begin", messages=True)
        octets = sum(queue.core.bytes for queue in site.broker.vhost.queues.values())
        assert begun == {
            "id": 1,
            "broker": "b",
            "queues": 2,
            "messages": 9,
            "octets": octets,
            "leaders": [[0, "id-b"]],
            "remember": [],
            "hosts": False,
        }
        assert site.backup("begin")["id"] == 2

    def test_an_unknown_action_and_copy(self) -> None:
        site = Site()
        with pytest.raises(LinkError, match="action 'x', expected begin, next or cancel"):
            site.backup("x")
        with pytest.raises(LinkError, match="no backup 7 is being made here"):
            site.backup("next", id=7)

    def test_so_many_at_a_time(self) -> None:
        site = Site()
        for _ in range(COPIES):
            site.backup("begin")
        with pytest.raises(LinkError, match="2 backups are being made already"):
            site.backup("begin")
        site.now = IDLE - 0.01
        with pytest.raises(LinkError, match="2 backups are being made already"):
            site.backup("begin")
        site.backup("next", id=1)
        site.now = IDLE
        assert site.backup("begin")["id"] == 3  # in the place of 2
        assert site.backup("next", id=1) == {"end": True}
        with pytest.raises(LinkError, match="no backup 2 is being made"):
            site.backup("next", id=2)

    def test_a_slice_takes_a_share_of_the_loop(self) -> None:
        site = filled(3)
        times = iter([0.0, 1.0, 1.5])
        door = CopyDoor(site.broker, dict, lambda: "", lambda: next(times), site._after)
        door.request({"action": "begin", "messages": True}, "admin", lambda reply: None)
        door.request({"action": "next", "id": 1}, "admin", lambda reply: None)
        assert site.rests == [REST * 0.5]

    def test_a_slice_that_waits_for_messages_is_answered_later(self) -> None:
        site = filled(3)
        waiting: list[Any] = []
        id = site.backup("begin", messages=True)["id"]
        with patched(copying, soon=lambda queue, after, come: waiting.append(come)):
            assert site.backup("next", id=id)["messages"] == []
            assert site.backup("next", id=id)["messages"] == []
        assert (site.rests, len(waiting)) == ([PAUSE, PAUSE], 1)
        waiting[0]()
        assert len(site.backup("next", id=id)["messages"]) == 3

    def test_what_has_been_read_is_taken_at_once(self) -> None:
        """At the limit of the memory it is gone again when the next slice is asked for."""
        site = Site()
        queue = site.queue("main")
        for number in range(3):
            site.publish(queue, b"m%d" % number)
        waiting: list[Any] = []
        copy = Copying(site.broker, True, 0.0)
        with patched(copying, soon=lambda queue, after, come: waiting.append(come)):
            assert copy.next()["messages"] == []
        waiting.pop()()
        with patched(copying, soon=lambda queue, after, come: waiting.append(come)):
            assert len(copy.next()["messages"]) == 3
            assert (copy.next()["messages"], copy.waits, len(waiting)) == ([], True, 1)

    def test_what_cannot_be_read_is_said_when_it_is_asked_for(self) -> None:
        site = filled(3)
        waiting: list[Any] = []
        copy = Copying(site.broker, True, 0.0)

        def rotten(queue: Any, after: int, come: Any) -> bool:
            raise RotError("rot")

        with patched(copying, soon=lambda queue, after, come: waiting.append(come)):
            copy.next()
        with patched(copying, soon=rotten):
            waiting.pop()()
            with pytest.raises(RotError):
                copy.next()

    def test_what_is_left_of_the_first_pass(self) -> None:
        site = Site()
        queue = site.queue("main")
        for number in range(MOST + 3):
            site.publish(queue, b"m%d" % number)
        copy = Copying(site.broker, True, 5.0)
        octets = queue.bytes
        assert (copy.used, copy.ended, copy.waits) == (5.0, False, False)
        first, second = copy.next(), copy.next()
        sizes = [
            sum(len(message.header) + len(message.body) for message in some)
            for some in (list(copied(site).messages())[:MOST], list(copied(site).messages())[MOST:])
        ]
        assert (len(first["messages"]), first["left"]) == (MOST, octets - sizes[0])
        assert (len(second["messages"]), second["left"]) == (3, octets - sum(sizes))

    def test_what_comes_after_its_cut_is_of_the_next_pass(self) -> None:
        site = Site()
        queue = site.queue("main")
        site.publish(queue, b"m")
        copy = Copying(site.broker, True, 0.0)
        for number in range(MOST + 2):
            site.publish(queue, b"n%d" % number)
        answers = [copy.next() for _ in range(5)]
        assert [len(answer["messages"]) for answer in answers] == [1, 0, MOST, 2, 0]
        assert [answer["left"] for answer in answers[1:]] == [0] * 4
        assert ["position" in answer for answer in answers] == [False, False, False, False, True]

    def test_a_rest_that_is_not_in_memory_is_not_the_end(self) -> None:
        site = Site()
        queue = site.queue("main")
        copy = Copying(site.broker, True, 0.0)
        for number in range(MOST):
            site.publish(queue, b"n%d" % number)
        last = list(messages(queue))[-1].id
        with patched(copying, soon=lambda queue, after, come: after != last):
            answer = copy.next()
        assert ("position" in answer, copy.waits) == (False, True)

    def test_a_queue_that_is_deleted_meanwhile_is_not_waited_for(self) -> None:
        site = Site()
        queue = site.queue("main")
        for number in range(MOST + 1):
            site.publish(queue, b"n%d" % number)
        copy = Copying(site.broker, True, 0.0)
        assert len(copy.next()["messages"]) == MOST
        site.broker.vhost.delete_queue(None, "main", False, False)
        with patched(copying, soon=lambda queue, after, come: False):
            copy.next()
        assert not copy.waits

    def test_its_end_ends_it(self) -> None:
        site = Site()
        id = site.backup("begin")["id"]
        assert [sorted(site.backup("next", id=id)) for _ in range(2)] == [["left", "messages", "position"], ["end"]]
        with pytest.raises(LinkError, match="no backup 1 is being made here"):
            site.backup("next", id=id)

    def test_without_messages_unless_they_are_asked_for(self) -> None:
        site = filled(3)
        id = site.backup("begin")["id"]
        first = site.backup("next", id=id)
        assert (first["messages"], first["left"], "position" in first) == ([], 0, True)
        queue = SimpleNamespace(ready=3, unacked=2, bytes=10, window=None)
        with patched(copying, kept_queues=lambda configuration: [queue]):
            assert site.backup("begin")["messages"] == 5

    def test_a_slice_ends_at_its_size(self) -> None:
        half: Any = SimpleNamespace(header=b"h" * (SLICE // 4), body=b"b" * (SLICE // 4))
        items = iter([(7, half)] * 3)
        assert (len(copying._take(items)[0]), len(copying._take(items)[0])) == (2, 1)

    def test_keys_of_any_octets(self) -> None:
        (message,) = copied(one_queue()).messages()
        shown = copying._shown(7, message._replace(exchange=b"\xff", routing_key=b"k"))
        assert shown[4:6] == ["\udcff", "k"]

    def test_a_piece_one_octet_below_the_limit_takes_another(self) -> None:
        size = PIECE // 2 - 64
        sizes = dict(enumerate([size, size - 1, size] * 2))
        assert list(copying._pieces(sizes, lambda item: sizes[item])) == [[0, 1, 2], [3, 4, 5]]

    def test_ids_and_objects_come_in_pieces(self) -> None:
        one, empty = (SimpleNamespace(name=name, host="/", number=number) for name, number in (("q", 7), ("empty", 8)))
        held: Any = [(one, 3, b"i" * (PIECE + 1)), (empty, 0, b"")]
        parts = list(copying._parts(held))
        assert [(part["queue"], part["number"], part["handed_out"], len(part["ids"])) for part in parts] == [
            ("q", 7, 3, PIECE * 4 // 3),
            ("q", 7, 3, 4),
            ("empty", 8, 0, 0),
        ]
        size = PIECE // 2 - 64
        assert list(copying._pieces([1, 2, 3], lambda item: size)) == [[1, 2], [3]]
        assert list(copying._pieces([1, 2, 3], lambda item: size - 1)) == [[1, 2, 3]]
        assert list(copying._pieces([1, 2], lambda item: size)) == [[1, 2]]
