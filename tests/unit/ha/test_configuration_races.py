"""Changes of the configuration at moments that hurt: a backup copies, a backup is away, the primary dies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Exchange, Queue

from tests.unit.ha.broker_world import BrokerWorld, Client

COUNT = 300
BODIES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture
def world() -> BrokerWorld:
    world = BrokerWorld("abc", heartbeat=1.0, slice_size=2000)
    world.cluster()
    return world


@pytest.fixture
def client(world: BrokerWorld) -> Client:
    return world["a"].client()


def until_dropped(world: BrokerWorld) -> None:
    """Broker b counts no more."""
    world.until(lambda: "b" not in {member.name for member in world["a"].node.local.persisted.in_sync.members})


def copying(world: BrokerWorld) -> None:
    """Broker b comes back with an empty memory; until it has a part of the queue q."""
    world["b"].kill()
    until_dropped(world)
    world["b"].boot()

    def part() -> bool:
        found = world["b"].broker.vhost.queues.get("q")
        return found is not None and 0 < found.core.ready < COUNT

    world.until(part)


def alternate(client: Client) -> None:
    client.queue("left")
    client.do(Exchange.Declare(exchange="alt", exchange_type="fanout"))
    client.do(Queue.Bind(queue="left", exchange="alt", routing_key=""))


def everywhere(world: BrokerWorld, *queues: str) -> Counter[bytes]:
    """How often each message is there, in all these queues of the primary."""
    (primary,) = [world[host.name] for host in world.hosts.values() if host.alive and host.state.is_primary]
    return Counter(body for queue in queues for body in primary.contents(queue))


# ---------------------------------------------------------------- while a backup copies


def test_a_queue_is_purged_while_it_is_copied(world: BrokerWorld, client: Client) -> None:
    client.queue("q", *BODIES)
    copying(world)
    (answer,) = client.do(Queue.Purge(queue="q"))
    assert answer.message_count == COUNT
    client.publish(b"new", "q")
    world.agree()
    assert world["b"].contents("q") == [b"new"]


def test_a_queue_is_deleted_while_it_is_copied(world: BrokerWorld, client: Client) -> None:
    client.queue("q", *BODIES)
    copying(world)
    client.do(Queue.Delete(queue="q"))
    world.agree()
    assert world["b"].queues() == {}


@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 3}, {"x_max_length": 2}])
def test_a_queue_is_made_again_while_it_is_copied(
    world: BrokerWorld, client: Client, arguments: dict[str, Any]
) -> None:
    client.queue("q", *BODIES)
    copying(world)
    client.do(Queue.Delete(queue="q"))
    client.queue("q", b"new", **arguments)
    client.publish(b"newer", "q")
    world.agree()
    assert world["b"].contents("q") == [b"new", b"newer"]


def test_what_a_deleted_queue_leaves_while_it_is_copied(world: BrokerWorld, client: Client) -> None:
    alternate(client)
    client.queue("q", *BODIES, alternate_exchange="alt")
    copying(world)
    client.do(Queue.Delete(queue="q"))
    world.agree()
    assert world["b"].contents("left") == BODIES
    world["a"].kill()
    world.promote("b")
    assert everywhere(world, "left") == Counter(BODIES)


def test_messages_that_expire_while_they_are_copied(world: BrokerWorld, client: Client) -> None:
    """Row 32 of the original's tests, with dead letters."""
    client.queue("dead")
    client.queue("q", x_message_ttl=300, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    for body in BODIES:
        client.publish(body, "q")
    copying(world)
    for number in range(COUNT, COUNT + 50):
        client.publish(b"%d" % number, "q", expiration="1")
        world.run(0.001)
    world.until(lambda: len(world["a"].contents("dead")) == COUNT + 50)
    world.agree()
    assert world["b"].contents("q") == []
    assert Counter(world["b"].contents("dead")) == Counter(b"%d" % number for number in range(COUNT + 50))


def test_moved_messages_while_they_are_copied(world: BrokerWorld, client: Client) -> None:
    client.queue("q", *BODIES)
    client.queue("other")
    copying(world)
    assert world["a"].broker.vhost.move_messages(None, "q", COUNT // 2, "other", "") == COUNT // 2
    world.agree()
    assert (world["b"].contents("other"), world["b"].contents("q")) == (BODIES[: COUNT // 2], BODIES[COUNT // 2 :])


def test_acknowledgements_of_what_is_not_copied_yet(world: BrokerWorld, client: Client) -> None:
    client.queue("q", *BODIES)
    world.all_ready()
    for _ in range(COUNT):
        client.send(1, Basic.Get(queue="q"))
    client.frames()
    copying(world)
    for number in range(COUNT, 0, -2):
        client.send(1, Basic.Ack(number))
    client.frames()
    world.agree()
    assert world["b"].contents("q") == BODIES[::2]


# ---------------------------------------------------------------- while a backup is away


def away(world: BrokerWorld) -> None:
    """Broker b lives on, but its links are cut until `world.heal`."""
    world.cut("b", "a", "c")
    until_dropped(world)


def test_a_queue_and_an_exchange_are_made_again_while_a_backup_is_away(world: BrokerWorld, client: Client) -> None:
    """Row 33 of the original's tests."""
    client.queue("q", *BODIES)
    client.do(Exchange.Declare(exchange="e"), Queue.Bind(queue="q", exchange="e", routing_key="old"))
    world.all_ready()
    away(world)
    client.do(Queue.Delete(queue="q"), Exchange.Delete(exchange="e"))
    client.queue("q", b"new")
    client.do(Exchange.Declare(exchange="e", exchange_type="topic"))
    world.heal()
    world.agree()
    assert world["b"].contents("q") == [b"new"]
    assert world["b"].broker.vhost.exchanges["e"].type == "topic"
    assert not world["b"].broker.vhost.exchanges["e"].size


def test_a_queue_is_purged_while_a_backup_is_away(world: BrokerWorld, client: Client) -> None:
    client.queue("q", *BODIES)
    world.all_ready()
    away(world)
    client.do(Queue.Purge(queue="q"))
    world.heal()
    world.agree()
    assert world["b"].contents("q") == []


@pytest.mark.parametrize("gone", ["cancel", "close", "lost"])
def test_an_auto_delete_queue_loses_its_user_while_a_backup_is_away(
    world: BrokerWorld, client: Client, gone: str
) -> None:
    alternate(client)
    client.queue("q", *BODIES, auto_delete=True, alternate_exchange="alt")
    user = world["a"].client()
    user.do(Basic.Qos(0, 7), Basic.Consume(queue="q", consumer_tag="c"))
    world.all_ready()
    away(world)
    if gone == "cancel":
        user.send(1, Basic.Cancel("c"))
    elif gone == "close":
        user.send(1, Channel.Close(200, "", 0, 0))
    else:
        user.connection.closed("lost")
    world.heal()
    world.agree()
    assert "q" not in world["b"].queues()
    assert Counter(world["b"].contents("left")) == Counter(BODIES)


def test_an_exclusive_queue_ends_while_a_backup_is_away(world: BrokerWorld, client: Client) -> None:
    other = world["a"].client()
    replicated: dict[str, Any] = {"qpid.replicate": "all"}
    other.queue("mine", b"m", exclusive=True, **replicated)
    world.all_ready()
    assert "mine" in world["b"].queues()
    (refused,) = client.do(Queue.Declare(queue="mine", passive=True))
    assert refused.reply_code == 405
    away(world)
    other.connection.closed("lost")
    world.heal()
    world.agree()
    assert "mine" not in world["b"].queues()


# ---------------------------------------------------------------- while the primary dies


def test_what_belonged_to_the_clients_of_a_dead_primary(world: BrokerWorld, client: Client) -> None:
    """Exclusive queues, which no backup holds, and used auto-delete queues go, and can be made again by those who come
    back."""
    alternate(client)
    client.queue("mine", b"mine", exclusive=True, alternate_exchange="alt")
    client.queue("used", b"used", auto_delete=True, alternate_exchange="alt")
    client.queue("never", b"never", auto_delete=True, alternate_exchange="alt")
    client.queue("timed", auto_delete=True, x_expires=3000)
    client.do(Basic.Qos(0, 1), Basic.Consume(queue="used"), Basic.Consume(queue="timed"))
    world.all_ready()
    world["a"].kill()
    world.promote("b")
    world.agree()
    assert set(world["c"].queues()) == {"left", "never", "timed"}
    assert everywhere(world, "left") == {b"used": 1}
    heir = world["b"].client()
    heir.queue("mine", exclusive=True)
    heir.do(Basic.Consume(queue="never", consumer_tag="c"), Basic.Cancel("c"))
    world.until(lambda: "timed" not in world["b"].queues())
    world.agree()
    assert set(world["c"].queues()) == {"left"}
    assert "mine" in world["b"].broker.vhost.queues
    assert everywhere(world, "left") == {b"used": 1, b"never": 1}


@pytest.mark.parametrize("delay", [0.0, 0.0002, 0.0006, 0.001, 0.002, 0.01])
@pytest.mark.parametrize("how", ["delete", "expire", "reject", "overflow"])
def test_the_primary_dies_while_messages_go_elsewhere(
    world: BrokerWorld, client: Client, how: str, delay: float
) -> None:
    """Wherever the log ends: each message once, in its queue or where it was sent to."""
    alternate(client)
    arguments: dict[str, Any] = {"x_dead_letter_exchange": "alt"} if how != "delete" else {}
    if how == "expire":
        arguments["x_message_ttl"] = 500
    client.queue("q", *BODIES, alternate_exchange="alt", **arguments)
    client.frames()
    world.all_ready()
    if how == "delete":
        client.send(1, Queue.Delete(queue="q"))
    elif how == "reject":
        for _ in range(COUNT):
            client.send(1, Basic.Get(queue="q"))
        client.send(1, Basic.Nack(0, multiple=True, requeue=False))
    elif how == "expire":
        world.until(lambda: bool(world["a"].contents("left")))
    else:
        world["a"].broker.vhost.queues["q"].core.max_count = 10
        client.publish(b"one more", "q")
    world["a"].engine.end_turn()
    world.run(delay)
    world["a"].kill()
    world.promote("b")
    world.agree()
    once = Counter([*BODIES, b"one more"] if how == "overflow" else BODIES)
    found = everywhere(world, "q", "left")
    assert found in (once, Counter(BODIES))
    world["b"].kill()
    world.promote("c")
    assert everywhere(world, "q", "left") == found


def test_declarations_after_a_fail_over_meet_no_false_limit(world: BrokerWorld, client: Client) -> None:
    """Rows 29 and 34 of the original's tests."""
    client.queue("q", b"old")
    world.all_ready()
    world["a"].kill()
    world.promote("b")
    heir = world["b"].client()
    for _ in range(3):
        heir.do(Queue.Delete(queue="q"))
        world.agree()
        assert world["b"].queues() == world["c"].queues() == {}
        heir.queue("q", b"new")
    world.agree()
    assert world["c"].contents("q") == [b"new"]
