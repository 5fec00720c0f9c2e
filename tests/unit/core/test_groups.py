"""Message groups: messages of one group are with one client at a time, in their order."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from typing import Any

import pamqp.body
import pamqp.header
import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue
from qpidd_py.core.groups import group_by
from tests.support.memory import MemoryClient


class World:
    """A primary with a queue that has groups."""

    def __init__(self) -> None:
        self.engine = Engine(segment_size=65536)
        self.queue: Queue = self.engine.create_queue(1, "q", True)
        group_by(self.queue, "group")
        self.publisher = MemoryClient(self.engine, q=self.queue)

    def publish(self, *messages: str, **properties: Any) -> None:
        """Each is the name of its group and a number."""
        for message in messages:
            headers = {"group": message[0]} if message[0] != "-" else {}
            self.publisher.publish(message.encode(), "q", headers=headers, **properties)
        self.publisher.turn()

    def worker(self, prefetch: int = 1, priority: int = 0, no_ack: bool = False) -> Worker:
        return Worker(self, prefetch, priority, no_ack)


class Worker:
    """A consumer, and what it holds by delivery tag."""

    def __init__(self, world: World, prefetch: int, priority: int, no_ack: bool) -> None:
        self.client = MemoryClient(world.engine, q=world.queue)
        self.client.channel.consume(world.queue, "c", no_ack, prefetch, priority)
        self.holds: dict[int, str] = {}

    def got(self) -> list[str]:
        """What has been delivered since the last call."""
        tags, found = [], []
        for _, frame in self.client.turn():
            if isinstance(frame, Basic.Deliver):
                tags.append(int(frame.delivery_tag or 0))
            elif isinstance(frame, pamqp.body.ContentBody):
                found.append(frame.value.decode())
        self.holds.update(zip(tags, found, strict=True))
        return found

    def ack(self, message: str) -> None:
        self._settle(message, Basic.Ack)

    def back(self, message: str) -> None:
        self._settle(message, Basic.Nack, requeue=True)

    def reject(self, message: str) -> None:
        self._settle(message, Basic.Nack, requeue=False)

    def _settle(self, message: str, method: Any, **how: Any) -> None:
        tag = next(tag for tag, held in self.holds.items() if held == message)
        del self.holds[tag]
        self.client.send(method(tag, **how))


def test_a_group_is_with_one_consumer_until_that_holds_nothing_of_it() -> None:
    world = World()
    one, two = world.worker(2), world.worker(2)
    world.publish("a1", "a2", "b1", "b2", "a3")
    assert one.got() == ["a1", "a2"] and two.got() == ["b1", "b2"]
    one.ack("a1")
    assert one.got() == ["a3"] and two.got() == []
    two.ack("b1")
    two.ack("b2")
    assert two.got() == [], "the group a is still with the other"
    world.publish("a4")
    assert two.got() == []
    one.ack("a2")
    one.ack("a3")
    assert sorted(one.got() + two.got()) == ["a4"]


def test_others_go_on_with_other_groups() -> None:
    world = World()
    world.publish(*(f"a{n}" for n in range(50)), "b1", "c1")
    one, two = world.worker(1), world.worker(5)
    assert one.got() == ["a0"]
    assert two.got() == ["b1", "c1"]
    assert world.queue.ready == 49


def test_what_has_no_group_is_one_group() -> None:
    world = World()
    one, two = world.worker(1), world.worker(1)
    world.publish("-1", "-2", "a1")
    assert one.got() == ["-1"] and two.got() == ["a1"]
    two.ack("a1")
    assert two.got() == []


def test_the_owner_gets_it_again_when_it_gives_one_of_two_back() -> None:
    world = World()
    one, two = world.worker(2), world.worker(2)
    world.publish("a1", "a2", "a3")
    assert one.got() == ["a1", "a2"]
    one.back("a1")
    assert one.got() == ["a1"] and two.got() == []
    one.back("a2")
    one.back("a1")
    got = [one.got(), two.got()]
    assert sorted(got) == [[], ["a1", "a2"]], "in their order, to one of them"


def test_the_end_of_the_owner_frees_it() -> None:
    world = World()
    one, two = world.worker(2), world.worker(5)
    world.publish("a1", "a2", "a3")
    assert one.got() == ["a1", "a2"] and two.got() == []
    one.client.connection.close()
    assert two.got() == ["a1", "a2", "a3"]
    world.queue.check()


def test_a_cancelled_consumer_keeps_what_it_holds() -> None:
    world = World()
    one, two = world.worker(1), world.worker(5)
    world.publish("a1", "a2")
    assert one.got() == ["a1"]
    one.client.channel.cancel("c")
    assert two.got() == []
    one.ack("a1")
    assert two.got() == ["a2"]


def test_a_rejected_message_frees_it_too() -> None:
    world = World()
    one, two = world.worker(1), world.worker(5)
    world.publish("a1")
    assert one.got() == ["a1"]
    one.client.channel.active = False
    world.publish("a2")
    one.reject("a1")
    assert two.got() == ["a2"]


def test_without_acknowledgement_it_is_free_when_the_octets_have_left() -> None:
    world = World()
    one = world.worker(0, no_ack=True)
    world.publish("a1", "a2", "b1", "a3")
    assert one.got() == ["a1", "a2", "b1", "a3"]
    one.client.channel.cancel("c")
    world.publish("a4")
    assert world.worker(1).got() == ["a4"]
    assert world.queue.kind is not None and world.queue.kind.count == 1


def test_get_takes_part() -> None:
    world = World()
    world.publish("a1", "a2", "b1")
    one, two = (MemoryClient(world.engine, q=world.queue) for _ in range(2))
    assert one.channel.get(world.queue, False) and two.channel.get(world.queue, False)
    assert b"a1" in bytes(one.connection.take_output()) and b"b1" in bytes(two.connection.take_output())
    assert two.channel.get(world.queue, False) is False
    assert one.channel.get(world.queue, False) and b"a2" in bytes(one.connection.take_output())
    one.send(Basic.Ack(2, multiple=True))
    world.publish("a3")
    assert two.channel.get(world.queue, False) and b"a3" in bytes(two.connection.take_output())


def test_the_oldest_comes_first_of_what_one_may_have() -> None:
    world = World()
    world.publish("a1", "b1", "a2", "c1", "b2")
    one = world.worker(10)
    assert one.got() == ["a1", "b1", "a2", "c1", "b2"]


def test_consumers_with_a_higher_priority_come_first() -> None:
    world = World()
    low, high = world.worker(9), world.worker(2, priority=5)
    world.publish("a1", "b1", "c1", "a2")
    assert high.got() == ["a1", "b1"] and low.got() == ["c1"]


def test_limits_purge_and_expiry_do_not_mind() -> None:
    world = World()
    one, two = world.worker(1), world.worker(1)
    world.engine.now = 1000
    world.publish("a1", "b1")
    assert one.got() == ["a1"] and two.got() == ["b1"]
    world.publish("a2", "b2", "c2", expiration="10")
    world.publish("a3", "b3")
    world.queue.max_count = 3
    world.publish("d1")
    assert world.queue.ready == 3
    world.queue.check()
    one.ack("a1")
    assert one.got() == ["a3"]
    assert world.engine.purge(world.queue) == 2
    two.ack("b1")
    assert two.got() == []
    world.publish("b4")
    assert two.got() == ["b4"]
    world.engine.now = 2000
    world.publish("e1", expiration="1")
    world.engine.now = 3000
    two.ack("b4")
    assert two.got() == [] and world.queue.ready == 0
    world.queue.check()


def test_a_new_primary_hands_groups_out_anew() -> None:
    world, backup = World(), Engine(segment_size=65536)
    backup.passive = True
    copy = backup.create_queue(1, "q", True)
    group_by(copy, "group")
    world.engine.on_batch = lambda batch: backup.apply(bytes(batch))
    one = world.worker(2)
    world.publish("a1", "a2", "a3", "b1")
    assert one.got() == ["a1", "a2"]
    backup.passive = False
    backup.begin_epoch(2)
    clients = [MemoryClient(backup, q=copy) for _ in range(2)]
    for client in clients:
        client.channel.consume(copy, "c", False, 3)
    backup.end_turn()
    bodies = []
    for client in clients:
        frames = client.turn()
        bodies.append([frame.value for _, frame in frames if isinstance(frame, pamqp.body.ContentBody)])
    assert bodies == [[b"a1", b"a2", b"a3"], [b"b1"]]


def test_a_deposed_primary_starts_anew_if_it_is_promoted_again() -> None:
    """Though it had not come to the end of what its last consumer held."""
    world = World()
    one = world.worker(3)
    world.publish("a1", "a2", "a3", "a4")
    one.got()
    world.engine.schedule = lambda: None
    world.engine.slice.look, world.engine.slice.most = 1, 1
    world.engine.begin_slice()
    one.client.connection.close()
    world.engine.schedule = None
    world.engine.passive = True
    world.engine.demote()
    world.engine.passive = False
    world.engine.begin_epoch(7)
    assert world.worker(5).got() == ["a1", "a2", "a3", "a4"]


LONG = """
from tests.unit.core.test_groups import World
world, asked = World(), []
world.engine.schedule = lambda: asked.append(1)
one, two = world.worker(), world.worker()
world.engine.slice.look, world.engine.slice.most = 4, 1
world.publish(*(f"a{number}" for number in range(50)), "b0")
assert one.got() == ["a0"]
while asked and not (found := two.got()):
    world.engine.end_turn()
