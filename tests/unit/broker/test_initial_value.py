"""`qpid.ive`: an exchange keeps its last message, and a queue that is bound later gets it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.core.shadows import copy_first
from tests.unit.broker.numbered import done, got, link, plain, promoted, publish, queue, site
from tests.unit.broker.peer import Peer, Replicated

Basic, Confirm, Exchange, Queue = commands.Basic, commands.Confirm, commands.Exchange, commands.Queue
IVE = {"qpid.ive": 1}


def kept(peer: Peer, kind: str = "fanout", name: str = "x", more: Any = None) -> None:
    plain(peer, name, kind, {**IVE, **(more or {})})


def bodies(peer: Peer, name: str = "q") -> list[bytes]:
    return [body for body, _ in got(peer, name)]


@pytest.fixture(params=[Broker, Replicated], ids=["local", "replicated"])
def peer(request: Any) -> Peer:
    return site(request.param())


def test_a_queue_that_is_bound_gets_the_last_message(peer: Peer) -> None:
    kept(peer)
    publish(peer, b"a", b"b")
    queue(peer)
    publish(peer, b"c")
    queue(peer, "late")
    assert (bodies(peer), bodies(peer, "late")) == ([b"b", b"c"], [b"c"])


def test_an_exchange_without_it_keeps_nothing(peer: Peer) -> None:
    plain(peer, "x", arguments={"qpid.ive": 0})
    publish(peer, b"a")
    queue(peer)
    assert bodies(peer) == []


def test_nothing_is_brought_before_there_is_a_message(peer: Peer) -> None:
    kept(peer)
    queue(peer)
    assert bodies(peer) == []


def test_the_message_is_as_it_was_published(peer: Peer) -> None:
    kept(peer, "topic")
    publish(peer, b"m", key="a.b", headers={"n": 1}, message_id="id", delivery_mode=2)
    queue(peer, key="a.#")
    peer.send(1, Basic.Get(queue="q", no_ack=True))
    answer, header, body = peer.frames()
    properties = header.properties
    assert (answer.exchange, answer.routing_key, answer.redelivered, body.value) == ("x", "a.b", False, b"m")
    assert (properties.headers, properties.message_id, properties.delivery_mode) == ({"n": 1}, "id", 2)


@pytest.mark.parametrize(("kind", "key", "arguments", "taken"), [
    ("direct", "k", {}, True), ("direct", "other", {}, False), ("topic", "*", {}, True), ("topic", "*.*", {}, False),
    ("headers", "", {"n": 1}, True), ("headers", "", {"n": 2}, False), ("x-consistent-hash", "5", {}, True),
])  # fmt: skip
def test_only_a_binding_that_matches_brings_it(peer: Peer, kind: str, key: str, arguments: Any, taken: bool) -> None:
    kept(peer, kind)
    publish(peer, b"m", headers={"n": 1})
    peer.send(1, Queue.Declare(queue="q"))
    peer.send(1, Queue.Bind(queue="q", exchange="x", routing_key=key, arguments=arguments))
    done(peer)
    assert bodies(peer) == ([b"m"] if taken else [])


def test_a_second_binding_that_matches_brings_it_no_second_time(peer: Peer) -> None:
    kept(peer, "topic")
    publish(peer, b"m")
    queue(peer, key="#")
    queue(peer, key="k")
    queue(peer, key="#")
    assert bodies(peer) == [b"m"]


def test_a_binding_that_comes_when_the_queue_has_had_it_brings_nothing(peer: Peer) -> None:
    kept(peer, "topic")
    queue(peer, key="k")
    publish(peer, b"m")
    queue(peer, key="#")
    assert bodies(peer) == [b"m"]


@pytest.mark.parametrize("keys", [3, 30])
def test_a_queue_of_many_bindings_gets_it_once(peer: Peer, keys: int) -> None:
    kept(peer, "direct")
    publish(peer, b"m", key="k2")
    for number in range(keys):
        queue(peer, key=f"k{number}")
    queue(peer, key="k2")
    assert bodies(peer) == [b"m"]


def test_a_queue_that_had_it_by_way_of_another_exchange_gets_it_no_second_time(peer: Peer) -> None:
    kept(peer, "topic", more={"alternate-exchange": "y"})
    plain(peer, "y")
    queue(peer, "q", "y")
    publish(peer, b"by the alternate")
    queue(peer, "q", "x", "k")
    assert bodies(peer) == [b"by the alternate"]
    link(peer, "x", "y", "l")
    publish(peer, b"by the link", key="l")
    queue(peer, "q", "x", "#")
    assert bodies(peer) == [b"by the link"]


def test_an_exchange_that_is_bound_hands_it_on(peer: Peer) -> None:
    kept(peer)
    plain(peer, "y", "direct")
    queue(peer, "q", "y", "k")
    queue(peer, "other", "y", "l")
    publish(peer, b"m")
    link(peer, "x", "y")
    assert (bodies(peer), bodies(peer, "other")) == ([b"m"], [])


def test_an_exchange_that_keeps_its_own_gets_one(peer: Peer) -> None:
    kept(peer)
    kept(peer, name="y")
    publish(peer, b"m")
    link(peer, "x", "y")
    queue(peer, "q", "y")
    assert bodies(peer) == [b"m"]


def test_a_copy_by_its_second_key_matches(peer: Peer) -> None:
    kept(peer, "direct")
    publish(peer, b"m", headers={"CC": ["second"]})
    queue(peer, key="second")
    assert bodies(peer) == [b"m"]


def test_without_a_queue_it_is_returned_and_kept(peer: Peer) -> None:
    kept(peer)
    peer.call(1, Confirm.Select())
    peer.publish(b"m", "k", "x", mandatory=True)
    names = [getattr(frame, "name", "") for frame in done(peer)]
    assert [name for name in names if name.startswith("Basic.")] == ["Basic.Return", "Basic.Ack"]
    queue(peer)
    peer.publish(b"n", "k", "x", mandatory=True)
    names = [getattr(frame, "name", "") for frame in done(peer)]
    assert [name for name in names if name.startswith("Basic.")] == ["Basic.Ack"]
    assert bodies(peer) == [b"m", b"n"]


def test_its_time_to_live_goes_on(peer: Peer) -> None:
    kept(peer)
    publish(peer, b"m", expiration="100")
    peer.broker.engine.now += 60
    queue(peer)
    assert peer.broker.vhost.queues["q"].core.ready == 1
    peer.broker.engine.now += 60
    peer.broker.engine.expire_due()
    queue(peer, "late")
    done(peer)
    assert peer.broker.vhost.queues["q"].core.ready == 0
    assert bodies(peer, "late") == []


def test_a_full_queue_refuses_it_and_is_bound(peer: Peer) -> None:
    kept(peer)
    publish(peer, b"m")
    queue(peer, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    assert bodies(peer) == []
    assert peer.broker.vhost.exchanges["x"].size == 1


def test_a_refused_message_is_not_kept(peer: Peer) -> None:
    kept(peer)
    queue(peer, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    publish(peer, b"m")
    queue(peer, "late")
    assert bodies(peer, "late") == []


def test_with_numbers_the_copy_has_its_own(peer: Peer) -> None:
    kept(peer, more={"qpid.msg_sequence": 1})
    publish(peer, b"a", b"b")
    queue(peer)
    publish(peer, b"c")
    assert got(peer) == [(b"b", 2), (b"c", 3)]


def test_it_ends_with_the_exchange(peer: Peer) -> None:
    kept(peer)
    publish(peer, b"m")
    before = len(peer.broker.engine.queues)
    peer.send(1, Exchange.Delete(exchange="x"))
    done(peer)
    assert len(peer.broker.engine.queues) == before - 1
    kept(peer)
    queue(peer)
    assert bodies(peer) == []


def test_what_leaves_it_is_no_removal() -> None:
    broker = Broker()
    told: list[Any] = []
    broker.engine.on_removed = lambda: told.extend(broker.engine.removed())
    peer = site(broker)
    kept(peer)
    publish(peer, b"a", b"b", b"c")
    broker.engine.end_turn()
    assert told == []


def test_it_cannot_be_declared_with_and_without(peer: Peer) -> None:
    kept(peer)
    peer.send(1, Exchange.Declare(exchange="x", exchange_type="fanout"))
    (answer,) = done(peer)
    assert (answer.reply_code, "qpid.ive" in answer.reply_text) == (406, True)


@pytest.mark.parametrize(("kind", "more"), [
    ("x-delayed-message", {"x-delayed-type": "fanout"}), ("fanout", {"x-message-deduplication": True}),
])  # fmt: skip
def test_what_keeps_something_else_is_refused(peer: Peer, kind: str, more: Any) -> None:
    peer.send(1, Exchange.Declare(exchange="x", exchange_type=kind, arguments={**IVE, **more}))
    (answer,) = done(peer)
    assert answer.reply_code == 406


# ---------------------------------------------------------------- other brokers


def test_a_new_primary_has_it() -> None:
    broker = Replicated()
    peer = site(broker)
    kept(peer)
    publish(peer, b"a", b"b")
    peer = promoted(broker.backup())
    queue(peer)
    assert bodies(peer) == [b"b"]


def test_what_was_brought_is_on_each_backup_that_has_the_binding() -> None:
    """In each prefix of the log: a binding without the message would never get it."""
    broker = Replicated()
    peer = site(broker)
    kept(peer)
    peer.publish(b"x" * 300_000, "k", "x")
    peer.send(1, Queue.Declare(queue="q"))
    peer.send(1, Queue.Bind(queue="q", exchange="x", routing_key="k"))
    broker.engine.flush()
    backup = Broker()
    backup.passive = True
    for batch in broker.batches:
        backup.engine.apply(batch)
        if backup.vhost.exchanges["x"].size:
            assert backup.vhost.queues["q"].core.ready == 1
    assert backup.vhost.exchanges["x"].size == 1


def test_a_binding_waits_until_its_message_is_safe() -> None:
    broker = Replicated()
    peer = site(broker)
    kept(peer)
    publish(peer, b"m")
    peer.send(1, Queue.Declare(queue="q"))
    done(peer)
    peer.send(1, Queue.Bind(queue="q", exchange="x", routing_key="k"))
    assert peer.frames() == []
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Queue.BindOk"]


def test_a_snapshot_has_the_queue() -> None:
    broker = Replicated()
    peer = site(broker)
    kept(peer)
    fresh = Broker()
    adopt(fresh.configurations, broker.configurations.snapshot())
    (own,) = fresh.vhost.configuration.own_queues()
    assert (own.core.number, own.core.shadow, own.core.max_count) == (1, True, 1)


def test_a_letter_that_may_not_be_lost_stays_while_no_queue_takes_it() -> None:
    """What the exchange keeps is replaced with the next message: it is no place for a letter."""
    broker = Replicated()
    peer = site(broker)
    kept(peer)
    letters = {"x-dead-letter-exchange": "x", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    peer.send(1, Queue.Declare(queue="source", durable=True, arguments={"x-queue-type": "quorum", **letters}))
    done(peer)
    publish(peer, b"m", to="", key="source")
    peer.send(1, Basic.Get(queue="source"), Basic.Reject(delivery_tag=1, requeue=False))
    done(peer)
    core = broker.vhost.queues["source"].core
    assert core.ready + core.unacked == 1
    queue(peer)
    broker.engine.now += 2000
    broker.engine.tick()
    done(peer)
    assert (core.ready + core.unacked, bodies(peer)) == (0, [b"m"])


def test_a_moved_message_that_no_queue_takes_is_told_as_gone() -> None:
    broker = Broker()
    told: list[Any] = []
    broker.engine.on_removed = lambda: told.extend(broker.engine.removed())
    peer = site(broker)
    kept(peer)
    queue(peer, "source", "")
    publish(peer, b"m", to="", key="source")
    assert broker.vhost.move_messages(None, "source", 10, "", "x") == 1
    broker.engine.end_turn()
    assert [(name, reason) for name, reason, *_ in told] == [("source", "unroutable")]


def test_who_binds_waits_as_publishers_do() -> None:
    """A message of a megabyte and ten thousand bindings would fill the memory past every limit."""
    broker = Broker()
    kept(site(broker))
    peer = site(broker)
    peer.send(1, Queue.Declare(queue="q"))
    broker.engine.throttle(True, "memory")
    assert not peer.connection.core.input_paused
    peer.send(1, Queue.Bind(queue="q", exchange="x", routing_key="k"))
    assert peer.connection.core.input_paused
    broker.engine.throttle(False, "memory")
    assert not peer.connection.core.input_paused


def test_a_copy_of_what_a_transaction_brought_waits_for_it() -> None:
    """A consumer must not have a message of a transaction that a fail-over takes back."""
    broker = Replicated()
    peer = site(broker)
    kept(peer)
    peer.send(1, Queue.Declare(queue="q"))
    done(peer)
    peer.send(1, Basic.Consume(queue="q", no_ack=True))
    done(peer)
    publisher = site(broker)
    publisher.call(1, commands.Tx.Select())
    publisher.publish(b"m", "k", "x")
    publisher.send(1, commands.Tx.Commit())
    peer.send(1, Queue.Bind(queue="q", exchange="x", routing_key="k"))
    broker.engine.flush()
    broker.engine.tick()
    assert peer.frames() == []
    broker.advance()
    broker.engine.end_turn()
    assert [getattr(frame, "value", b"") for frame in peer.frames()][-1] == b"m"


def test_an_alternate_without_a_name_is_one() -> None:
    """It is the default exchange."""
    peer = site(Broker())
    plain(peer, "x", arguments={"alternate-exchange": ""})
    peer.send(1, Exchange.Declare(exchange="x", exchange_type="fanout"))
    (answer,) = done(peer)
    assert answer.reply_code == 406


def test_a_copy_that_fails_leaves_its_time_to_nobody() -> None:
    peer = site(Broker())
    kept(peer)
    publish(peer, b"short", expiration="100")
    queue(peer, "q", "")
    broker = peer.broker

    def fails(*_: bytes) -> Any:
        raise RuntimeError

    shadow = broker.vhost.exchanges["x"].shadow
    assert shadow is not None
    with pytest.raises(RuntimeError):
        copy_first(broker.engine, shadow.core, fails)
    publish(peer, b"lasts", to="", key="q")
    broker.engine.now += 1000
    broker.engine.expire_due()
    assert bodies(peer) == [b"lasts"]


def test_a_binding_does_not_ask_what_others_have_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten thousandth queue took 1.4 to 3 ms, for a list of all the others."""
    peer = site(Broker())
    kept(peer, "topic")
    publish(peer, b"m")
    source = peer.broker.vhost.exchanges["x"]

    def lists_all(*_: Any) -> Any:
        raise AssertionError("all bindings were looked at")

    with monkeypatch.context() as patch:
        patch.setattr(source, "matching", lists_all)
        for number in range(5):
            queue(peer, f"q{number}")
    assert [bodies(peer, f"q{number}") for number in range(5)] == [[b"m"]] * 5
