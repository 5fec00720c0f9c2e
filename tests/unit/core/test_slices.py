"""Input for which Python is asked is parsed in slices: others have their turns between, and order holds."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pamqp.commands as commands
import pytest

from qpidd_py.core import Engine, Queue, Route
from tests.support.memory import (
    MemoryClient,
    RecordingOwner,
    confirms,
    decode,
    deliveries,
    method_octets,
    publish_octets,
)

SLICE = 250  # routes that are asked for


class Lab:
    """A client whose routes are not kept, one that has to be served between, and the turns that the core asked for."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.wanted = 0
        self.engine.schedule = self.want
        self.queue: Queue = self.engine.create_queue(1, "a", True)
        self.asked = 0
        self.hog = self.client()

    def want(self) -> None:
        self.wanted += 1

    def client(self) -> MemoryClient:
        client = MemoryClient(self.engine)
        client.owner.route = self.route  # type: ignore[method-assign]
        client.channel.confirm_select()
        return client

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        self.asked += 1
        return Route([self.queue])

    def turns(self) -> list[int]:
        """How many routes were asked for in each turn, until none is wanted."""
        found = []
        while self.wanted:
            self.wanted, before = 0, self.asked
            self.engine.end_turn()
            found.append(self.asked - before)
        return found


def messages(count: int, key: str = "k") -> bytes:
    return b"".join(publish_octets(b"%d" % number, f"{key}{number}") for number in range(count))


def test_a_flood_of_new_keys_takes_a_slice_of_each_turn_and_keeps_its_order() -> None:
    for count in (500, 2000, 8000):
        lab = Lab()
        lab.hog.connection.feed(messages(count))
        assert lab.asked == SLICE and lab.hog.connection.unfinished
        turns = lab.turns()
        assert max(turns) <= SLICE and len(turns) <= count // SLICE + 1
        assert not lab.hog.connection.unfinished
        assert [body for *_, body in lab.queue.peek(count)] == [b"%d" % number for number in range(count)]
        assert confirms(lab.hog.turn())[-1][0] == count


def test_others_are_served_at_once_and_floods_take_turns() -> None:
    lab = Lab()
    floods = [lab.client() for _ in range(10)]
    for number, flood in enumerate(floods):
        flood.connection.feed(messages(1000, f"{number}."))
    lab.wanted, before = 0, lab.asked
    lab.engine.end_turn()
    assert 0 < lab.asked - before <= 4 * SLICE
    other = lab.client()
    other.connection.feed(publish_octets(b"x", "other"))
    assert not other.connection.unfinished
    assert confirms(other.turn()) == [(1, False)]
    lab.turns()
    assert [confirms(flood.turn())[-1][0] for flood in floods] == [1000] * 10


def test_what_arrives_meanwhile_waits_behind_and_a_lost_connection_is_left_alone() -> None:
    lab = Lab()
    lab.hog.connection.feed(messages(1000)[:-3])
    lab.hog.connection.feed(messages(1000)[-3:])
    lab.turns()
    assert lab.queue.ready == 1000
    gone = lab.client()
    gone.connection.feed(messages(1000, "other"))
    gone.connection.close()
    ready = lab.queue.ready
    lab.turns()
    assert lab.queue.ready == ready and not gone.connection.unfinished


def test_methods_are_counted_as_well() -> None:
    lab = Lab()
    declare = commands.Queue.Declare(queue="q", passive=True)
    for _ in range(100):
        lab.hog.send(declare)
    assert len(lab.hog.owner.methods) == 100
    lab.hog.connection.feed(method_octets(declare) * 100)
    assert len(lab.hog.owner.methods) == 100 + SLICE // 10
    lab.turns()
    assert len(lab.hog.owner.methods) == 200


