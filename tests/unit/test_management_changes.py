"""Requests that change queues, and the listings of exchanges and bindings."""

from typing import Any

import pytest
from pamqp.commands import Basic, Exchange, Queue

from qpidd_py.broker.broker import Broker
from qpidd_py.management import changes
from qpidd_py.management.model import Management
from tests.unit.broker.peer import Peer, Replicated


class Asker:
    """Asks a broker whose log is safe when the test says so."""

    def __init__(self, broker):
        self.broker = broker
        self.management = Management(broker)
        self.peer = Peer(broker)
        self.peer.open_channel()

    def declare(self, name, *bodies, exclusive=False, priorities=None, **arguments):
        arguments = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.peer.send(1, Queue.Declare(queue=name, exclusive=exclusive, arguments=arguments))
        self.broker.advance()
        for number, body in enumerate(bodies):
            self.peer.publish(body, name, priority=priorities[number] if priorities else 0)
        self.broker.advance()

    def begin(self, method, **arguments):
        replies = []
        self.management.request(method, arguments, replies.append)
        return replies

    def ask(self, method, **arguments):
        replies = self.begin(method, **arguments)
        self.broker.advance()
        (answer,) = replies
        return answer["result"] if answer["ok"] else answer["error"]

    def bodies(self, name, broker=None):
        return [message[5] for message in (broker or self.broker).vhost.queues[name].core.peek(1 << 20)]


@pytest.fixture
def asker():
    return Asker(Replicated())


def test_move_keeps_the_order_on_both_sides(asker):
    asker.declare("a", *[b"%d" % i for i in range(5)])
    asker.declare("b", b"first")
    assert asker.ask("queue.move", source="a", target="b", limit=3) == {"moved": 3}
    backup = asker.broker.backup()
    for broker in (asker.broker, backup):
        assert asker.bodies("b", broker) == [b"first", b"0", b"1", b"2"]
        assert asker.bodies("a", broker) == [b"3", b"4"]
    assert asker.ask("queue.move", source="a", target="b") == {"moved": 2}


@pytest.mark.parametrize(
    ("method", "fields"), [("queue.move", {"source": "a", "target": "b"}), ("queue.purge", {"queue": "a"})]
)
def test_that_a_queue_is_empty_is_said_when_this_broker_is_still_the_primary(asker, method, fields):
    asker.declare("a")
    asker.declare("b")
    replies = asker.begin(method, **fields)
    assert replies == []
    asker.broker.advance()
    assert [answer["ok"] for answer in replies] == [True]


def test_one_moves(asker):
    asker.declare("a", b"0", b"1")
    asker.declare("b")
    assert asker.ask("queue.move", source="a", target="b", limit=1) == {"moved": 1}
    assert asker.bodies("b") == [b"0"]


def test_only_what_is_ready_moves(asker):
    asker.declare("a", b"0", b"1")
    asker.declare("b")
    asker.peer.send(1, Basic.Get(queue="a"))
    assert asker.ask("queue.move", source="a", target="b") == {"moved": 1}
    assert (asker.bodies("a"), asker.bodies("b")) == ([b"0"], [b"1"])


@pytest.mark.parametrize("through", [{"target": "p"}, {"exchange": "amq.fanout"}])
def test_a_hundred_messages_of_a_priority_queue_to_itself(asker, through):
    """Row 27 of the original's tests."""
    bodies = [b"%d" % (i * 7 % 10) for i in range(100)]
    asker.declare("p", *bodies, priorities=[i * 7 % 10 for i in range(100)], x_max_priority=9)
    asker.peer.send(1, Queue.Bind(queue="p", exchange="amq.fanout", routing_key=""))
    asker.broker.advance()
    assert asker.ask("queue.move", source="p", **through) == {"moved": 100}
    assert asker.bodies("p") == sorted(bodies, reverse=True) == asker.bodies("p", asker.broker.backup())
    asker.broker.vhost.queues["p"].core.check()


def test_a_full_queue_ends_it(asker):
    asker.declare("a", *[b"%d" % i for i in range(5)])
    asker.declare("b", x_max_length=2, x_overflow="reject-publish")
    assert asker.ask("queue.move", source="a", target="b") == {"moved": 2}
    assert (asker.bodies("a"), asker.bodies("b")) == ([b"2", b"3", b"4"], [b"0", b"1"])


