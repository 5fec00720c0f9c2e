"""Channels, deliveries, confirms and the turn, driven in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pamqp.commands as commands
import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Engine, Queue, Route, records
from qpidd_py.core.routes import Mark
from qpidd_py.errors import InvariantError
from tests.support.memory import MemoryClient, confirms, decode, deliveries, publish_octets


def test_a_message_arrives_as_it_was_sent(client: MemoryClient, queue: Queue) -> None:
    client.channel.consume(queue, "c", False, 0)
    client.publish(b"hello", "a", message_id="m1", headers={"k": 1}, delivery_mode=2)
    _, header = client.turn()[1]
    assert (header.properties.message_id, header.properties.headers) == ("m1", {"k": 1})
    client.publish(b"world", "a")
    assert deliveries(client.turn()) == [(2, b"world", False)]


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 50_000, 300_000])
def test_bodies_of_any_size_cross_frames_and_segments(client: MemoryClient, queue: Queue, size: int) -> None:
    body = bytes(i * 7 & 255 for i in range(size))
    client.connection.frame_max = 4096
    client.channel.consume(queue, "c", False, 0)
    client.connection.feed(publish_octets(body, "a", frame_max=4096))
    assert deliveries(client.turn()) == [(1, body, False)]


def test_octet_by_octet_is_the_same_as_at_once(client: MemoryClient, queue: Queue) -> None:
    for octet in publish_octets(b"x" * 50, "a", message_id="id") * 3:
        client.connection.feed(bytes([octet]))
    client.turn()
    assert [m[5] for m in queue.peek(9)] == [b"x" * 50] * 3


def test_without_replication_confirms_come_at_the_end_of_the_turn(client: MemoryClient) -> None:
    client.channel.confirm_select()
    for _ in range(5):
        client.publish(b"m", "a")
    assert confirms(client.turn()) == [(5, True)]
    client.publish(b"m", "a")
    assert confirms(client.turn()) == [(6, False)]


def test_confirms_wait_for_safe(engine: Engine, client: MemoryClient) -> None:
    batches: list[Batch] = []
    engine.on_batch = batches.append
    client.channel.confirm_select()
    for _ in range(100):
        client.publish(b"m", "a")
    assert confirms(client.turn()) == []
    engine.advance_safe(batches[0].last)
    assert confirms(client.turn()) == [(100, True)]
    assert engine.waiting_confirms == 0


def test_an_acknowledged_message_waits_for_no_backup(engine: Engine, client: MemoryClient, queue: Queue) -> None:
    engine.on_batch = lambda batch: None
    client.channel.confirm_select()
    client.channel.consume(queue, "c", False, 0)
    for _ in range(3):
        client.publish(b"m", "a")
    assert confirms(client.turn()) == []
    client.send(Basic.Ack(2, multiple=True))
    assert confirms(client.turn()) == [(2, True)]
    client.send(Basic.Ack(3))
    assert confirms(client.turn()) == [(3, False)]


def test_acknowledged_behind_one_that_waits_is_confirmed_by_the_tick(engine: Engine, client: MemoryClient) -> None:
    other = engine.create_queue(2, "b", True)
    client.owner.routes[b"b"] = [other]
    engine.on_batch = lambda batch: None
    client.channel.confirm_select()
    client.publish(b"waits", "a")
    client.publish(b"consumed", "b")
    client.channel.consume(other, "c", False, 0)
    assert confirms(client.turn()) == []
    client.send(Basic.Ack(1))
    engine.tick()
    engine.tick()
    assert confirms(client.turn()) == [(2, False)]
    engine.tick()
    assert confirms(client.turn()) == []
    engine.advance_safe(engine.position)
    assert confirms(client.turn()) == [(2, True)]


def test_a_message_in_two_queues_waits_though_one_has_consumed_it(engine: Engine, client: MemoryClient) -> None:
    queues = [engine.create_queue(n, f"q{n}", True) for n in (2, 3)]
    client.owner.routes[b"both"] = queues
    engine.on_batch = lambda batch: None
    client.channel.confirm_select()
    client.channel.consume(queues[0], "c", False, 0)
    client.publish(b"m", "both")
    client.turn()
    client.send(Basic.Ack(1))
    assert confirms(client.turn()) == []
    assert (queues[0].ready, queues[1].ready) == (0, 1)


def test_unroutable_and_local_publishes_keep_their_place_among_confirms(engine: Engine, client: MemoryClient) -> None:
    client.owner.routes[b"local"] = [engine.create_queue(9, "local", False)]
    engine.on_batch = lambda batch: None
    client.channel.confirm_select()
    client.publish(b"m", "local")
    assert confirms(client.turn()) == [(1, False)]
    client.publish(b"waits", "a")
    client.publish(b"m", "nowhere")
    client.publish(b"m", "local")
    assert confirms(client.turn()) == []
    engine.advance_safe(engine.position)
    assert confirms(client.turn()) == [(4, True)]


def test_mandatory_returns_what_no_queue_takes(client: MemoryClient) -> None:
    client.publish(b"back", "nowhere", mandatory=True, message_id="m")
    (_, returned), (_, header), (_, body) = client.turn()
    assert (returned.reply_code, returned.reply_text, returned.routing_key) == (312, "NO_ROUTE", "nowhere")
    assert (header.properties.message_id, body.value) == ("m", b"back")


def test_one_publish_to_two_queues_is_one_record(engine: Engine, client: MemoryClient, queue: Queue) -> None:
    other = engine.create_queue(2, "b", True)
    client.owner.routes[b"both"] = [queue, other]
    batches: list[bytes] = []
    engine.on_batch = lambda batch: batches.append(bytes(batch))
    client.publish(b"m", "both")
    client.turn()
    [(operation, _, position, queues, (_, _, body))] = records(batches[0][32:])
    assert (operation, queues, body) == ("enqueue", [1, 2], b"m")
    assert queue.peek(1)[0][0] == other.peek(1)[0][0] == position


def test_prefetch_of_consumer_and_of_channel(client: MemoryClient, queue: Queue) -> None:
    for i in range(10):
        client.publish(b"%d" % i, "a")
    client.channel.consume(queue, "c", False, 3)
    assert len(deliveries(client.turn())) == 3
    client.send(Basic.Ack(2, multiple=True))
    assert [d[0] for d in deliveries(client.turn())] == [4, 5]
    client.channel.prefetch = 1
    client.send(Basic.Ack(5, multiple=True))
    assert [d[0] for d in deliveries(client.turn())] == [6]


def test_consumers_share_in_turn(client: MemoryClient, queue: Queue) -> None:
    for tag in ("c1", "c2"):
        client.channel.consume(queue, tag, True, 0)
    for _ in range(10):
        client.publish(b"m", "a")
    tags = [str(f.consumer_tag) for _, f in client.turn() if isinstance(f, Basic.Deliver)]
    assert sorted(tags) == ["c1"] * 5 + ["c2"] * 5


def test_requeue_keeps_the_place_and_says_redelivered(client: MemoryClient, queue: Queue) -> None:
    for i in range(4):
        client.publish(b"%d" % i, "a")
    client.channel.consume(queue, "c", False, 3)
    client.turn()
    client.channel.cancel("c")
    client.send(Basic.Nack(2, requeue=True))
    client.send(Basic.Reject(1, requeue=True))
    client.turn()
    queue.check()
    client.channel.consume(queue, "d", False, 0)
    assert deliveries(client.turn()) == [(4, b"0", True), (5, b"1", True), (6, b"3", False)]


def test_reject_without_requeue_is_the_end(client: MemoryClient, queue: Queue) -> None:
    client.publish(b"m", "a")
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    client.send(Basic.Reject(1, requeue=False))
    assert (queue.ready, queue.unacked) == (0, 0)


@pytest.mark.parametrize("method", [Basic.Ack(1), Basic.Nack(7), Basic.Reject(2), Basic.Ack(9, multiple=True)])
def test_an_unknown_delivery_tag_costs_the_channel(client: MemoryClient, method: commands.Basic.Ack) -> None:
    client.send(method)
    assert client.owner.failures[0][:2] == (1, 406)
    assert str(method.delivery_tag) in client.owner.failures[0][2]
    assert client.channel.closing


def test_the_same_tag_twice_costs_the_channel(client: MemoryClient, queue: Queue) -> None:
    client.publish(b"m", "a")
    client.publish(b"m", "a")
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    client.send(Basic.Ack(2))
    client.send(Basic.Ack(2))
    assert client.owner.failures[0][1] == 406


def test_get(client: MemoryClient, queue: Queue) -> None:
    assert not client.channel.get(queue, False)
    client.publish(b"m1", "a")
    client.publish(b"m2", "a")
    assert client.channel.get(queue, False)
    (_, ok), _, (_, body) = client.turn()
    assert (ok.delivery_tag, ok.message_count, ok.routing_key, body.value) == (1, 1, "a", b"m1")
    assert client.channel.get(queue, True)
    client.turn()
    assert (queue.ready, queue.unacked) == (0, 1)
    client.send(Basic.Ack(2))
    assert client.owner.failures[0][1] == 406, "what was got with no-ack has nothing to acknowledge"


def test_closing_a_channel_gives_everything_back(client: MemoryClient, queue: Queue) -> None:
    for _ in range(3):
        client.publish(b"m", "a")
    client.channel.consume(queue, "c", False, 2)
    client.turn()
    assert client.connection.close_channel(1) == [queue]
    assert (queue.ready, queue.unacked, queue.consumer_count) == (3, 0, 0)
    queue.check()


def test_recover_requeues_or_redelivers(client: MemoryClient, queue: Queue) -> None:
    client.publish(b"m", "a")
    client.channel.consume(queue, "c", False, 1)
    client.turn()
    client.channel.recover(True)
    assert deliveries(client.turn()) == [(2, b"m", True)]
    client.channel.recover(False)
    assert deliveries(client.turn()) == [(3, b"m", True)]
    client.send(Basic.Ack(3))
    assert queue.unacked == 0


def test_flow_off_stops_deliveries(client: MemoryClient, queue: Queue) -> None:
    client.channel.consume(queue, "c", False, 0)
    client.channel.active = False
    client.publish(b"m", "a")
    assert deliveries(client.turn()) == []
    client.channel.active = True
    assert len(deliveries(client.turn())) == 1


def test_a_slow_reader_bounds_the_output(client: MemoryClient, queue: Queue) -> None:
    for _ in range(100):
        client.publish(b"x" * 100_000, "a")
    client.channel.consume(queue, "c", False, 0)
    client.engine.end_turn()
    assert client.connection.backlog < 5 << 20
    got = 0
    while octets := client.connection.take_output():
        got += len(deliveries(decode(octets)))
        client.engine.end_turn()
    assert got == 100


def test_a_queue_that_goes_while_the_body_arrives_gets_nothing(
    engine: Engine, client: MemoryClient, queue: Queue
) -> None:
    """Else the log would name a queue that no backup knows any more."""
    batches: list[bytes] = []
    engine.on_batch = lambda batch: batches.append(bytes(batch))
    octets = publish_octets(b"x" * 9000, "a", frame_max=4096)
    client.connection.feed(octets[:5000])
    engine.delete_queue(queue)
    del client.owner.routes[b"a"]
    client.connection.feed(octets[5000:])
    client.turn()
    assert (batches, client.owner.failures) == ([], [])


class TestTransactions:
    def test_nothing_happens_before_commit(self, client: MemoryClient, queue: Queue) -> None:
        client.publish(b"old", "a")
        client.channel.consume(queue, "c", False, 1)
        client.turn()
        client.channel.tx_select()
        client.publish(b"new", "a")
        client.send(Basic.Ack(1))
        client.turn()
        assert (queue.ready, queue.unacked) == (0, 1)
        client.channel.tx_commit()
        assert [d[1] for d in deliveries(client.turn())] == [b"new"]
        assert (queue.ready, queue.unacked) == (0, 1)

    @pytest.mark.parametrize("limit", ["max_transaction", "max_transaction_size"])
    @pytest.mark.parametrize("end", ["tx_commit", "tx_rollback"])
    def test_one_that_is_too_large_fails_the_channel(
        self, client: MemoryClient, queue: Queue, limit: str, end: str
    ) -> None:
        """Each begins anew, and one message may be larger."""
        setattr(client.connection.engine, limit, 3 if limit == "max_transaction" else 300)
        client.channel.tx_select()
        for body in (b"x" * 400, b"y" * 80):
            for _ in range(1 if len(body) > 300 else 3):
                client.publish(body, "a")
            getattr(client.channel, end)()
        assert not client.owner.failures
        for _ in range(4):
            client.publish(b"z" * 80, "a")
        ((_, code, text, *_),) = client.owner.failures
        assert code == 406 and limit.replace("_", "-") in text
        assert queue.ready == (4 if end == "tx_commit" else 0)

    def test_settlements_count(self, client: MemoryClient, queue: Queue) -> None:
        for _ in range(5):
            client.publish(b"x", "a")
        client.channel.consume(queue, "c", False, 0)
        client.turn()
        client.connection.engine.max_transaction = 3
        client.channel.tx_select()
        client.send(Basic.Ack(2, True))
        client.publish(b"x", "a")
        assert not client.owner.failures
        client.send(Basic.Ack(5, True))
        ((_, code, text, *_),) = client.owner.failures
        assert (code, "more than 3 publishes and settlements" in text) == (406, True)

    def test_rollback_leaves_everything(self, client: MemoryClient, queue: Queue) -> None:
        client.publish(b"old", "a")
        client.channel.consume(queue, "c", False, 0)
        client.turn()
        client.channel.tx_select()
        client.publish(b"new", "a")
        client.send(Basic.Ack(1))
        client.channel.tx_rollback()
        client.send(Basic.Ack(1))
        assert not client.owner.failures, "after a rollback the delivery can be acknowledged again"
        client.channel.tx_commit()
        assert (queue.ready, queue.unacked) == (0, 0)

    def test_a_transaction_is_one_batch(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        batches: list[bytes] = []
        engine.on_batch = lambda batch: batches.append(bytes(batch))
        client.publish(b"x" * 60_000, "a")
        client.channel.consume(queue, "c", False, 0)
        client.turn()
        batches.clear()
        client.channel.tx_select()
        for _ in range(5):
            client.publish(b"y" * 30_000, "a")
        client.send(Basic.Ack(1))
        client.channel.tx_commit()
        client.turn()
        operations = [record[0] for record in records(batches[0][32:])]
        assert operations == ["enqueue"] * 5 + ["dequeue"]

    def test_what_a_transaction_settles_is_not_confirmed_before_it_is_safe(
        self, engine: Engine, client: MemoryClient, queue: Queue
    ) -> None:
        engine.on_batch = lambda batch: None
        client.channel.confirm_select()
        client.publish(b"m", "a")
        worker = client.connection.open_channel(2)
        worker.consume(queue, "c", False, 0)
        client.turn()
        worker.tx_select()
        client.send(Basic.Ack(1), channel=2)
        position = worker.tx_commit()
        assert confirms(client.turn()) == []
        engine.advance_safe(position)
        assert confirms(client.turn()) == [(1, False)]


class TestHeldReplies:
    def test_the_channel_waits_and_the_others_do_not(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        engine.on_batch = lambda batch: None
        other = client.connection.open_channel(2)
        position = engine.log_config(b"declare")
        client.channel.hold(position, b"\x08\0\0\0\0\0\0\xce")
        client.publish(b"kept aside", "a")
        client.connection.feed(publish_octets(b"at once", "a", channel=2))
        client.turn()
        assert [m[5] for m in queue.peek(9)] == [b"at once"]
        engine.advance_safe(position)
        client.turn()
        assert [m[5] for m in queue.peek(9)] == [b"at once", b"kept aside"]
        assert other.number == 2

    def test_what_is_safe_is_answered_at_once(self, engine: Engine, client: MemoryClient) -> None:
        client.turn()
        client.channel.hold(engine.safe, b"\x08\0\0\0\0\0\0\xce")
        assert len(client.turn()) == 1


class TestRoles:
    def test_positions_go_on_in_the_new_epoch(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        client.publish(b"m", "a")
        client.turn()
        engine.begin_epoch(3)
        client.publish(b"n", "a")
        client.turn()
        assert [m[0] for m in queue.peek(9)] == [1, (3 << 48) + 2]
        with pytest.raises(InvariantError):
            engine.begin_epoch(3)

    def test_a_backup_knows_what_had_been_handed_out(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        backup = Engine(lambda position, payload: None, segment_size=65536)
        copy = backup.create_queue(1, "a", True)
        engine.on_batch = lambda batch: backup.apply(bytes(batch))
        client.publish(b"1", "a")
        client.publish(b"2", "a")
        client.channel.consume(queue, "c", False, 1)
        client.turn()
        backup.begin_epoch(1)
        assert [(m[1], m[5]) for m in copy.peek(9)] == [(True, b"1"), (False, b"2")]
        taker = MemoryClient(backup)
        taker.channel.consume(copy, "c", False, 0)
        assert [d[2] for d in deliveries(taker.turn())] == [True, False]

    def test_demotion_forgets_what_waits(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        engine.on_batch = lambda batch: None
        client.channel.confirm_select()
        client.channel.consume(queue, "c", False, 0)
        client.publish(b"m", "a")
        client.turn()
        client.connection.close()
        engine.demote()
        engine.advance_safe(engine.position)
        assert client.turn() == []
        assert (queue.ready, queue.unacked) == (1, 0)
        queue.check()


def test_route_by_header_and_handler(client: MemoryClient, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def handler(owner: object, channel: int, exchange: bytes, key: bytes, header: bytes, body: bytes) -> None:
        seen.append((key, body))

    routes = {b"h": Route([], by_header=lambda key, header: Route([queue])), b"m": Route([], handler=handler)}
    monkeypatch.setattr(client.owner, "route", lambda channel, exchange, key: routes[key])
    client.publish(b"by header", "h")
    client.publish(b"management", "m")
    client.turn()
    assert (queue.ready, seen) == (1, [(b"m", b"management")])


@pytest.fixture
def asked(client: MemoryClient, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The routing keys of messages for which the owner was asked."""
    found: list[bytes] = []

    def by_header(key: bytes, header: bytes) -> Route:
        found.append(key)
        return Route([queue])

    route = Route([], by_header=by_header)
    monkeypatch.setattr(client.owner, "route", lambda channel, exchange, key: route)
    return found


