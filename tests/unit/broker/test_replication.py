"""The configuration on a backup: by the log, by a snapshot, and after promotion."""

from typing import Any

import pamqp.commands as commands
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidd_py.amqp.fields import MAX_DEPTH, encode_table
from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.queue import LOCAL_NUMBERS
from qpidd_py.errors import ChannelException, ConnectionException, LinkError
from tests.unit.broker.peer import Peer, Replicated

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue


def state(vhost):
    """Everything replicated, comparable."""
    return (
        {q.name: (q.position, q.number, q.used_position, q.properties(), q.level, q.core.replicated)
         for q in vhost.queues.values() if q.position},
        {e.name: (e.position, e.properties()) for e in vhost.exchanges.values() if e.position},
        {b.key: b.position for b in vhost.configuration.bindings() if b.position},
    )  # fmt: skip


def declared(broker, *queues):
    peer = Peer(broker)
    peer.open_channel()
    for name in queues:
        peer.send(1, Queue.Declare(queue=name))
        broker.advance()
    return peer


def test_replies_wait_until_they_are_safe():
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    peer.send(1, Queue.Declare(queue="q"), Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"))
    assert peer.frames() == []
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Queue.DeclareOk", "Queue.BindOk"]


def test_arguments_as_deep_as_a_client_may_send_them_reach_a_backup():
    """A primary that took what no backup reads would stay alone for ever."""
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    deep: Any = 1
    for number in range(MAX_DEPTH):
        deep = {"t": deep} if number % 2 else [deep]
    deepest = {"x": deep}
    peer.send(1, Queue.Declare(queue="q", arguments=deepest), Exchange.Declare(exchange="x", arguments=deepest))
    peer.send(1, Queue.Bind(queue="q", exchange="x", routing_key="k", arguments=deepest))
    broker.advance()
    assert [frame.name for frame in peer.frames()] == ["Queue.DeclareOk", "Exchange.DeclareOk", "Queue.BindOk"]
    assert state(broker.backup().vhost) == state(broker.vhost)
    fresh = Broker()
    adopt(fresh.configurations, broker.configurations.snapshot())
    assert state(fresh.vhost) == state(broker.vhost)
    peer.send(1, Queue.Declare(queue="deeper", arguments={"x": {"t": deep}}))
    assert peer.frames()[-1].name == "Connection.Close"


@pytest.mark.parametrize(
    "again",
    [
        Queue.Declare(queue="q"),
        Queue.Delete(queue="gone"),
        Queue.Bind(queue="q", exchange="x", routing_key="k"),
        Queue.Unbind(queue="q", exchange="x", routing_key="other"),
        Queue.Purge(queue="q"),
        Exchange.Declare(exchange="x"),
        Exchange.Delete(exchange="gone"),
        Exchange.Bind(destination="y", source="x", routing_key="k"),
        Exchange.Unbind(destination="y", source="x", routing_key="other"),
    ],
)
def test_an_answer_that_changes_nothing_is_no_safer_than_a_confirm(again):
    """A primary that is cut off does not know what the new one has changed, or what it was to undo."""
    broker = Replicated()
    peer = declared(broker, "q")
    peer.send(1, Exchange.Declare(exchange="x"), Queue.Bind(queue="q", exchange="x", routing_key="k"))
    broker.advance()
    peer.send(1, Exchange.Declare(exchange="y"), Exchange.Bind(destination="y", source="x", routing_key="k"))
    for _ in range(4):
        broker.advance()
    assert peer.frames()[-1].name == "Exchange.BindOk"
    before = broker.engine.position
    peer.send(1, again)
    assert peer.frames() == [] and broker.engine.position == before + 1
    broker.advance()
    assert len(peer.frames()) == 1


def test_the_answers_of_one_turn_share_an_operation():
    broker = Replicated()
    peer = declared(broker, "q", "p")
    peer.frames()
    other = declared(broker, "q")
    other.frames()
    before = broker.engine.position
    peer.send(1, Queue.Declare(queue="q"))
    other.send(1, Queue.Declare(queue="p"))
    assert broker.engine.position == before + 1
    broker.advance()
    assert len(peer.frames()) == len(other.frames()) == 1


@pytest.mark.parametrize(
    "again",
    [
        *[Exchange.Declare(exchange="amq.direct"), Exchange.Declare(exchange="amq.direct", passive=True)],
        *[Queue.Declare(queue="here"), Queue.Purge(queue="here"), Queue.Declare(queue="q", passive=True)],
        *[Basic.Get(queue="q"), Basic.Cancel("none")],
    ],
)
def test_an_answer_about_what_is_not_replicated_and_a_question_wait_for_nothing(again):
    broker = Replicated()
    peer = declared(broker, "q")
    peer.send(1, Queue.Declare(queue="here", arguments={"qpid.replicate": "none"}))
    peer.frames()
    peer.send(1, again)
    assert len(peer.frames()) == 1


@pytest.mark.parametrize(
    "again",
    [Queue.Declare(queue="q"), Queue.Declare(queue="q", passive=True)],
)
def test_a_repeated_declaration_waits_for_the_first(again):
    broker = Replicated()
    first, second = Peer(broker), Peer(broker)
    first.open_channel()
    second.open_channel()
    first.send(1, Queue.Declare(queue="q"))
    second.send(1, again)
    assert first.frames() == second.frames() == []
    broker.advance()
    assert [frame.name for frame in second.frames()] == ["Queue.DeclareOk"]


def test_a_repeated_deletion_waits_for_the_first():
    broker = Replicated()
    declared(broker, "q").send(1, Queue.Delete(queue="q"))
    other = Peer(broker)
    other.open_channel()
    other.send(1, Queue.Delete(queue="q"))
    assert other.frames() == []
    broker.advance()
    assert [frame.name for frame in other.frames()] == ["Queue.DeleteOk"]


def test_local_objects_wait_for_no_backup_and_stay_here():
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    assert peer.call(1, Queue.Declare(queue="t", exclusive=True, auto_delete=True)).queue == "t"
    assert peer.call(1, Queue.Declare(queue="n", arguments={"qpid.replicate": "none"})).queue == "n"
    assert peer.call(1, Queue.Bind(queue="n", exchange="amq.direct", routing_key="k")).name == "Queue.BindOk"
    assert (
        peer.call(1, Exchange.Declare(exchange="e", arguments={"qpid.replicate": "none"})).name == "Exchange.DeclareOk"
    )
    assert broker.vhost.queues["n"].number > LOCAL_NUMBERS
    assert state(broker.vhost) == ({}, {}, {})
    assert broker.batches == [] and len(broker.configurations.snapshot()) == 1


def test_levels():
    broker = Replicated("configuration")
    peer = declared(broker, "c")
    peer.send(1, Queue.Declare(queue="a", arguments={"qpid.replicate": "all"}))
    peer.send(1, Queue.Declare(queue="x", exclusive=True, auto_delete=True, arguments={"x-expires": 1000}))
    broker.advance()
    backup = broker.backup()
    found = {queue.name: (queue.level, queue.core.replicated) for queue in backup.vhost.queues.values()}
    assert found["c"] == ("configuration", False)
    assert found["a"] == ("all", True)
    assert found["x"] == ("configuration", False)


def test_a_redeclaration_must_not_ask_for_another_level():
    broker = Replicated()
    peer = declared(broker, "q")
    peer.frames()
    peer.send(1, Queue.Declare(queue="q", arguments={"qpid.replicate": "all"}))
    broker.advance()
    assert [frame.queue for frame in peer.frames()] == ["q"]
    assert peer.call(1, Queue.Declare(queue="q", arguments={"qpid.replicate": "none"})).reply_code == 406


def test_messages_and_configuration_arrive_together():
    broker = Replicated()
    peer = declared(broker, "q")
    peer.publish(b"1", "q")
    peer.send(1, Queue.Declare(queue="p"))
    broker.advance()
    peer.publish(b"2", "p")
    peer.send(1, Queue.Delete(queue="q"))
    broker.advance()
    backup = broker.backup()
    assert list(backup.vhost.queues) == ["p"]
    assert backup.vhost.queues["p"].core.ready == 1


def test_garbage_in_the_log_costs_the_link():
    for payload in (b"", b"\0\0\0\x09", encode_table({"op": "unknown"}), encode_table({"op": "queue.declare"})):
        with pytest.raises(LinkError):
            Broker().configurations.apply(1, payload)


# ---------------------------------------------------------------- primary and backup are the same

CONNECTION = object()
names = st.sampled_from(["a", "b", "c"])
flags = st.booleans()
levels = st.sampled_from([None, "none", "configuration", "all"])
operations = st.one_of(
    st.tuples(st.just("declare"), names, flags, flags, levels),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("exchange"), names, st.sampled_from(["direct", "topic", "fanout", "headers"]), flags, levels),
    st.tuples(st.just("exchange-delete"), names),
    st.tuples(st.just("bind"), names | st.just("amq.topic"), names, flags, st.binary(max_size=3), st.booleans()),
    st.tuples(st.just("unbind"), names | st.just("amq.topic"), names, flags, st.binary(max_size=3), st.booleans()),
    st.tuples(st.just("consume"), names),
)