def test_purge_and_delete(asker):
    asker.declare("a", b"0", b"1")
    asker.declare("b", b"0")
    assert asker.ask("queue.purge", queue="a") == {"purged": 2}
    assert asker.ask("queue.delete", queue="b", if_empty=True) == "queue 'b' in vhost '/' not empty"
    assert asker.ask("queue.delete", queue="b") == {"deleted": 1}
    backup = asker.broker.backup()
    assert list(backup.vhost.queues) == ["a"] and backup.vhost.queues["a"].core.ready == 0


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("queue.purge", {"queue": "a"}),
        ("queue.delete", {"queue": "a"}),
        ("queue.move", {"source": "a", "target": "b"}),
    ],
)
def test_the_answer_waits_until_it_is_safe(asker, method, arguments):
    asker.declare("a", b"0")
    asker.declare("b")
    replies = asker.begin(method, **arguments)
    asker.broker.engine.end_turn()
    assert replies == []
    asker.broker.advance()
    assert [reply["ok"] for reply in replies] == [True]


def test_a_deposed_broker_does_not_know(asker):
    asker.declare("a", b"0")
    replies = asker.begin("queue.purge", queue="a")
    asker.broker.engine.demote()
    asker.broker.advance()
    assert [reply["ok"] for reply in replies] == [False] and "deposed" in replies[0]["error"]


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("queue.move", {"source": "none", "target": "a"}, "no queue 'none' in vhost '/'"),
        ("queue.move", {"source": "a", "target": "none"}, "no queue 'none' in vhost '/'"),
        ("queue.move", {"source": "a", "exchange": "none"}, "no exchange 'none' in vhost '/'"),
        ("queue.move", {"source": "a"}, "wanted a target (a queue) or an exchange"),
        ("queue.move", {"source": "a", "target": "a", "exchange": "e"}, "wanted a target (a queue) or an exchange"),
        ("queue.move", {"source": "a", "target": "a", "limit": 0}, "limit 0, wanted a number above 0"),
        ("queue.move", {"source": "a", "target": "a", "limit": True}, "limit True, wanted a number above 0"),
        ("queue.move", {"source": "a", "target": "a", "limit": "3"}, "limit '3', wanted a number above 0"),
        ("queue.move", {"source": 1, "target": "a"}, "source is 1, wanted a string"),
        ("queue.purge", {}, "queue is None, wanted a string"),
        ("queue.delete", {"queue": "none"}, "no queue 'none'"),
        ("queue.delete", {"queue": "a", "if_empty": "yes"}, "if_empty is 'yes', wanted true or false"),
    ],
)
def test_what_is_wrong_is_said(asker, method, arguments, text):
    asker.declare("a")
    assert asker.ask(method, **arguments) == text


def test_a_backup_refuses(asker):
    asker.declare("a", b"0")
    backup = asker.broker.backup()
    management, replies = Management(backup), []
    for method, arguments in (
        ("queue.purge", {"queue": "a"}),
        ("queue.delete", {"queue": "a"}),
        ("queue.move", {"source": "a", "target": "a"}),
    ):
        management.request(method, arguments, replies.append)
    assert ["is replicated and this broker is a backup" in reply["error"] for reply in replies] == [True] * 3
    assert asker.bodies("a", backup) == [b"0"]


def test_exchanges_and_bindings_are_listed(asker):
    asker.declare("q")
    arguments: dict[str, Any] = {"alternate-exchange": "amq.fanout"}
    asker.peer.send(1, Exchange.Declare(exchange="e", exchange_type="topic", arguments=arguments))
    asker.broker.advance()
    asker.peer.send(1, Queue.Bind(queue="q", exchange="e", routing_key="a.*", arguments={"x": 1}))
    asker.broker.advance()
    asker.peer.send(1, Exchange.Bind(destination="e", source="amq.direct", arguments={"qpid.replicate": "none"}))
    found = {exchange["name"]: exchange for exchange in asker.ask("exchange.list")}
    assert list(found) == ["", "amq.direct", "amq.failover", "amq.fanout", "amq.headers", "amq.match", "amq.topic", "e"]
    assert found["e"] == {
        "name": "e",
        "vhost": "/",
        "type": "topic",
        "durable": False,
        "auto_delete": False,
        "internal": False,
        "predeclared": False,
        "replicate": "all",
        "bindings": 1,
        "arguments": {"alternate-exchange": "amq.fanout", "qpid.replicate": "all"},
        "policy": "",
        "operator_policy": "",
        "effective": {},
        "not_in_force": {},
    }
    shown = [
        (item["source"], item["destination_type"], item["destination"], item["routing_key"], item["replicated"])
        for item in asker.ask("binding.list")
    ]
    assert shown == [("amq.direct", "exchange", "e", "", False), ("e", "queue", "q", "a.*", True)]


