"""Exchanges that number their messages, at moments that hurt: a backup copies, is away, the primary dies."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Confirm, Exchange, Queue

from qpidd_py.amqp.codec import decode_properties
from tests.unit.ha.broker_world import BrokerHost, BrokerWorld, Client

HEADER = "qpid.msg_sequence"
COUNT = 200


@pytest.fixture
def world() -> BrokerWorld:
    world = BrokerWorld("abc", heartbeat=1.0, slice_size=2000)
    world.cluster()
    return world


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    """Of a primary with two exchanges that number, one behind the other, and a queue of each."""
    client = world["a"].client()
    for name in "xy":
        client.do(Exchange.Declare(exchange=name, exchange_type="fanout", arguments={HEADER: 1}))
        client.queue(f"q{name}")
        client.do(Queue.Bind(queue=f"q{name}", exchange=name))
    client.do(Exchange.Bind(source="x", destination="y"), Confirm.Select())
    return client


def publish(client: Client, count: int) -> None:
    for number in range(count):
        client.publish(b"%d" % number, "", "xy"[number % 5 == 0])
    client.frames()


def numbers(host: BrokerHost, queue: str) -> list[Any]:
    core = host.broker.vhost.queues[queue].core
    return [decode_properties(bytes(message[4]))["headers"][HEADER] for message in core.peek(1 << 20)]


def last(host: BrokerHost, name: str) -> int:
    found = host.broker.vhost.exchanges[name].numbers
    assert found is not None
    return found.last


def check(host: BrokerHost) -> None:
    """Nothing was given twice, and what comes next is new."""
    for name in "xy":
        found = numbers(host, f"q{name}")
        assert found == list(range(1, len(found) + 1)) and last(host, name) == len(found)


def heir(world: BrokerWorld) -> None:
    """Broker b follows the dead primary a."""
    world["a"].kill()
    world.promote("b")
    world.all_ready()
    for name in "bc":
        check(world[name])
    publish(world["b"].client(), 10)
    world.all_ready()
    for name in "bc":
        check(world[name])


def test_a_backup_copies_while_messages_come(world: BrokerWorld, client: Client) -> None:
    publish(client, COUNT)
    world["b"].kill()
    world.until(lambda: "b" not in {member.name for member in world["a"].node.local.persisted.in_sync.members})
    publish(client, COUNT)
    world["b"].boot()

    parts = 0
    for _ in range(50):
        publish(client, 3)
        world.run(0.0002)
        queue = world["b"].broker.vhost.queues.get("qx")
        parts += queue is not None and 0 < queue.core.ready < 2 * COUNT * 4 // 5
    assert parts
    publish(client, COUNT)
    world.all_ready()
    check(world["a"])
    heir(world)


def test_a_backup_was_away(world: BrokerWorld, client: Client) -> None:
    publish(client, COUNT)
    world.all_ready()
    world.cut("b", "a", "c")
    world.until(lambda: "b" not in {member.name for member in world["a"].node.local.persisted.in_sync.members})
    publish(client, COUNT)
    client.do(Exchange.Delete(exchange="y"), Queue.Delete(queue="qy"))
    client.do(Exchange.Declare(exchange="y", exchange_type="fanout", arguments={HEADER: 1}))
    client.queue("qy")
    client.do(Queue.Bind(queue="qy", exchange="y"), Exchange.Bind(source="x", destination="y"))
    publish(client, 7)
    world.heal()
    world.all_ready()
    heir(world)


@pytest.mark.parametrize("delay", [0.0, 0.0002, 0.0006, 0.001, 0.002, 0.01])
def test_the_primary_dies_while_messages_come(world: BrokerWorld, client: Client, delay: float) -> None:
    world.all_ready()
    publish(client, COUNT)
    world.run(delay)
    publish(client, COUNT)
    world.run(delay)
    heir(world)
