"""A publish is confirmed when the operation that made it safe is safe, or when a client has acknowledged the message.

`cut_off` is an engine whose batches reach no backup: nothing becomes safe unless the test says so.  Each test first
failed where the engine confirmed on the strength of what it alone had decided.
"""

from __future__ import annotations

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Catchup, Engine, Queue, Route, records
from tests.support.memory import MemoryClient, confirms, deliveries


class CutOff(Engine):
    """An engine that keeps the batches which it would send to the backups."""

    batches: list[bytes]

    def operations(self) -> list[str]:
        """Kinds of the operations logged since the last call."""
        found = [record[0] for batch in self.batches for record in records(batch[32:])]
        self.batches.clear()
        return found


@pytest.fixture
def engine() -> CutOff:
    engine = CutOff(segment_size=65536)
    engine.batches = []

    def keep(batch: Batch) -> None:
        engine.batches.append(bytes(batch))

    engine.on_batch = keep
    return engine


@pytest.fixture
def queue(engine: CutOff) -> Queue:
    return engine.create_queue(1, "a", True)


@pytest.fixture
def client(engine: CutOff, queue: Queue) -> MemoryClient:
    client = MemoryClient(engine, a=queue)
    client.channel.confirm_select()
    return client


def all_confirmed_when_safe(engine: Engine, client: MemoryClient, tag: int) -> bool:
    engine.advance_safe(engine.position)
    engine.end_turn()
    return [tag for tag, _ in confirms(client.turn())][-1:] == [tag]