def test_without_replication_the_answer_comes_at_once():
    replies = []
    Management(Broker()).request("queue.delete", {"queue": "none"}, replies.append)
    assert replies == [{"ok": False, "error": "no queue 'none'", "code": 404}]


class TestEmptying:
    """A long queue is purged, or deleted, in turns of their own."""

    @staticmethod
    def begun(asker, method, *bodies):
        asker.declare("a", *bodies)
        asker.broker.engine.schedule, asker.broker.engine.slice.most = lambda: None, 2
        replies = []
        return asker.management.work(method, {"queue": "a"}, replies.append, None), replies

    @pytest.fixture(params=[("queue.purge", "purged"), ("queue.delete", "deleted")])
    def emptying(self, request):
        return request.param

    def test_it_takes_turns_and_leaves_what_comes_later(self, asker, emptying):
        method, word = emptying
        steps, replies = self.begun(asker, method, *[b"x"] * 500)
        next(steps)
        assert 0 < len(asker.bodies("a")) < 500 and not replies
        asker.peer.publish(b"late", "a")
        for _ in steps:
            asker.broker.advance()
        asker.broker.advance()
        assert replies == [{"ok": True, "result": {word: 500 + (word == "deleted")}}]
        backup = asker.broker.backup()
        for broker in (asker.broker, backup):
            left = asker.bodies("a", broker) if "a" in broker.vhost.queues else None
            assert left == ([b"late"] if word == "purged" else None)

    def test_a_broker_that_is_deposed_meanwhile_drops_nothing_more(self, asker, emptying):
        steps, replies = self.begun(asker, emptying[0], *[b"x"] * 500)
        next(steps)
        asker.broker.passive = True
        asker.broker.engine.demote()
        left = asker.bodies("a")
        assert left and list(steps) == [] and asker.bodies("a") == left
        assert [reply["ok"] for reply in replies] == [False]
        assert "this broker is a backup" in replies[0]["error"]

    def test_another_queue_of_the_name_keeps_its_messages(self, asker, emptying):
        method, word = emptying
        steps, replies = self.begun(asker, method, *[b"x"] * 500)
        next(steps)
        asker.peer.send(1, Queue.Delete(queue="a"))
        asker.broker.advance()
        asker.declare("a", b"new")
        assert list(steps) == [] and asker.bodies("a") == [b"new"]
        asker.broker.advance()
        assert 0 < replies[0]["result"][word] < 500


class TestSlices:
    """A long queue is moved in turns of their own."""

    @staticmethod
    def begun(asker, **arguments):
        replies = []
        return asker.management.work("queue.move", arguments, replies.append, None), replies

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr(changes, "SLICE", 4)

    def test_what_comes_later_stays(self, asker):
        asker.declare("a", *[b"%d" % i for i in range(10)])
        asker.declare("b")
        steps, replies = self.begun(asker, source="a", target="b")
        next(steps)
        assert asker.bodies("b") == [b"0", b"1", b"2", b"3"] and not replies
        asker.peer.publish(b"late", "a")
        assert sum(1 for _ in steps) == 1
        asker.broker.advance()
        assert replies == [{"ok": True, "result": {"moved": 10}}]
        assert asker.bodies("b") == [b"%d" % i for i in range(10)]
        assert asker.bodies("a") == [b"late"]
        assert asker.bodies("b", asker.broker.backup()) == asker.bodies("b")

    def test_to_itself_it_ends(self, asker):
        asker.declare("a", *[b"%d" % i for i in range(9)])
        assert asker.ask("queue.move", source="a", target="a") == {"moved": 9}
        assert len(asker.bodies("a")) == 9

    @pytest.mark.parametrize("gone", ["a", "b"])
    def test_a_queue_that_is_deleted_meanwhile(self, asker, gone):
        asker.declare("a", *[b"x"] * 9)
        asker.declare("b")
        steps, replies = self.begun(asker, source="a", target="b")
        next(steps)
        asker.peer.send(1, Queue.Delete(queue=gone))
        asker.broker.advance()
        assert not list(steps)
        (answer,) = replies
        assert f"no queue '{gone}' in vhost '/'" in answer["error"]
        assert answer["error"].endswith("; 4 messages were moved before")

    def test_a_full_queue_ends_it_early(self, asker):
        asker.declare("a", *[b"x"] * 9)
        asker.declare("b", x_max_length=6, x_overflow="reject-publish")
        assert asker.ask("queue.move", source="a", target="b") == {"moved": 6}

    def test_a_limit_is_kept(self, asker):
        asker.declare("a", *[b"x"] * 9)
        asker.declare("b")
        assert asker.ask("queue.move", source="a", target="b", limit=8) == {"moved": 8}