assert found == ["b0"] and len(asked) > 5, (found, asked)
"""


def test_who_looks_for_a_free_group_leaves_the_turn_to_others() -> None:
    """In a process of its own: a turn that does not end cannot be interrupted."""
    subprocess.run([sys.executable, "-c", LONG], check=True, timeout=60)


def test_a_transaction_is_not_seen_before_it_is_safe() -> None:
    world = World()
    world.engine.on_batch = lambda batch: None
    client = MemoryClient(world.engine, q=world.queue)
    client.channel.tx_select()
    client.publish(b"a1", "q", headers={"group": "a"})
    client.channel.tx_commit()
    one = world.worker(5)
    assert one.got() == []
    world.engine.advance_safe(world.engine.position)
    assert one.got() == ["a1"]


def test_what_is_noted_is_bounded_when_nobody_takes_it() -> None:
    world = World()
    world.queue.max_count = 10
    one = world.worker(1)
    two = world.worker(1)
    world.publish("a0", "b0")
    one.got()
    two.got()
    for number in range(20000):
        world.publisher.publish(b"a%d" % number, "q", headers={"group": f"g{number}" if number % 2 else "a"})
        if number % 10 == 0:
            world.engine.end_turn()
    assert world.queue.kind is not None and world.queue.kind.count < 5000
    one.ack("a0")
    assert one.got() == ["a19990"]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events(seed: int) -> None:
    """Each group is with one client, in its order, and nothing is lost."""
    rng = random.Random(seed)
    world = World()
    workers = [world.worker(rng.randint(1, 4)) for _ in range(4)]
    sent: dict[str, int] = defaultdict(int)
    done: dict[str, list[int]] = defaultdict(list)
    for _ in range(400):
        if rng.random() < 0.5:
            group = rng.choice("abcdef")
            sent[group] += 1
            world.publish(f"{group}{sent[group]}")
        worker = rng.choice(workers)
        worker.got()
        if worker.holds:
            message = rng.choice([*worker.holds.values()])
            group = message[0]
            mine = [held for held in worker.holds.values() if held[0] == group]
            if rng.random() < 0.7:
                if message == min(mine, key=lambda held: int(held[1:])):
                    worker.ack(message)
                    done[group].append(int(message[1:]))
            elif rng.random() < 0.9:
                worker.back(message)
            else:
                worker.client.connection.close()
                workers.remove(worker)
                workers.append(world.worker(rng.randint(1, 4)))
        for each in workers:
            each.got()
        owners = [(held[0], n) for n, each in enumerate(workers) for held in each.holds.values()]
        assert len(set(owners)) == len({group for group, _ in owners}), owners
        world.queue.check()
    for worker in workers:
        worker.client.connection.close()
    last = world.worker(0)
    rest = last.got()
    for group, count in sent.items():
        left = [int(message[1:]) for message in rest if message[0] == group]
        assert left == sorted(left) and sorted(done[group] + left) == [*range(1, count + 1)]