def act(vhost, connection, step):
    """One step; what AMQP refuses is refused."""
    kind, name, *rest = step
    try:
        if kind == "declare":
            arguments = {"qpid.replicate": rest[2]} if rest[2] else {}
            vhost.declare_queue(connection, name, rest[0], False, rest[1], arguments)
        elif kind == "delete":
            vhost.delete_queue(connection, name, False, False)
        elif kind == "exchange":
            arguments = {"qpid.replicate": rest[2]} if rest[2] else {}
            vhost.declare_exchange(name, rest[0], True, rest[1], False, arguments)
        elif kind == "exchange-delete":
            vhost.delete_exchange(name, False)
        elif kind == "consume":
            vhost.consumer_added(vhost.find_queue(name, connection))
        else:
            to_exchange = rest[1]
            find = vhost.find_exchange if to_exchange else lambda queue: vhost.find_queue(queue, connection)
            call = vhost.bindings.bind if kind == "bind" else vhost.bindings.unbind
            call(name, find(rest[0]), rest[2], {"x": 1} if rest[3] else {})
    except (ChannelException, ConnectionException):
        pass


@settings(deadline=None)
@given(st.lists(operations, max_size=40), st.lists(operations, max_size=15))
def test_backup_equals_primary(steps, more):
    broker = Replicated()
    for step in steps:
        act(broker.vhost, CONNECTION, step)
    first = broker.backup()
    assert state(first.vhost) == state(broker.vhost)
    snapshot = broker.configurations.snapshot()
    assert first.configurations.snapshot() == snapshot
    assert state(restored(broker).vhost) == state(broker.vhost)
    # one that was away for a while
    for step in more:
        act(broker.vhost, CONNECTION, step)
    adopt(first.configurations, broker.configurations.snapshot())
    assert state(first.vhost) == state(broker.vhost)
    assert first.configurations.common.next_number == broker.configurations.common.next_number
    assert all_routes(first) == all_routes(restored(broker))


