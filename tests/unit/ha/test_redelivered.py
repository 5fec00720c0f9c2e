"""After a fail-over, whatever a consumer may have seen says `redelivered`."""

from __future__ import annotations

from pamqp.commands import Basic

from tests.unit.ha.broker_world import BrokerWorld


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
    assert [answer.redelivered for answer in answers] == [True, False]


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
