"""After a fail-over, whatever a consumer may have seen says `redelivered`, and a dead letter that may have been made
before `x-resent`; after one that was planned nothing else does."""

from __future__ import annotations

from typing import Any

from pamqp.commands import Basic

from ha.model.environment import Json
from tests.unit.ha.broker_world import BrokerWorld


def got(world: BrokerWorld, name: str, queue: str) -> list[tuple[bytes, bool, bool]]:
    """All messages of a queue: body, redelivered, x-resent."""
    client, found = world[name].client(), []
    while (answer := client.do(Basic.Get(queue=queue, no_ack=True)))[0].name == "Basic.GetOk":
        frames: list[Any] = answer
        headers = frames[1].properties.headers or {}
        found.append((frames[2].value, frames[0].redelivered, bool(headers.get("x-resent"))))
    return found


def relocate(world: BrokerWorld, source: str, target: str) -> None:
    replies: list[Json] = []
    assert world[source].requests.request("ha.relocate", {"to": target}, replies.append, "")
    world.until(lambda: bool(replies))
    assert replies[0]["ok"], replies


def test_a_backup_that_joins_late_hears_what_was_handed_out() -> None:
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    world["c"].kill()
    world.until(lambda: len(world["a"].node.local.persisted.in_sync.members) == 2)
    client = world["a"].client()
    client.queue("q", b"one", b"two")
    client.do(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q"))
    world["c"].boot()
    world.all_ready()
    world["b"].kill()
    world["a"].kill()
    world.promote("c", force=True)
    answer = world["c"].client().do(Basic.Get(queue="q", no_ack=True))[0]
    assert answer.name == "Basic.GetOk" and answer.redelivered


def test_a_backup_that_was_there_hears_what_is_handed_out() -> None:
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    client = world["a"].client()
    client.queue("q", b"one", b"two")
    client.do(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q"))
    world.run(0.1)
    world["a"].kill()
    world.promote("b")
    other = world["b"].client()
    answers = [other.do(Basic.Get(queue="q", no_ack=True))[0] for _ in range(2)]
    assert [answer.redelivered for answer in answers] == [True, True], "its last turns may not have come here"


def test_what_a_primary_that_is_cut_off_has_handed_out() -> None:
    """No broker hears of the delivery nor of its acknowledgement."""
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    client = world["a"].client()
    client.queue("q", b"one", b"two")
    world.run(0.1)
    world.cut("a", "b", "c")
    client.do(Basic.Get(queue="q", no_ack=True))
    world.promote("b")
    world["b"].client().publish(b"three", "q")
    assert got(world, "b", "q") == [(b"one", True, False), (b"two", True, False), (b"three", False, False)]


def test_what_a_primary_that_is_cut_off_has_made_a_dead_letter_of() -> None:
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    world["a"].client().queue("dead")
    letters: dict[str, Any] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}
    client = world["a"].client()
    client.queue("q", b"one", **letters)
    world.run(0.1)
    world.cut("a", "b", "c")
    for name in "ab":
        host = world[name].client()
        host.do(Basic.Get(queue="q"))
        host.send(1, Basic.Reject(delivery_tag=1, requeue=False))
        world.run(0.1)
        assert got(world, name, "dead") == [(b"one", False, name == "b")]
        if name == "a":
            world.promote("b")


def test_a_switch_over_marks_nothing_that_nobody_had() -> None:
    """Nor does a primary that steps down and leads again; what was not sure before stays so."""
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    client = world["a"].client()
    client.queue("q", b"one", b"two")
    client.do(Basic.Qos(prefetch_count=1), Basic.Consume(queue="q"))
    world.run(0.1)
    relocate(world, "a", "b")
    world.all_ready()
    world["b"].node.demote("requested by a test")
    world.promote("b")
    world.all_ready()
    assert world["b"].engine.unsure == 0
    world["b"].node.demote("requested by a test")
    world.promote("c")
    assert got(world, "c", "q") == [(b"one", True, False), (b"two", False, False)]
    world.all_ready()
    world["c"].client().publish(b"three", "q")
    world.run(0.1)
    world["c"].kill()
    world.promote("a")
    world.all_ready()
    relocate(world, "a", "b")
    world.all_ready()
    world["b"].client().publish(b"four", "q")
    assert got(world, "b", "q") == [(b"three", True, False), (b"four", False, False)]


def test_a_restarted_primary_does_not_know_what_it_has_handed_out() -> None:
    """It answers, at the same address, and nobody has led since."""
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    world["a"].client().queue("q", b"one")
    world.run(0.1)
    world["a"].kill()
    world["a"].boot()
    world.run(0.1)
    world.promote("b")
    assert got(world, "b", "q") == [(b"one", True, False)]


def test_what_a_client_gets_in_the_turn_of_a_demotion_is_logged_before_the_client_has_it() -> None:
    """The answer to basic.get leaves with the closing of the client; the log must not end before it."""
    world = BrokerWorld("abc", heartbeat=1.0)
    world.cluster()
    client = world["a"].client()
    client.queue("q", b"one")
    world.run(0.1)
    client.send(1, Basic.Get(queue="q"))
    world["a"].node.demote("requested by a test")
    world.run(0.1)
    world.promote("b")
    answer = world["b"].client().do(Basic.Get(queue="q", no_ack=True))[0]
    assert answer.name == "Basic.GetOk" and answer.redelivered