def restored(broker):
    """What is replicated of it, made anew."""
    fresh = Broker()
    adopt(fresh.configurations, broker.configurations.snapshot())
    return fresh


def all_routes(broker):
    return {
        (exchange.name, key): {
            queue.name for queue in broker.vhost.routing.destinations(exchange, key, {"headers": {"x": 1}})
        }
        for exchange in broker.vhost.exchanges.values()
        for key in (b"", b"a", b"\0")
    }


def test_same_name_other_uid_is_another_queue():
    broker = Replicated()
    peer = declared(broker, "q")
    peer.publish(b"old", "q")
    backup = broker.backup()
    assert backup.vhost.queues["q"].core.ready == 1
    peer.send(1, Queue.Delete(queue="q"))
    broker.advance()
    peer.send(1, Queue.Declare(queue="q"))
    broker.advance()
    adopt(backup.configurations, broker.configurations.snapshot())
    assert backup.vhost.queues["q"].core.ready == 0
    assert backup.vhost.queues["q"].number == broker.vhost.queues["q"].number


def test_adopt_keeps_what_is_the_same_and_what_is_local():
    broker = Replicated()
    peer = declared(broker, "q")
    peer.publish(b"x", "q")
    backup = broker.backup()
    admin = Peer(backup)
    admin.open_channel()
    admin.call(1, Queue.Declare(queue="mine", exclusive=True, auto_delete=True))
    kept = backup.vhost.queues["q"]
    adopt(backup.configurations, broker.configurations.snapshot())
    assert backup.vhost.queues["q"] is kept and kept.core.ready == 1
    assert "mine" in backup.vhost.queues