def test_a_message_like_an_earlier_one_is_not_asked_for(client: MemoryClient, queue: Queue, asked: list[bytes]) -> None:
    for key, body, value in [
        ("a", b"1", 1),
        ("a", b"of another size", 1),
        ("a", b"1", 2),
        ("b", b"1", 1),
        ("b", b"3", 1),
    ]:
        client.publish(body, key, headers={"h": value})
    client.turn()
    assert asked == [b"a", b"a", b"b"]
    assert queue.ready == 5


def test_the_same_message_in_another_virtual_host_is_asked_for(client: MemoryClient, asked: list[bytes]) -> None:
    for host in (0, 1, 0, 1):
        client.connection.host = host
        client.publish(b"x", "a", headers={"h": 1})
    assert len(asked) == 2


@pytest.mark.parametrize("change", [None, b"another key", Mark()])
def test_any_change_of_bindings_forgets_where_headers_lead(
    engine: Engine, client: MemoryClient, asked: list[bytes], change: bytes | Mark | None
) -> None:
    for _ in range(3):
        client.publish(b"x", "a", headers={"h": 1})
        client.publish(b"x", "a", headers={"h": 1})
        client.turn()
        engine.forget_routes(change)
    assert len(asked) == 3


def test_few_and_short_headers_are_kept(client: MemoryClient, queue: Queue, asked: list[bytes]) -> None:
    for _ in range(2):
        client.publish(b"x", "a", headers={"h": "x" * 600})
    assert len(asked) == 2, "a client may not fill the memory by long headers"
    for _ in range(2):
        for number in range(9000):
            client.publish(b"x", "a", headers={"h": number})
    client.turn()
    assert queue.ready == 18_002
    assert len(asked) == 18_002, "more than are kept, each in turn: as before"


