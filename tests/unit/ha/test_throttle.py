"""A slow backup: publishers are not read, and are told which backup it is."""

import pytest

from tests.unit.ha.world import Publisher, World


@pytest.fixture
def world():
    world = World("abc", heartbeat=5.0, backlog_high=20_000, backlog_low=5_000)
    world.cluster()
    world["a"].configuration.declare("q")
    world.run(0.1)
    return world


def fill(world):
    publisher = Publisher(world["a"])
    link = next(link for link in world["a"].links if link.peer_host.name == "b")
    link.output_ready = lambda: None  # nothing leaves any more
    for _ in range(40):
        publisher.publish("q", b"x" * 1000)
    return publisher, link


def test_publishers_are_told_why(world):
    a = world["a"]
    assert a.configuration.throttled == ""
    publisher, link = fill(world)
    assert a.configuration.throttled.startswith("backup b") and "is slow" in a.configuration.throttled
    assert a.engine.throttled and publisher.connection.input_paused
    del link.output_ready
    link.output_ready()
    world.until(lambda: a.configuration.throttled == "")
    assert not a.engine.throttled and not publisher.connection.input_paused
    world.until(lambda: publisher.confirmed == 40)


def test_a_deposed_primary_holds_no_client(world):
    a = world["a"]
    fill(world)
    assert a.configuration.throttled
    world.pause("a")
    world.promote("c")
    world.resume("a")
    world.until(lambda: not a.state.is_primary)
    assert a.configuration.throttled == "" and not a.engine.throttled


# ---- a backup at a limit of its own


def limit(world, name, reason):
    world[name].node.limited(reason)
    world[name].node.alarm("memory", reason)


def told(world):
    throttled = world["a"].configuration.throttled
    assert world["a"].engine.throttled is bool(throttled)
    return throttled


def test_a_backup_at_its_limit_stops_publishers_until_that_is_over(world):
    limit(world, "b", "memory: full")
    world.until(lambda: told(world).startswith("backup b"))
    assert told(world).endswith(": memory: full")
    assert world["b"].node.advice() == "memory: full"
    limit(world, "c", "memory: full, too")
    world.run(1.0)
    limit(world, "b", "")
    world.until(lambda: told(world).startswith("backup c"))
    limit(world, "c", "")
    world.until(lambda: not told(world))
    assert world["b"].node.advice() == ""
    assert [fields["result"] for kind, fields in world["b"].events if kind == "limit"] == ["begun", "ended"]


def test_a_backup_at_its_limit_is_not_dropped_for_that(world):
    limit(world, "b", "memory: full")
    world.run(60.0)
    assert told(world) and world["a"].node.local.persisted.in_sync.ids == {"id-a", "id-b", "id-c"}


def test_publishers_do_not_wait_for_a_backup_that_is_gone_and_do_again_when_it_is_back(world):
    limit(world, "b", "memory: full")
    world.until(lambda: told(world))
    world.cut("a", "b")
    world.until(lambda: not told(world), 30.0)
    world.heal()
    world.until(lambda: told(world).startswith("backup b"), 30.0)


def test_a_new_primary_is_told_too(world):
    limit(world, "b", "memory: full")
    world["a"].kill()
    world.promote("c")
    world.until(lambda: world["c"].configuration.throttled.startswith("backup b"), 30.0)
    assert world["c"].engine.throttled


def test_slow_and_limited_are_two_causes(world):
    _, link = fill(world)
    limit(world, "c", "memory: full")
    world.until(lambda: bool(world["a"].node.role.throttle._limited))
    assert "is slow" in told(world)
    del link.output_ready
    link.output_ready()
    world.until(lambda: told(world).startswith("backup c"))
    limit(world, "c", "")
    world.until(lambda: not told(world))


def test_a_deposed_primary_waits_for_no_limited_backup(world):
    limit(world, "b", "memory: full")
    world.until(lambda: told(world))
    world["a"].node.demote("a test")
    assert not told(world)


def test_the_same_reason_twice_is_said_once(world):
    for _ in range(2):
        limit(world, "b", "memory: full")
        world.run(0.1)
    assert sum("publishers wait" in line for line in world.lines) == 1