def test_adopt_forgets_that_a_queue_was_used_where_the_primary_does_not_know_of_it():
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    peer.send(1, Queue.Declare(queue="q", auto_delete=True))
    broker.advance()
    backup = broker.backup()
    before = broker.configurations.snapshot()
    backup.configurations.apply(broker.engine.position + 1, encode_table({"op": "queue.used", "name": "q"}))
    assert backup.configurations.snapshot() != before
    adopt(backup.configurations, before)
    assert backup.configurations.snapshot() == before


def test_numbers_are_never_used_twice():
    broker = Replicated()
    peer = declared(broker, "a", "b")
    for name in "ab":
        peer.send(1, Queue.Delete(queue=name))
        broker.advance()
    fresh = Broker()
    adopt(fresh.configurations, broker.configurations.snapshot())
    assert fresh.configurations.common.next_number == 3


# ---------------------------------------------------------------- roles


def test_a_backup_lets_no_client_touch_what_is_replicated():
    broker = Replicated()
    peer = declared(broker, "q")
    peer.send(1, Exchange.Declare(exchange="e"))
    broker.advance()
    backup = broker.backup()
    backup.vhosts.rules.default_replicate = "all"
    admin = Peer(backup)
    refused = [
        Queue.Declare(queue="q"), Queue.Declare(queue="q", passive=True), Queue.Delete(queue="q"),
        Queue.Purge(queue="q"), Queue.Bind(queue="q", exchange="e", routing_key=""), Basic.Get(queue="q"),
        Basic.Consume(queue="q"), Queue.Declare(queue="new"), Exchange.Declare(exchange="new"),
        Exchange.Declare(exchange="e"), Exchange.Delete(exchange="e"),
        Exchange.Bind(destination="e", source="amq.direct"),
    ]  # fmt: skip
    for number, method in enumerate(refused, 1):
        admin.open_channel(number)
        assert admin.call(number, method).reply_code == 403, method.name
    admin.open_channel(100)
    admin.publish(b"x", "q", channel=100)
    (close,) = admin.frames()
    assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 40)
    admin.open_channel(101)
    assert admin.call(101, Queue.Declare(queue="t", exclusive=True, auto_delete=True)).queue == "t"
    admin.publish(b"x", "t", channel=101)
    assert admin.call(101, Queue.Purge(queue="t")).message_count == 1
    assert state(backup.vhost) == state(broker.vhost)


def test_a_backup_answers_at_once():
    """Nothing becomes safe there: a reply that waited for that would never come, and block its channel."""
    broker = Replicated()
    peer = declared(broker, "q")
    peer.send(1, Exchange.Declare(exchange="e"))
    broker.advance()
    broker.engine.flush()
    backup = Broker()
    backup.passive = True
    backup.engine.on_batch = lambda batch: None  # a member of a cluster: `safe` is moved from outside
    for batch in broker.batches:
        backup.engine.apply(batch)
    admin = Peer(backup)
    admin.open_channel()
    assert admin.call(1, Exchange.Declare(exchange="e", passive=True)).name == "Exchange.DeclareOk"
    assert admin.call(1, Queue.Delete(queue="unknown")).message_count == 0