def test_routes_to_many_queues_take_the_place_of_many(
    engine: Engine, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else 8,192 headers that 10,000 queues match would hold 650 MB."""
    queues = [engine.create_queue(number, f"q{number}", False) for number in range(100, 400)]
    asked: list[bytes] = []

    def by_header(key: bytes, header: bytes) -> Route:
        asked.append(header)
        return Route(list(queues))

    route = Route([], by_header=by_header)
    monkeypatch.setattr(client.owner, "route", lambda channel, exchange, key: route)
    for count, wanted in ((100, 100), (100, 100), (120, 120), (120, 240)):
        for number in range(count):
            client.publish(b"", "a", headers={"h": number})
        client.turn()
        assert len(asked) == wanted


def test_memory_of_consumed_messages_is_reused(engine: Engine, client: MemoryClient, queue: Queue) -> None:
    client.channel.consume(queue, "c", True, 0)
    for _ in range(200):
        client.publish(b"x" * 10_000, "a")
        client.turn()
    assert engine.pool.allocated <= 4 * 65536


def test_compaction_frees_segments_that_hold_a_few_survivors(client: MemoryClient) -> None:
    engine = Engine()
    queue, kept = engine.create_queue(1, "a", True), engine.create_queue(2, "b", True)
    client = MemoryClient(engine, a=queue, b=kept)
    for i in range(60):
        client.publish(b"x" * 1_000_000, "a")
        client.publish(b"kept %d" % i, "b")
    client.turn()
    engine.purge(queue)
    client.turn()
    before = engine.pool.allocated
    for _ in range(3):
        engine.tick()
    assert engine.pool.allocated < before // 8
    assert [m[5] for m in kept.peek(99)] == [b"kept %d" % i for i in range(60)]


def test_compaction_in_many_ticks_keeps_what_is_there() -> None:
    """The queue changes between two ticks of one sweep."""
    engine = Engine(segment_size=2048)
    engine.pool.sparse, engine.sweep_most = 1, 3
    queue, kept = engine.create_queue(1, "a", True), engine.create_queue(2, "b", True)
    client = MemoryClient(engine, a=queue, b=kept)
    for i in range(60):
        client.publish(b"x" * 900, "a")
        client.publish(b"kept %d" % i, "b")
        client.turn()
    before = engine.pool.allocated
    engine.purge(queue)
    client.turn()
    for i in range(60, 90):
        client.publish(b"kept %d" % i, "b")
        client.turn()
        engine.tick()
    assert engine.pool.swept > 0
    assert [m[5] for m in kept.peek(99)] == [b"kept %d" % i for i in range(90)]
    assert engine.pool.allocated < before // 4


@pytest.fixture
def frozen_heap() -> Iterator[None]:
    """The collector looks at what comes from now on only: a whole test run has left millions of objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen_heap")
def test_the_garbage_collector_may_take_an_engine_apart() -> None:
    """Segments give their memory back to a pool; the collector must not clear that reference before."""
    for _ in range(50):
        engine = Engine(segment_size=8192)
        queue = engine.create_queue(1, "a", True)
        client = MemoryClient(engine, a=queue)
        for _ in range(20):
            client.publish(b"x" * 1000, "a")
        client.channel.consume(queue, "c", False, 3)
        client.turn()
        client.connection.close()  # what is handed out is counted where the collector does not look
        queue.owner = [queue, engine, client]
        del engine, queue, client
        assert gc.collect() > 0
