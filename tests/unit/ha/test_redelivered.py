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