def test_promotion_deletes_what_belonged_to_the_clients_of_the_old_primary():
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    for declare in (
        Queue.Declare(queue="exclusive", exclusive=True, arguments={"qpid.replicate": "all"}),
        Queue.Declare(queue="used", auto_delete=True),
        Queue.Declare(queue="never-used", auto_delete=True),
        Queue.Declare(queue="plain"),
    ):
        peer.send(1, declare)
        broker.advance()
    peer.send(1, Exchange.Declare(exchange="e", auto_delete=True))
    broker.advance()
    peer.send(1, Queue.Bind(queue="used", exchange="e", routing_key=""))
    broker.advance()
    peer.send(1, Basic.Consume(queue="used"), Basic.Consume(queue="plain"))
    broker.advance()
    backup = broker.backup()
    assert set(backup.vhost.queues) == {"exclusive", "used", "never-used", "plain"}
    backup.engine.begin_epoch(1)
    backup.passive = False
    backup.vhost.endings.on_promoted()
    assert set(backup.vhost.queues) == {"exclusive", "never-used", "plain"}
    backup.vhost.tick(100.0)
    backup.vhost.tick(159.9)
    assert "exclusive" in backup.vhost.queues  # its owner may come back
    backup.vhost.tick(160.1)
    assert set(backup.vhost.queues) == {"never-used", "plain"}
    assert "e" not in backup.vhost.exchanges
    heir = Peer(backup)
    heir.open_channel()
    assert heir.call(1, Queue.Declare(queue="new", arguments={"qpid.replicate": "all"})).queue == "new"
    assert backup.vhost.queues["new"].number == 5


def test_demotion_logs_nothing():
    """Clients are closed after the role changed: what depended on them is left to the new primary's listing."""
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    for declare in (
        Queue.Declare(queue="mine", exclusive=True, arguments={"qpid.replicate": "all"}),
        Queue.Declare(queue="auto", auto_delete=True),
        Queue.Declare(queue="local", exclusive=True, auto_delete=True),
    ):
        peer.send(1, declare)
        broker.advance()
    peer.send(1, Basic.Consume(queue="auto"))
    broker.advance()
    batches = len(broker.batches)
    broker.passive = True
    broker.close_clients(320, "no longer primary")
    peer.frames()
    peer.send(0, commands.Connection.CloseOk())
    broker.engine.demote()
    broker.engine.end_turn()
    assert peer.connection.finished and len(broker.batches) == batches
    assert set(broker.vhost.queues) == {"mine", "auto"}
    adopt(broker.configurations, Broker().configurations.snapshot())
    assert not broker.vhost.queues


@pytest.mark.parametrize("level", ["some", "ALL", "", 1, True])
def test_an_unknown_level_is_refused_and_nothing_is_made(level):
    broker = Replicated()
    declared(broker, "q").send(1, Exchange.Declare(exchange="e"))
    broker.advance()
    before = state(broker.vhost)
    arguments = {"qpid.replicate": level}
    for method in (
        Queue.Declare(queue="new", arguments=arguments),
        Exchange.Declare(exchange="new", arguments=arguments),
        Queue.Bind(queue="q", exchange="e", routing_key="k", arguments=arguments),
        Exchange.Bind(destination="e", source="amq.direct", arguments=arguments),
    ):
        peer = Peer(broker)
        peer.open_channel()
        assert peer.call(1, method).reply_code == 406, method.name
    assert state(broker.vhost) == before == state(broker.backup().vhost)
    assert not list(broker.vhost.configuration.bindings())


def test_a_binding_of_level_none_is_gone_after_a_fail_over():
    broker = Replicated()
    peer = declared(broker, "q")
    peer.send(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="both"))
    broker.advance()
    arguments: dict[str, Any] = {"qpid.replicate": "none"}
    peer.send(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="here", arguments=arguments))
    broker.advance()
    assert {binding.routing_key for binding in broker.vhost.configuration.bindings()} == {b"both", b"here"}
    heir = broker.backup()
    heir.engine.begin_epoch(1)
    heir.passive = False
    heir.vhost.endings.on_promoted()
    assert {binding.routing_key for binding in heir.vhost.configuration.bindings()} == {b"both"}
