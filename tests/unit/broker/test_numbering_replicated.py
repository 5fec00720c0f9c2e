"""Exchanges that number their messages: what another broker has of it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from qpidd_py.amqp.fields import encode_table
from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.numbering import MOST, NUMBER, Numbers
from qpidd_py.broker.snapshot import Records
from qpidd_py.core import Engine
from qpidd_py.core.memory import plan_failures
from qpidd_py.errors import LinkError
from tests.unit.broker.numbered import HEADER, done, exchange, got, last, link, promoted, publish, queue, site
from tests.unit.broker.peer import Peer, Replicated

Basic, Confirm, Exchange = commands.Basic, commands.Confirm, commands.Exchange


# ---------------------------------------------------------------- other brokers


def test_a_confirm_waits_for_the_number_though_a_consumer_has_the_message() -> None:
    """The consumer has number 1.  If the new primary has neither message nor number, it gives number 1 again: the
    publisher must not have been told that its message is safe."""
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer)
    peer.call(1, Confirm.Select())
    peer.send(1, Basic.Consume(queue="q", consumer_tag="c"))
    done(peer)
    peer.publish(b"m", "k", "x")
    assert isinstance(peer.frames()[0], Basic.Deliver)
    peer.send(1, Basic.Ack(delivery_tag=1))
    broker.engine.flush()
    broker.engine.tick()
    broker.engine.tick()
    assert peer.frames() == []
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Basic.Ack"]


@pytest.mark.parametrize("key", ["k", "other"])
def test_a_message_for_no_queue_is_confirmed_with_its_number(key: str) -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer, key="k", arguments={"qpid.replicate": "none"})
    peer.call(1, Confirm.Select())
    peer.publish(b"m", key, "x")
    assert peer.frames() == []
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Basic.Ack"]
    assert last(broker.backup()) == 1


def test_a_new_primary_goes_on() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer)
    publish(peer, b"a", b"b")
    publish(peer, b"none", to="x", key="k", headers={})
    peer = promoted(broker.backup())
    publish(peer, b"c")
    assert got(peer) == [(b"a", 1), (b"b", 2), (b"none", 3), (b"c", 4)]


def test_each_prefix_of_the_log_that_has_a_message_has_its_number() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer, "a", "fanout")
    exchange(peer, "b", "fanout")
    link(peer, "a", "b")
    queue(peer, "qa", "a")
    queue(peer, "qb", "b")
    for size in (10, 70_000, 200_000, 10, 1_000_000, 300_000, 10):
        peer.publish(b"x" * size, "k", "a")
    broker.engine.flush()
    backup = Broker()
    backup.passive = True
    for batch in broker.batches:
        backup.engine.apply(batch)
        counts = []
        for name in "ab":
            if f"q{name}" in backup.vhost.queues:
                counts.append(backup.vhost.queues[f"q{name}"].core.ready)
                assert last(backup, name) == counts[-1]
        assert len(set(counts)) <= 1
    assert last(backup, "a") == 7


def test_a_snapshot_has_the_last_number() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, *[b"m"] * 5)
    fresh = Broker()
    adopt(fresh.configurations, broker.configurations.snapshot())
    assert last(fresh) == 5
    publish(peer, b"m")
    adopt(fresh.configurations, broker.configurations.snapshot())
    assert last(fresh) == 6
    assert fresh.configurations.snapshot() == broker.configurations.snapshot()


def test_a_deposed_primary_takes_the_numbers_of_the_new_one() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, b"m")
    new = broker.backup()
    publish(peer, *[b"alone"] * 5)
    peer = promoted(new)
    publish(peer, b"m")
    adopt(broker.configurations, new.configurations.snapshot())
    assert last(broker) == 2


def test_one_that_has_given_none_resets_a_deposed_primary() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    new = broker.backup()
    publish(peer, b"alone")
    adopt(broker.configurations, new.configurations.snapshot())
    assert last(broker) == 0


def test_an_exchange_that_is_made_again_begins_again() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    queue(peer)
    publish(peer, b"a", b"b")
    peer.send(1, Exchange.Delete(exchange="x"))
    done(peer)
    exchange(peer)
    queue(peer)
    publish(peer, b"c")
    assert got(peer) == [(b"a", 1), (b"b", 2), (b"c", 1)]
    assert last(broker.backup()) == 1
    assert len(broker.configurations.snapshot()) == 5


def test_an_exchange_that_is_gone_leaves_no_record() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, b"a")
    peer.send(1, Exchange.Delete(exchange="x"))
    done(peer)
    assert len(broker.configurations.snapshot()) == 1


def test_an_exchange_of_one_broker_only_counts_by_itself() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer, arguments={"qpid.replicate": "none"})
    queue(peer, arguments={"qpid.replicate": "none"})
    before = broker.engine.position
    publish(peer, b"a", b"b")
    assert got(peer) == [(b"a", 1), (b"b", 2)] and broker.engine.position == before


def test_a_backup_gives_no_numbers_of_its_primary() -> None:
    broker = Replicated()
    peer = site(broker)
    exchange(peer)
    publish(peer, b"a")
    backup = broker.backup()
    peer = Peer(backup)
    peer.open_channel()
    exchange(peer, "own", "fanout", arguments={"qpid.replicate": "none"})
    queue(peer, source="own", arguments={"qpid.replicate": "none"})
    publish(peer, b"b", headers={HEADER: 9}, to="own")
    publish(peer, b"c")
    assert got(peer) == [(b"b", 1)]
    assert (last(backup), last(backup, "own")) == (1, 1)


@pytest.mark.parametrize("value", [0, -1, MOST + 1, True, "5", None])
def test_what_is_no_number_in_the_log(value: Any) -> None:
    backup = Broker()
    payload = encode_table({"op": NUMBER, "name": "x", "last": value}) if value != MOST + 1 else b"\0\0\0\0"
    with pytest.raises(LinkError):
        backup.configurations.apply(5, payload)


def test_the_operation_is_a_table() -> None:
    numbers = Numbers("x", Records(), True)
    numbers.note(7, 1, b"")
    backup = Broker()
    backup.configurations.apply(5, numbers.operation())  # of an exchange that is gone: nothing
    assert backup.configurations.snapshot()[1:] == []


@pytest.mark.parametrize("large", [False, True])
def test_a_failed_allocation_gives_no_number_twice(large: bool) -> None:
    """Wherever memory lacks: numbers may be left out, and a backup has those of the primary."""
    first = 0
    while True:
        first += 1
        broker = Replicated(engine=Engine(segment_size=8192))
        peer = site(broker)
        for name in "ab":
            exchange(peer, name, "fanout")
            queue(peer, f"q{name}", name, arguments={"x-max-length": 50} if large else None)
        link(peer, "a", "b")
        plan_failures(first, 1)
        try:
            for number in range(60):
                peer.publish(b"%d" % number + b"x" * (9000 if large and number % 20 == 0 else 10), "", "a")
            broker.engine.end_turn()
        finally:
            used = plan_failures(0)
        peer = site(broker)
        publish(peer, b"after", to="a")
        backup = broker.backup()
        for name in "ab":
            assert last(backup, name) == last(broker, name)
            found = [number for _, number in got(peer, f"q{name}")]
            assert found == sorted(set(found)) and found[-1] == last(broker, name)
        if used < first:
            return