def test_what_was_kept_aside_for_an_answer_is_handled_in_slices_and_in_order() -> None:
    lab = Lab()
    channel = lab.hog.connection.open_channel(2)
    channel.pause()
    declare = commands.Queue.Declare(queue="q", passive=True)
    count = 500
    lab.hog.connection.feed(method_octets(declare, 2) * count)
    assert lab.hog.connection.stashed == count * len(method_octets(declare, 2))
    channel.resume()
    handled = [len(lab.hog.owner.methods)]
    lab.hog.connection.feed(method_octets(commands.Basic.Qos(), 2))
    while lab.wanted:
        lab.wanted = 0
        lab.engine.end_turn()
        handled.append(len(lab.hog.owner.methods))
    assert handled[-1] == count + 1 and handled[0] == SLICE // 10
    assert max(after - before for before, after in pairwise(handled)) <= 2 * SLICE // 10
    assert lab.hog.owner.methods[-1][1][:4] == method_octets(commands.Basic.Qos())[7:11]
    assert lab.hog.connection.stashed == 0 and lab.hog.connection.reads()


def test_a_channel_that_waits_for_each_answer_does_not_copy_the_rest_each_time() -> None:
    lab = Lab()
    client = lab.hog
    lab.engine.on_batch = lambda batch: None
    held: list[int] = []

    def method(channel: int, payload: bytes) -> None:
        held.append(lab.engine.log_config(b"declared"))
        client.connection.channel(channel).hold(held[-1], b"")

    client.owner.method = method  # type: ignore[method-assign]
    octets = method_octets(commands.Queue.Declare(queue="q" * 20))
    for _ in range(20):
        client.connection.feed(octets * 1000)
    while len(held) < 20_000:
        assert client.connection.stashed == (20_000 - len(held)) * len(octets)
        lab.engine.advance_safe(held[-1])
        lab.engine.end_turn()


def test_a_closed_channel_leaves_nothing_aside() -> None:
    lab = Lab()
    lab.hog.connection.open_channel(2).pause()
    lab.hog.connection.feed(method_octets(commands.Basic.Qos(), 2) * 100_000)
    assert lab.hog.connection.stashed > 1 << 20 and not lab.hog.connection.reads()
    lab.hog.connection.close_channel(2)
    assert lab.hog.connection.stashed == 0 and lab.hog.connection.reads()


