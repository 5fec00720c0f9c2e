"""What is deleted because something else was: in bounded steps, however much there is, and nobody sees the rest."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from pamqp.base import Frame
from pamqp.commands import Basic
from pamqp.commands import Queue as Methods

from qpidd_py.broker.adoption import LOOKS, adopt, adopting
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.debris import TICK
from qpidd_py.broker.endings import DEEP, LARGE, SLICE
from qpidd_py.broker.exchange import EXCHANGE_TYPES
from qpidd_py.broker.snapshot import Records, decode_snapshot
from qpidd_py.broker.vhost import VHost
from qpidd_py.core.queue import Queue
from qpidd_py.core.routes import Route
from qpidd_py.errors import AmqpError
from tests.support.lines import lines_of
from tests.unit.broker.peer import Peer, Replicated
from tests.unit.broker.test_routing import do, make, steps

SIZES = (100, 400, 1600)
ALL = {"qpid.replicate": "all"}


def queue_of(vhost: VHost, name: str, **flags: bool) -> Any:
    wanted = {"durable": True, "exclusive": False, "auto_delete": False, **flags}
    return vhost.declare_queue(None, name, arguments=ALL, **wanted)[0]


def arguments_of(kind: str) -> dict[str, str]:
    return {**ALL, "x-delayed-type": "direct"} if kind == "x-delayed-message" else ALL


def bind(vhost: VHost, kind: str, count: int, queues: int) -> None:
    """`count` bindings of an exchange of this kind to `queues` queues."""
    vhost.declare_exchange("e", kind, True, False, False, arguments_of(kind))
    to = [queue_of(vhost, f"q{number}") for number in range(queues)]
    for number in range(count):
        key = b"1" if kind == "x-consistent-hash" else b"a.k%d" % number
        vhost.bindings.bind("e", to[number % queues], key, {"n": number})


def left(vhost: VHost) -> int:
    """Bindings that indexes have, of an exchange of any kind."""
    rest = vhost.configuration.debris
    steps = 0
    while rest._rest:
        rest.clear(1)
        steps += 1
    return steps


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_a_deletion_costs_the_same_with_more_bindings(kind: str) -> None:
    costs: dict[str, list[int]] = {"exchange": [], "queue": []}
    for count in SIZES:
        one, other = Broker().vhost, Broker().vhost
        bind(one, kind, count, 10)
        bind(other, kind, count, 1)
        costs["exchange"].append(lines_of(partial(one.delete_exchange, "e", False)))
        costs["queue"].append(lines_of(partial(other.delete_queue, None, "q0", False, False)))
        assert not list(one.configuration.bindings()) and not list(other.configuration.bindings())
    for found in costs.values():
        assert max(found) <= min(found) + 20, costs


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_a_backup_follows_at_the_same_cost(kind: str) -> None:
    costs = []
    for count in SIZES:
        broker = Replicated()
        bind(broker.vhost, kind, count, 10)
        backup = broker.backup()
        broker.batches.clear()
        broker.vhost.delete_exchange("e", False)
        broker.engine.flush()
        (batch,) = broker.batches
        costs.append(lines_of(partial(backup.engine.apply, batch)))
        assert "e" not in backup.vhost.exchanges and not list(backup.vhost.configuration.bindings())
        assert backup.configurations.snapshot() == broker.configurations.snapshot()
    assert max(costs) <= min(costs) + 20, costs


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_ticks_clear_away_what_a_deletion_leaves(kind: str) -> None:
    vhost = Broker().vhost
    bind(vhost, kind, 2 * TICK, 10)
    exchange = vhost.exchanges["e"]
    vhost.delete_queue(None, "q0", False, False)
    vhost.delete_exchange("e", False)
    for _ in range(3):
        assert vhost.configuration.debris._rest
        vhost.tick(0.0)
    assert not vhost.configuration.debris._rest
    assert not vhost.configuration._sources and not exchange.tables
    for index in ("_by_key", "_index", "_line", "_trie"):
        inside = getattr(exchange, index, {})
        for name in ("_at", "_places", "_always", "_weights"):
            assert not getattr(inside, name, None), (index, name)
        root = getattr(inside, "_root", None)
        assert root is None or not root.children


@pytest.mark.parametrize("kind", EXCHANGE_TYPES)
def test_one_that_is_declared_again_has_none_of_the_bindings(kind: str) -> None:
    vhost = Broker().vhost
    bind(vhost, kind, 60, 3)
    exchange = vhost.exchanges["e"]
    vhost.delete_queue(None, "q0", False, False)
    queue = queue_of(vhost, "q0")
    for number in range(60):
        found = vhost.routing.destinations(exchange, b"a.k%d" % number, {"headers": {"n": number}})
        assert queue.core not in found and all(not core.deleted for core in found)
    key = b"1" if kind == "x-consistent-hash" else b"a.k0"
    vhost.bindings.bind("e", queue, key, {"n": 0})
    assert exchange.size == 41
    vhost.delete_exchange("e", False)
    vhost.declare_exchange("e", kind, True, False, False, arguments_of(kind))
    assert vhost.routing.destinations(vhost.exchanges["e"], b"a.k0", {"headers": {"n": 0}}) == []
    vhost.bindings.bind("e", queue, key, {"n": 0})
    left(vhost)
    assert vhost.routing.destinations(vhost.exchanges["e"], b"a.k0", {"headers": {"n": 0}}) == [queue.core]
    vhost.delete_queue(None, "q0", False, False)
    assert not vhost.exchanges["e"].size


def test_changes_clear_away_faster_than_others_can_leave() -> None:
    vhost = Broker().vhost
    queue = queue_of(vhost, "q")
    most = 0
    for turn in range(20):
        vhost.declare_exchange("e", "direct", True, False, False, ALL)
        for number in range(100):
            vhost.bindings.bind("e", queue, b"%d.%d" % (turn, number), {})
        vhost.delete_exchange("e", False)
        most = max(most, sum(1 for _ in vhost.configuration.debris._rest))
        assert len(vhost.configuration._sources[queue]) <= 2
    assert most <= 2


# ---- auto-delete exchanges


def chain(vhost: VHost, count: int) -> None:
    """Each leads to the next, the last one to the queue `q`."""
    queue = queue_of(vhost, "q")
    for number in range(count):
        vhost.declare_exchange(f"e{number}", "fanout", True, True, False, ALL)
    for number in range(count - 1):
        vhost.bindings.bind(f"e{number}", vhost.exchanges[f"e{number + 1}"], b"", {})
    vhost.bindings.bind(f"e{count - 1}", queue, b"", {})


def named(vhost: VHost) -> int:
    return sum(name.startswith("e") for name in vhost.exchanges)


def test_a_long_chain_of_exchanges_needs_no_stack() -> None:
    count = 3000
    broker = Replicated()
    vhost = broker.vhost
    chain(vhost, count)
    vhost.delete_queue(None, "q", False, False)
    assert named(vhost) == count - SLICE
    for turn in range(2, count // SLICE + 1):
        vhost.tick(0.0)
        assert named(vhost) == count - turn * SLICE
    assert named(broker.backup().vhost) == 0


def test_a_new_primary_deletes_the_rest_of_a_chain() -> None:
    broker = Replicated()
    chain(broker.vhost, SLICE + 20)
    broker.vhost.declare_exchange("empty", "fanout", True, True, False, ALL)
    broker.vhost.delete_queue(None, "q", False, False)
    backup = broker.backup()
    assert named(backup.vhost) == 21
    backup.passive = False
    backup.vhost.endings.on_promoted()
    assert named(backup.vhost) == 1, "one that never had a binding stays"


def test_one_that_is_bound_again_meanwhile_stays() -> None:
    vhost = Replicated().vhost
    queue, other = queue_of(vhost, "q"), queue_of(vhost, "other")
    for number in range(SLICE + 5):
        vhost.declare_exchange(f"e{number}", "fanout", True, True, False, ALL)
        vhost.bindings.bind(f"e{number}", queue, b"", {})
    vhost.delete_queue(None, "q", False, False)
    assert named(vhost) == len(vhost.endings) == 5
    vhost.bindings.bind(f"e{SLICE}", other, b"", {})
    vhost.delete_exchange(f"e{SLICE + 1}", False)
    vhost.tick(0.0)
    assert named(vhost) == 1 and f"e{SLICE}" in vhost.exchanges and not vhost.endings


# ---- queues of one connection


class Connection:
    user = "guest"


def owned(vhost: VHost, count: int) -> Connection:
    """A connection with this many exclusive queues."""
    connection = Connection()
    for number in range(count):
        vhost.declare_queue(connection, f"q{number}", False, True, False, ALL)
    return connection


def test_exclusive_queues_of_a_connection_end_in_slices() -> None:
    vhost = Replicated().vhost
    vhost.endings.connection_gone(owned(vhost, 3 * SLICE))
    assert len(vhost.queues) == 2 * SLICE
    vhost.tick(0.0)
    vhost.declare_queue(None, "other", True, False, False, ALL)
    assert len(vhost.queues) == SLICE - 2 + 1
    vhost.tick(0.0)
    assert set(vhost.queues) == {"other"} and not vhost.endings


def test_one_with_many_messages_costs_more() -> None:
    broker = Broker()
    vhost = broker.vhost
    connection = owned(vhost, 20)
    for queue in vhost.queues.values():
        for _ in range(2 * LARGE):
            broker.engine.publish(Route([queue.core]), b"", b"", b"\0\x3c" + bytes(12), b"")
    vhost.endings.go_on, once = (lambda most=7: once(7)), vhost.endings.go_on  # type: ignore[method-assign]
    vhost.endings.connection_gone(connection)
    assert len(vhost.queues) == 17


def deep(broker: Broker, messages: int) -> Queue:
    """The only queue, exclusive to a connection that has ended; slices are short."""
    vhost = broker.vhost
    connection = owned(vhost, 1)
    core = vhost.queues["q0"].core
    publish(broker, core, messages)
    broker.engine.schedule, broker.engine.slice.most = lambda: None, 2
    broker.engine.begin_slice()
    vhost.endings.connection_gone(connection)
    return core


def publish(broker: Broker, core: Queue, messages: int) -> None:
    for _ in range(messages):
        broker.engine.publish(Route([core]), b"", b"", b"\0\x3c" + bytes(12), b"")


def test_a_deep_queue_ends_in_slices_also_if_it_gets_messages_meanwhile() -> None:
    broker = Broker()
    core, left = deep(broker, DEEP + 1000), [DEEP + 1000]
    while broker.vhost.endings:
        left.append(core.ready)
        assert left[-1] < left[-2] and len(left) < 1000
        publish(broker, core, 1)
        broker.vhost.tick(0.0)
    assert len(left) > 10 and core.deleted and not broker.vhost.queues


def test_who_asks_for_a_deep_queue_meanwhile_waits_until_it_is_emptied() -> None:
    broker = Broker()
    core = deep(broker, DEEP + 1000)
    asked = 0
    while not core.deleted:
        broker.engine.begin_slice()
        before = core.ready
        with pytest.raises(
            AmqpError, match="no queue" if before < 128 else "is being deleted, [0-9]+ messages are left"
        ):
            broker.vhost.find_queue("q0", Connection())
        assert before - core.ready <= 128
        asked += 1
    assert asked > 80
    broker.vhost.tick(0.0)
    assert not broker.vhost.endings


@pytest.mark.parametrize(
    ("asks", "answer"),
    [
        (Methods.Declare(queue="q0", exclusive=True), "Queue.DeclareOk"),
        (Methods.Declare(queue="q0", passive=True), "Channel.Close"),
        (Basic.Consume(queue="q0"), "Channel.Close"),
        (Basic.Get(queue="q0"), "Channel.Close"),
        (Methods.Purge(queue="q0"), "Channel.Close"),
        (Methods.Delete(queue="q0"), "Queue.DeleteOk"),
    ],
)
@pytest.mark.parametrize("before", [(), (Methods.Declare(queue="before"),)])
def test_a_channel_that_asks_for_one_is_answered_when_it_is_gone(
    asks: Frame, answer: str, before: tuple[Frame, ...]
) -> None:
    broker = Replicated()
    peer, other = Peer(broker), Peer(broker)
    for each in (peer, other):
        each.open_channel()
    core = deep(broker, DEEP + 1000)
    left, got = [core.ready], []
    peer.send(1, *before, asks)
    while not got:
        other.send(1, Basic.Qos())
        assert [frame.name for frame in other.frames()] == ["Basic.QosOk"]
        broker.advance()
        left.append(core.ready)
        got = [frame.name for frame in peer.frames() if getattr(frame, "queue", "") != "before"]
        assert len(left) < 1000
    assert got == [answer] and core.deleted
    assert max(a - b for a, b in pairwise(left)) <= 3 * 128 and len(left) > 25


def test_a_deposed_primary_drops_nothing_more_of_a_deep_queue() -> None:
    broker = Replicated()
    core = deep(broker, DEEP + 1000)
    left = core.ready
    broker.passive = True
    broker.vhost.tick(0.0)
    assert 0 < left == core.ready < DEEP + 1000 and broker.vhost.queues["q0"].waits_for_its_owner


def test_deep_queues_that_were_idle_too_long_end_in_slices() -> None:
    broker = Broker()
    vhost = broker.vhost
    queue, _ = vhost.declare_queue(None, "q", True, False, False, {"x-expires": 1000})
    publish(broker, queue.core, DEEP + 1000)
    broker.engine.schedule, broker.engine.slice.most = lambda: None, 2
    vhost.tick(1.0)
    vhost.tick(3.0)
    assert 0 < queue.core.ready < DEEP + 1000
    for _ in range(200):
        vhost.tick(3.0)
    assert queue.gone and not vhost.queues


@pytest.mark.parametrize("again", ["declare", "use", "delete", "delete in slices"])
def test_nobody_sees_a_queue_that_should_be_gone(again: str) -> None:
    vhost = Replicated().vhost
    vhost.endings.connection_gone(owned(vhost, SLICE + 9))
    name, gone = f"q{SLICE + 3}", vhost.queues[f"q{SLICE + 3}"]
    if again == "declare":
        queue, position = vhost.declare_queue(Connection(), name, False, True, False, ALL)
        assert queue is not gone and queue.position == position > gone.position
    elif again == "use":
        with pytest.raises(AmqpError, match="no queue"):
            vhost.find_queue(name, Connection())
    elif again == "delete":
        assert vhost.delete_queue(Connection(), name, False, False)[0] == 0
    else:
        assert vhost.deletable_queue(Connection(), name, False, False) is None
    assert gone.core.deleted
    vhost.tick(0.0)
    assert set(vhost.queues) == ({name} if again == "declare" else set())


def test_a_deposed_primary_leaves_the_rest_to_the_log() -> None:
    broker = Replicated()
    vhost = broker.vhost
    connection = owned(vhost, SLICE + 9)
    vhost.declare_queue(connection, "local", False, True, False, {"qpid.replicate": "none"})
    vhost.endings.connection_gone(connection)
    broker.passive = True
    vhost.tick(0.0)
    assert len(vhost.queues) == 9 and "local" not in vhost.queues and not vhost.endings
    assert all(queue.waits_for_its_owner and not queue.ending for queue in vhost.queues.values())


def test_used_auto_delete_queues_end_in_slices_after_a_promotion() -> None:
    broker = Replicated()
    for number in range(3 * SLICE):
        queue = queue_of(broker.vhost, f"q{number}", auto_delete=True)
        broker.vhost.consumer_added(queue)
    backup = broker.backup()
    backup.passive = False
    backup.vhost.endings.on_promoted()
    assert len(backup.vhost.queues) == SLICE
    backup.vhost.endings.consumers_gone([queue.core for queue in backup.vhost.queues.values()])
    backup.vhost.tick(0.0)
    backup.vhost.tick(0.0)
    assert not backup.vhost.queues and not backup.vhost.endings


# ---- what a joining backup is sent


@settings(deadline=None)
@given(steps)
def test_a_snapshot_has_what_there_is(history: Any) -> None:
    """Also between a deletion and the ticks that clear away what it leaves."""
    broker = make(Replicated())
    configuration = broker.configurations
    for step, binding, number in history:
        do(broker, step, binding, number)
        snapshot = configuration.snapshot()
        assert [position for position, _ in snapshot[1:]] == sorted(configuration._positions())
    fresh = Broker().configurations
    adopt(fresh, configuration.snapshot())
    assert fresh.snapshot() == configuration.snapshot()
    assert {binding.key for binding in fresh.bindings()} == {binding.key for binding in configuration.bindings()}


def test_what_is_left_of_a_binding_is_not_taken_for_it() -> None:
    """A backup that adopts the same bindings again, to another queue of that name."""
    broker = Replicated()
    bind(broker.vhost, "topic", 20, 2)
    before = broker.configurations.snapshot()
    backup = broker.backup()
    there = backup.vhost.configuration
    there.drop_queue(there.queues["q0"])
    assert there.debris and backup.configurations.snapshot() != before
    adopt(backup.configurations, before)
    assert backup.configurations.snapshot() == before and there.exchanges["e"].size == 20
    assert not there.debris


def test_records_that_come_out_of_order_are_in_order() -> None:
    records = Records()
    for position in (5, 9, 7, 0, 7):
        records.put(position, b"%d" % position)
    records.drop(9)
    assert decode_snapshot(records.encoded(b"first")) == [(0, b"first"), (5, b"5"), (7, b"7")]
    assert decode_snapshot(records.encoded(b"", [7])) == [(0, b""), (7, b"7")]
    assert (records.payload(7), records.payload(9), records.payload(0)) == (b"7", None, None)


# ---- what many objects cost otherwise


def test_a_deletion_if_unused_does_not_look_at_everything() -> None:
    costs = []
    for count in SIZES:
        vhost = Broker().vhost
        for number in range(count):
            vhost.declare_exchange(f"e{number}", "fanout", True, False, False, {"alternate-exchange": "used"})
            vhost.declare_queue(None, f"q{number}", True, False, False, {"alternate-exchange": "other"})
        vhost.declare_exchange("free", "fanout", True, False, False, {})
        costs.append(lines_of(partial(vhost.delete_exchange, "free", True)))
    assert max(costs) <= min(costs) + 20, costs


def test_an_alternate_exchange_is_in_use() -> None:
    vhost = Broker().vhost
    for name in ("used", "other"):
        vhost.declare_exchange(name, "fanout", True, False, False, {})
    vhost.declare_exchange("e", "fanout", True, False, False, {"alternate-exchange": "used"})
    vhost.declare_queue(None, "q", True, False, False, {"alternate-exchange": "other"})
    for name in ("used", "other"):
        with pytest.raises(AmqpError, match="in use"):
            vhost.delete_exchange(name, True)
    vhost.delete_exchange("e", True)
    vhost.delete_queue(None, "q", False, False)
    for name in ("used", "other"):
        vhost.delete_exchange(name, True)
    assert not {"used", "other"} & vhost.exchanges.keys()


def test_a_promotion_looks_at_what_may_end() -> None:
    costs = []
    for count in SIZES:
        broker = Replicated()
        for number in range(count):
            queue_of(broker.vhost, f"q{number}")
        costs.append(lines_of(broker.vhost.endings.on_promoted))
    assert max(costs) <= SIZES[-1] + 100, "a line for each, at most"


def test_what_a_backup_has_already_is_compared_in_steps() -> None:
    """A backup that joins again compares all, and changes nothing."""
    worst = []
    for count in SIZES:
        broker = make(Replicated())
        bind(broker.vhost, "topic", count, 10)
        steps_of = adopting(broker.configurations, broker.configurations.snapshot())
        costs = []
        while costs[-1:] != [0]:
            costs.append(lines_of(partial(next, steps_of, None)))
        worst.append(max(costs))
        assert len(costs) > count // LOOKS
    assert max(worst) <= min(worst) + 20, worst