class TestWhatThePrimaryRemovesWaits:
    def test_overflow(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        queue.max_count = 2
        for _ in range(10):
            client.publish(b"m", "a")
        assert confirms(client.turn()) == []
        engine.tick()
        engine.tick()
        assert confirms(client.turn()) == []
        assert all_confirmed_when_safe(engine, client, 10)

    def test_purge(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.publish(b"m", "a")
        client.turn()
        assert engine.purge(queue) == 1
        assert confirms(client.turn()) == []

    def test_deletion(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.publish(b"m", "a")
        client.turn()
        engine.delete_queue(queue)
        engine.tick()
        assert confirms(client.turn()) == []

    def test_expiry(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        engine.now = 1_000
        client.publish(b"m", "a", expiration="5")
        client.turn()
        engine.now = 2_000
        engine.tick()
        assert queue.ready == 0
        assert confirms(client.turn()) == []

    def test_rejected(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.channel.consume(queue, "c", False)
        client.publish(b"m", "a")
        client.turn()
        client.send(Basic.Reject(1, requeue=False))
        assert confirms(client.turn()) == []

    def test_given_back(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.channel.consume(queue, "c", False)
        client.publish(b"m", "a")
        client.turn()
        client.send(Basic.Reject(1, requeue=True))
        assert confirms(client.turn()) == []
        assert all_confirmed_when_safe(engine, client, 1)

    def test_dead_letter(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        queue.dead_letter = lambda *_: None
        self.test_rejected(engine, client, queue)

    def test_acknowledged_inside_a_transaction(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        worker = client.connection.open_channel(2)
        worker.tx_select()
        worker.consume(queue, "c", False)
        client.publish(b"m", "a")
        client.turn()
        client.send(Basic.Ack(1), 2)
        worker.tx_commit()
        assert confirms(client.turn()) == []


class TestUnroutable:
    def test_waits_for_an_operation_that_is_safe_only_for_the_primary(
        self, engine: CutOff, client: MemoryClient
    ) -> None:
        client.publish(b"m", "nowhere")
        assert confirms(client.turn()) == []
        assert engine.operations() == ["mark"]
        engine.advance_safe(engine.position)
        assert confirms(client.turn()) == [(1, False)]

    def test_many_in_one_turn_wait_for_one_operation(self, engine: CutOff, client: MemoryClient) -> None:
        for _ in range(200):
            client.publish(b"m", "nowhere")
        client.publish(b"m", "a")
        client.publish(b"m", "nowhere")
        client.turn()
        assert engine.operations() == ["mark", "enqueue"]
        assert all_confirmed_when_safe(engine, client, 202)

    def test_does_not_release_another_message_when_its_neighbour_is_acknowledged(
        self, engine: CutOff, client: MemoryClient, queue: Queue
    ) -> None:
        other = MemoryClient(engine, a=queue)
        other.channel.confirm_select()
        other.publish(b"m", "a")
        client.publish(b"lost", "nowhere")
        other.channel.consume(queue, "c", False)
        other.turn()
        other.send(Basic.Ack(1))
        assert confirms(other.turn()) == [(1, False)]
        engine.tick()
        engine.tick()
        assert confirms(client.turn()) == []

    def test_a_publisher_of_such_messages_delays_no_other(
        self, engine: CutOff, client: MemoryClient, queue: Queue
    ) -> None:
        other = MemoryClient(engine, a=queue)
        other.channel.confirm_select()
        client.publish(b"m", "nowhere")
        other.publish(b"m", "a")
        engine.end_turn()
        safe = engine.position
        client.publish(b"m", "nowhere")
        engine.end_turn()
        engine.advance_safe(safe)
        assert confirms(other.turn()) == [(1, False)]
        assert confirms(client.turn()) == [(1, False)]

    def test_on_a_backup_an_administrator_is_confirmed_and_nothing_is_logged(
        self, engine: CutOff, client: MemoryClient
    ) -> None:
        engine.passive = True
        client.publish(b"m", "nowhere")
        assert confirms(client.turn()) == [(1, False)]
        assert engine.position == 0

    def test_a_message_for_a_local_queue_waits_for_the_last_change_of_routes(
        self, engine: CutOff, client: MemoryClient
    ) -> None:
        client.owner.routes[b"local"] = [engine.create_queue(9, "local", False)]
        client.publish(b"m", "local")
        assert confirms(client.turn()) == [(1, False)]
        changed = engine.log_config(b"unbind")
        client.publish(b"m", "local")
        assert confirms(client.turn()) == []
        engine.advance_safe(changed)
        assert confirms(client.turn()) == [(2, False)]

    def test_after_a_promotion_nothing_that_was_taken_over_counts_as_safe(self, engine: CutOff) -> None:
        engine.set_position(77)
        engine.begin_epoch(3)
        assert engine.changed == engine.position > engine.safe


class TestWithoutAcknowledgement:
    def test_is_dequeued_when_its_octets_have_left(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.channel.consume(queue, "c", True)
        for _ in range(3):
            client.publish(b"m", "a")
        engine.end_turn()
        assert (queue.ready, queue.unacked, client.channel.unacked_count) == (0, 3, 0)
        assert "dequeue" not in engine.operations()
        assert len(deliveries(client.turn())) == 3
        assert (queue.ready, queue.unacked) == (0, 0)
        engine.tick()
        assert engine.operations() == ["dequeue"]
        assert confirms(client.turn()) == []

    def test_what_has_not_left_stays(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.channel.consume(queue, "c", True)
        for _ in range(3):
            client.publish(b"m" * 1000, "a")
        engine.end_turn()
        octets = client.connection.take_output(False)
        client.connection.left(1500)
        assert queue.unacked == 2
        client.connection.left(len(octets))
        assert queue.unacked == 2
        client.connection.left(0)
        assert queue.unacked == 0

    def test_what_has_not_left_goes_back_when_the_connection_ends(
        self, engine: CutOff, client: MemoryClient, queue: Queue
    ) -> None:
        client.channel.consume(queue, "c", True)
        client.publish(b"m", "a")
        engine.end_turn()
        client.connection.close()
        assert (queue.ready, queue.unacked) == (1, 0)
        assert queue.peek(1)[0][1], "it may have been seen"
        queue.check()

    def test_next_to_deliveries_that_are_acknowledged(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        other = engine.create_queue(2, "b", True)
        client.owner.routes[b"b"] = [other]
        client.channel.consume(queue, "auto", True)
        client.channel.consume(other, "acked", False)
        for name in "abab":
            client.publish(b"m", name)
            engine.end_turn()
        client.turn()
        assert (queue.unacked, other.unacked) == (0, 2)
        client.send(Basic.Ack(0, multiple=True))
        assert (queue.unacked, other.unacked, client.channel.unacked_count) == (0, 0, 0)
        assert client.owner.failures == []

    def test_of_a_queue_that_was_deleted_meanwhile(self, engine: CutOff, client: MemoryClient, queue: Queue) -> None:
        client.channel.consume(queue, "c", True)
        client.publish(b"m", "a")
        engine.end_turn()
        engine.delete_queue(queue)
        client.turn()


class TestOutputsOfATransaction:
    @pytest.fixture
    def queues(self, engine: CutOff, queue: Queue) -> list[Queue]:
        return [queue, engine.create_queue(2, "b", True)]

    @pytest.fixture
    def worker(self, engine: CutOff, queues: list[Queue]) -> MemoryClient:
        worker = MemoryClient(engine, a=queues[0], b=queues[1])
        worker.channel.tx_select()
        return worker

    @pytest.fixture
    def reader(self, engine: CutOff, queues: list[Queue]) -> MemoryClient:
        reader = MemoryClient(engine)
        for queue in queues:
            reader.channel.consume(queue, queue.name, False)
        return reader

    def commit(self, worker: MemoryClient, *bodies: bytes) -> int:
        for body in bodies:
            worker.publish(body, chr(body[0]))
        position = worker.channel.tx_commit()
        worker.engine.end_turn()
        return position

    def test_are_handed_out_when_it_is_safe(
        self, engine: CutOff, worker: MemoryClient, reader: MemoryClient, queues: list[Queue]
    ) -> None:
        position = self.commit(worker, b"a1", b"b1", b"a2")
        assert deliveries(reader.turn()) == []
        engine.advance_safe(position - 1)
        assert deliveries(reader.turn()) == []
        engine.advance_safe(position)
        assert sorted(body for _, body, _ in deliveries(reader.turn())) == [b"a1", b"a2", b"b1"]

    def test_what_comes_behind_them_keeps_its_place(
        self, engine: CutOff, worker: MemoryClient, reader: MemoryClient, client: MemoryClient
    ) -> None:
        client.publish(b"before", "a")
        first = self.commit(worker, b"a1")
        client.publish(b"between", "a")
        second = self.commit(worker, b"a2")
        client.publish(b"behind", "a")
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"before"]
        engine.advance_safe(first)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a1", b"between"]
        engine.advance_safe(second)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a2", b"behind"]

    def test_basic_get_does_not_see_them(self, engine: CutOff, worker: MemoryClient, queues: list[Queue]) -> None:
        position = self.commit(worker, b"a1")
        assert not worker.channel.get(queues[0], False)
        engine.advance_safe(position)
        engine.end_turn()
        assert worker.channel.get(queues[0], False)

    def test_a_full_queue_drops_them_without_handing_them_out(
        self, engine: CutOff, worker: MemoryClient, reader: MemoryClient, queues: list[Queue]
    ) -> None:
        queues[0].max_count = 2
        position = self.commit(worker, b"a1", b"a2", b"a3")
        assert queues[0].ready == 2
        assert deliveries(reader.turn()) == []
        engine.advance_safe(position)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a2", b"a3"]

    def test_their_dead_letters_wait_as_well(
        self, engine: CutOff, worker: MemoryClient, reader: MemoryClient, queues: list[Queue]
    ) -> None:
        queues[0].max_count = 1
        queues[0].dead_letter = lambda reason, exchange, key, header, body: (Route([queues[1]]), b"", b"b", header)
        position = self.commit(worker, b"a1")
        self.commit(worker, b"a2")
        assert deliveries(reader.turn()) == []
        engine.advance_safe(position)
        assert deliveries(reader.turn()) == []
        engine.advance_safe(engine.position)
        assert sorted(body for _, body, _ in deliveries(reader.turn())) == [b"a1", b"a2"]

    def test_what_a_deleted_queue_leaves_waits_as_well(
        self, engine: CutOff, worker: MemoryClient, reader: MemoryClient, queues: list[Queue]
    ) -> None:
        position = self.commit(worker, b"a1")
        assert engine.drain(queues[0], lambda *_: Route([queues[1]])) == 1
        engine.delete_queue(queues[0])
        assert deliveries(reader.turn()) == []
        engine.advance_safe(position)
        assert deliveries(reader.turn()) == []
        engine.advance_safe(engine.position)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a1"]

    def test_in_a_queue_with_priorities(self, engine: CutOff, worker: MemoryClient) -> None:
        ranked = engine.create_queue(3, "p", True)
        ranked.add_levels(3)
        worker.owner.routes[b"p"] = [ranked]
        reader = MemoryClient(engine)
        reader.channel.consume(ranked, "c", False)
        worker.publish(b"low", "p", priority=0)
        worker.publish(b"high", "p", priority=3)
        position = worker.channel.tx_commit()
        assert deliveries(reader.turn()) == []
        engine.advance_safe(position)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"high", b"low"]

    def test_after_a_change_of_role_all_that_is_there_is_handed_out(
        self, engine: CutOff, worker: MemoryClient, queues: list[Queue]
    ) -> None:
        self.commit(worker, b"a1")
        worker.connection.close()
        engine.demote()
        engine.begin_epoch(2)
        reader = MemoryClient(engine)
        reader.channel.consume(queues[0], "c", False)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a1"]

    @pytest.mark.parametrize("priorities", [0, 3])
    def test_a_new_primary_holds_back_those_that_it_does_not_know_to_be_safe(
        self, engine: CutOff, worker: MemoryClient, client: MemoryClient, queues: list[Queue], priorities: int
    ) -> None:
        """Another broker may be promoted that has not got them; of what came before, all have everything."""
        if priorities:
            queues[0].add_levels(priorities)
        client.publish(b"a0", "a")
        known = self.commit(worker, b"a1")
        client.publish(b"a2", "a")
        self.commit(worker, b"a3", b"b3")
        client.publish(b"a4", "a")
        end = self.taken_over(engine, worker, client)
        engine.hold_inherited(known)
        reader = MemoryClient(engine)
        for queue in queues:
            reader.channel.consume(queue, queue.name, False)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a0", b"a1", b"a2"]
        engine.advance_safe(end)
        assert sorted(body for _, body, _ in deliveries(reader.turn())) == [b"a3", b"a4", b"b3"]

    def test_a_new_primary_that_knows_nothing_holds_back_every_queue_with_transactions(
        self, engine: CutOff, worker: MemoryClient, client: MemoryClient, queues: list[Queue]
    ) -> None:
        client.publish(b"a0", "a")
        self.commit(worker, b"b1")
        end = self.taken_over(engine, worker, client)
        engine.hold_inherited(0)
        reader = MemoryClient(engine)
        for queue in queues:
            reader.channel.consume(queue, queue.name, False)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a0"]
        engine.advance_safe(end)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"b1"]

    def test_they_are_known_for_what_they_are_on_a_backup_that_gets_the_difference_late(
        self, engine: CutOff, worker: MemoryClient, queues: list[Queue]
    ) -> None:
        """The newest comes live, what lies before it later; it is the newest that counts."""
        early = self.commit(worker, b"a1")
        catchup = Catchup(queues[0], b"", engine.flush())
        engine.batches.clear()
        self.commit(worker, b"a2")
        backup = Engine(lambda position, payload: None, segment_size=65536)
        copy = backup.create_queue(1, "a", True)
        backup.set_position(early)
        for batch in engine.batches:
            backup.apply(batch)
        while piece := catchup.slice(1 << 20):
            backup.apply_slice(piece)
        backup.merge(1)
        backup.begin_epoch(2)
        backup.on_batch = lambda batch: None
        backup.hold_inherited(early)
        reader = MemoryClient(backup)
        reader.channel.consume(copy, "c", False)
        assert [body for _, body, _ in deliveries(reader.turn())] == [b"a1"]

    @staticmethod
    def taken_over(engine: CutOff, *clients: MemoryClient) -> int:
        for each in clients:
            each.connection.close()
        engine.demote()
        engine.begin_epoch(2)
        return engine.position

    def test_alone_they_are_handed_out_at_once(self) -> None:
        engine = Engine(segment_size=65536)
        queue = engine.create_queue(1, "a", True)
        client = MemoryClient(engine, a=queue)
        client.channel.tx_select()
        reader = MemoryClient(engine)
        reader.channel.consume(queue, "c", False)
        client.publish(b"m", "a")
        client.channel.tx_commit()
        assert len(deliveries(reader.turn())) == 1


class TestCommit:
    def test_of_what_no_queue_takes_waits(self, engine: CutOff, client: MemoryClient) -> None:
        worker = MemoryClient(engine)
        worker.channel.tx_select()
        engine.log_config(b"unbind")
        engine.end_turn()
        worker.publish(b"m", "nowhere")
        assert worker.channel.tx_commit() == engine.position > engine.changed

    def test_of_nothing_waits_for_nothing(self, engine: CutOff, client: MemoryClient) -> None:
        worker = MemoryClient(engine)
        worker.channel.tx_select()
        assert worker.channel.tx_commit() == 0

    def test_into_a_full_queue_is_refused_and_nothing_of_it_is_done(
        self, engine: CutOff, client: MemoryClient, queue: Queue
    ) -> None:
        queue.max_count, queue.rejects = 2, True
        other = engine.create_queue(2, "b", True)
        worker = MemoryClient(engine, a=queue, b=other)
        worker.channel.tx_select()
        client.publish(b"m", "a")
        for name in ("b", "a", "a"):
            worker.publish(b"m", name)
        assert worker.channel.tx_commit() == 0
        [(channel, code, text, *_)] = worker.owner.failures
        assert (channel, code) == (1, 406)
        assert "'a' is full" in text
        assert (queue.ready, other.ready) == (1, 0)

    def test_a_bad_property_costs_the_channel_before_anything_is_applied(
        self, engine: CutOff, client: MemoryClient, queue: Queue
    ) -> None:
        worker = MemoryClient(engine, a=queue)
        worker.channel.tx_select()
        worker.publish(b"m", "a")
        worker.publish(b"m", "a", expiration="soon")
        assert [failure[1] for failure in worker.owner.failures] == [406]
        assert queue.ready == 0


class TestCallsThatWait:
    """`when_safe`: what the management answers to a change."""

    def test_called_when_the_position_is_safe_and_not_before(self, engine: CutOff, queue: Queue) -> None:
        called: list[bool] = []
        position = engine.log_config(b"x")
        engine.when_safe(position, called.append)
        for safe, expected in ((0, []), (position - 1, []), (position, [True])):
            engine.advance_safe(safe)
            engine.end_turn()
            assert called == expected
        engine.advance_safe(position - 1)
        assert engine.safe == position, "it never goes back"
        engine.when_safe(position, called.append)
        assert called == [True, True], "it is safe already"

    def test_each_is_called_in_its_turn(self, engine: CutOff, queue: Queue) -> None:
        called: list[int] = []
        for number in range(3):

            def call(safe: bool, number: int = number) -> None:
                called.append(number)

            engine.when_safe(engine.log_config(b"x"), call)
        engine.advance_safe(engine.position - 1)
        engine.end_turn()
        assert called == [0, 1]

    def test_a_deposed_primary_says_that_it_never_was(self, engine: CutOff, queue: Queue) -> None:
        called: list[bool] = []
        engine.when_safe(engine.log_config(b"x"), called.append)
        engine.demote()
        engine.end_turn()
        assert called == [False]


class TestAcknowledgedOutOfOrder:
    @pytest.mark.parametrize("tag", [1, 2, 3])
    def test_the_message_that_was_acknowledged_is_confirmed_and_no_other(
        self, engine: CutOff, client: MemoryClient, queue: Queue, tag: int
    ) -> None:
        """Behind an operation that is no publish."""
        client.channel.consume(queue, "c", False)
        client.publish(b"m", "a")
        engine.log_config(b"x")
        client.publish(b"m", "a")
        client.publish(b"m", "a")
        client.turn()
        client.send(Basic.Ack(tag))
        found = confirms(client.turn())
        engine.tick()  # behind one that still waits: not in the same turn
        engine.tick()
        assert found + confirms(client.turn()) == [(tag, False)]

    def test_what_was_refused_takes_no_other_publish_along(self, engine: CutOff, queue: Queue) -> None:
        full, local = engine.create_queue(2, "full", True), engine.create_queue(3, "local", False)
        full.max_count, full.rejects = 1, True
        client = MemoryClient(engine, a=queue, full=full, local=local)
        client.publish(b"m", "full")
        client.channel.confirm_select()
        engine.end_turn()
        engine.advance_safe(engine.position)
        for name in ("a", "full", "local"):
            client.publish(b"m", name)
        frames = client.turn()
        assert confirms(frames) == []
        assert [frame.delivery_tag for _, frame in frames if isinstance(frame, Basic.Nack)] == [2]
        assert all_confirmed_when_safe(engine, client, 3)