def consumers(lab: Lab, count: int, body: bytes) -> list[MemoryClient]:
    found = []
    for number in range(count):
        queue: Queue = lab.engine.create_queue(10 + number, f"q{number}", False)
        publisher = MemoryClient(lab.engine, k=queue)
        for _ in range(4):
            publisher.connection.feed(publish_octets(body, "k") * (1_000_000 // (len(body) + 100)))
        client = MemoryClient(lab.engine)
        client.channel.consume(queue, "c", True, 0)
        found.append(client)
    return found


@pytest.mark.parametrize("body", [b"x", b"x" * 10_000])
def test_a_turn_hands_out_a_part_and_each_consumer_has_its_turn(body: bytes) -> None:
    lab = Lab()
    clients = consumers(lab, 12, body)
    lab.wanted = 1
    parts, order = [], []
    while lab.wanted:
        lab.wanted = 0
        lab.engine.end_turn()
        sizes = [len(client.connection.take_output()) for client in clients]
        order += [number for number, size in enumerate(sizes) if size]
        parts.append(sum(sizes))
    assert list(dict.fromkeys(order)) == list(range(12))
    assert max(parts) <= 12 << 20 and len(parts) >= 3


LOOK = 64  # units of work between two looks of a slice
LOOKS = 3


class TimedLab(Lab):
    """The slices of this one end after some looks, as the reactor's end by the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.engine.slice.most = LOOKS
        self.hog.owner.routes[b"k"] = [self.queue]
        self.hog.owner.route = RecordingOwner.route.__get__(self.hog.owner)  # type: ignore[method-assign]

    def counted(self, count: Callable[[], int]) -> list[int]:
        """What `count` grew by in each turn, until none is wanted."""
        found = []
        while self.wanted:
            self.wanted, before = 0, count()
            self.engine.end_turn()
            found.append(count() - before)
        return found


@pytest.mark.parametrize("count", [1000, 4000, 16000])
def test_a_flood_whose_route_is_kept_takes_slices_as_well(count: int) -> None:
    lab = TimedLab()
    lab.hog.connection.feed(publish_octets(b"x", "k") * count)
    assert lab.queue.enqueued <= LOOKS * LOOK and lab.hog.connection.unfinished
    other = lab.client()
    other.connection.feed(publish_octets(b"x", "k"))
    assert not other.connection.unfinished
    assert max(lab.counted(lambda: lab.queue.enqueued)) <= 2 * LOOKS * LOOK
    assert lab.queue.enqueued == count + 1 and confirms(lab.hog.turn())[-1][0] == count


def test_a_message_for_many_queues_counts_for_each() -> None:
    lab = TimedLab()
    queues = [lab.engine.create_queue(10 + number, f"q{number}", False) for number in range(100)]
    lab.hog.owner.routes[b"all"] = queues
    lab.hog.connection.feed(publish_octets(b"x", "all") * 100)
    assert queues[-1].enqueued <= LOOKS
    assert max(lab.counted(lambda: queues[-1].enqueued)) <= 2 * LOOKS
    assert queues[-1].enqueued == 100


def delivered(lab: TimedLab, count: int) -> MemoryClient:
    """A client that has got so many messages and has yet to settle them."""
    lab.hog.connection.feed(publish_octets(b"x", "k") * count)
    client = lab.client()
    client.channel.consume(lab.queue, "c", False, 0)
    lab.turns()
    assert lab.queue.unacked == count
    client.connection.take_output()
    return client


@pytest.mark.parametrize("count", [1000, 4000, 16000])
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("tag", [0, 900])
def test_one_frame_that_settles_many_is_carried_out_in_slices(count: int, transactional: bool, tag: int) -> None:
    lab = TimedLab()
    client = delivered(lab, count)
    channel = client.channel
    if transactional:
        channel.tx_select()
    lab.hog.connection.feed(publish_octets(b"y", "k"))
    client.connection.feed(
        method_octets(commands.Basic.Ack(tag, True)) + method_octets(commands.Basic.Qos(prefetch_count=1))
    )
    assert not client.owner.methods and client.connection.unfinished
    before = lab.queue.unacked
    parts = lab.counted(lambda: count - lab.queue.unacked)
    assert client.owner.methods
    assert transactional or (max(parts) <= LOOKS * LOOK and before > count - LOOKS * LOOK)
    if transactional:
        channel.tx_commit()
    # The message that came meanwhile was handed out behind the acknowledgement: it is not covered, whatever the tag.
    assert (lab.queue.unacked, lab.queue.ready) == (count - (tag or count) + 1, 0)


def test_many_that_are_rejected_in_one_frame_come_back_in_slices_and_in_order() -> None:
    lab = TimedLab()
    client = delivered(lab, 3000)
    client.channel.cancel("c")
    client.connection.feed(method_octets(commands.Basic.Nack(3000, True, True)))
    assert max(lab.counted(lambda: lab.queue.ready)) <= LOOKS * LOOK
    assert lab.queue.ready == 3000 and not client.owner.failures
    lab.queue.check()


def test_a_channel_that_closes_in_the_middle_of_a_settlement_gives_all_back() -> None:
    lab = TimedLab()
    client = delivered(lab, 3000)
    client.connection.feed(method_octets(commands.Basic.Ack(3000, True)))
    left = lab.queue.unacked
    assert 0 < left < 3000
    client.connection.close()
    lab.turns()
    assert lab.queue.ready == left and lab.queue.unacked == 0
    lab.queue.check()


@pytest.mark.parametrize("count", [1000, 4000, 16000])
def test_what_an_ended_channel_held_comes_back_in_slices_and_nobody_overtakes_it(count: int) -> None:
    lab = TimedLab()
    client = delivered(lab, count)
    lab.hog.connection.feed(publish_octets(b"late", "k"))
    lab.turns()
    client.connection.close()
    other = lab.client()
    other.channel.consume(lab.queue, "c", False, 0)
    lab.wanted, got, parts = 1, [], []
    while lab.wanted:
        lab.wanted, before = 0, lab.queue.unacked
        lab.engine.end_turn()
        parts.append(before - lab.queue.unacked)
        got += deliveries(decode(other.connection.take_output()))
    assert max(parts) <= LOOKS * LOOK
    assert [(body, redelivered) for _, body, redelivered in got] == [(b"x", True)] * count + [(b"late", True)]
    lab.queue.check()


def test_two_ended_channels_take_turns_and_a_queue_waits_for_both() -> None:
    lab = TimedLab()
    lab.hog.connection.feed(publish_octets(b"x", "k") * 3000)
    clients = [lab.client(), lab.client()]
    for client in clients:
        client.channel.consume(lab.queue, "c", False, 1500)
    lab.turns()
    assert lab.queue.unacked == 3000
    for client in clients:
        client.connection.close()
    other = lab.client()
    other.channel.consume(lab.queue, "c", False, 0)
    turns, got = 0, 0
    while not got:
        lab.engine.end_turn()
        turns, got = turns + 1, len(deliveries(decode(other.connection.take_output())))
    assert turns >= 3000 // (LOOKS * LOOK) and lab.queue.unacked == got
    lab.turns()
    assert lab.queue.unacked == 3000
    lab.queue.check()


@pytest.mark.parametrize("change", ["demote", "promote", "delete"])
def test_a_queue_that_changes_while_messages_come_back_to_it_has_each_once(change: str) -> None:
    lab = TimedLab()
    client = delivered(lab, 3000)
    client.connection.close()
    assert 0 < lab.queue.unacked < 3000
    if change == "demote":
        lab.engine.demote()
    elif change == "promote":
        lab.engine.begin_epoch(1)
    else:
        lab.engine.delete_queue(lab.queue)
    lab.turns()
    assert (lab.queue.ready, lab.queue.unacked) == (0 if change == "delete" else 3000, 0)
    lab.queue.check()


@pytest.mark.parametrize("count", [1000, 4000, 16000])
@pytest.mark.parametrize("levels", [0, 2])
def test_a_purge_takes_slices_and_leaves_what_came_after_it_began(count: int, levels: int) -> None:
    lab = TimedLab()
    backup = Engine()
    copy = backup.create_queue(1, "a", True)
    if levels:
        lab.queue.add_levels(levels)
        copy.add_levels(levels)
    lab.engine.on_batch = lambda batch: backup.apply(bytes(batch))
    lab.hog.connection.feed(b"".join(publish_octets(b"x", "k", priority=number % 3) for number in range(count)))
    lab.turns()
    last, dropped, done = lab.engine.sequence, 0, False
    while not done:
        lab.engine.begin_slice()
        some, done = lab.engine.purge_some(lab.queue, last)
        assert some <= LOOKS * LOOK
        dropped += some
        lab.hog.connection.feed(publish_octets(b"later", "k"))
        lab.engine.end_turn()
        # A fail-over here has exactly what the primary has.
        assert (copy.ready, copy.held()) == (lab.queue.ready, lab.queue.held())
    assert dropped == count and {body for *_, body in lab.queue.peek(count)} == {b"later"}
    lab.queue.check()


@pytest.mark.parametrize("count", [50, 200, 800])
def test_so_many_clients_are_written_to_in_slices_and_none_is_passed_over(count: int) -> None:
    lab = TimedLab()
    written: list[int] = []
    queues = []
    for number in range(count):
        client = lab.client()
        client.owner.output_ready = partial(written.append, number)  # type: ignore[method-assign]
        queues.append(lab.engine.create_queue(10 + number, f"q{number}", False))
        client.channel.consume(queues[-1], "c", True, 0)
    lab.turns()
    written.clear()
    lab.hog.owner.routes[b"all"] = queues
    lab.hog.connection.feed(publish_octets(b"x", "all"))
    assert max(lab.counted(lambda: len(written))) <= 2 * LOOKS * LOOK // 16
    assert written == list(range(count))
