"""How far a backup is behind, how fast a catch-up goes, and what becomes of a backup that cannot keep up."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.model.protocol import Kind, encode_control
from ha.model.status import State
from ha.primary import lag
from ha.primary.catchup import Plan, Progress
from ha.primary.lag import LogHistory, progress_text
from qpidd_py.core import encode_ids
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import FakeConfiguration, FakeLink, Publisher, World

SLOW: dict[str, Any] = {"slow_backup_timeout": 3.0}


def positions_octets_seconds(history: LogHistory, position: int, now: float) -> tuple:
    found = history.lag(position, now)
    return found["positions"], found["octets"], found["seconds"]


# ---- the history of the log


def test_no_backup_is_behind_an_idle_log():
    history = LogHistory(1.0, 100)
    assert positions_octets_seconds(history, 100, 50.0) == (0, 0, 0.0)


def test_lag_counts_from_the_first_operation_that_is_missing():
    """The log was idle for a minute: a backup that lacks what came after it is not a minute behind."""
    history = LogHistory(0.0, 0)
    history.sealed(1.0, 10, 1000)
    history.tick(1.1)
    history.sealed(60.0, 11, 500)
    assert positions_octets_seconds(history, 10, 60.5) == (1, 500, 0.5)


def test_between_two_samples_it_grows_evenly():
    history = LogHistory(0.0, 0)
    history.sealed(10.0, 100, 10_000)
    history.tick(10.0)
    history.sealed(11.0, 200, 30_000)
    history.tick(12.0)
    assert positions_octets_seconds(history, 150, 20.0) == (50, 15_000, pytest.approx(8.5))
    assert positions_octets_seconds(history, 200, 20.0) == (0, 0, 0.0)


def test_a_position_from_before_the_promotion_is_behind_by_an_unknown_time():
    history = LogHistory(5.0, 1000)
    history.sealed(6.0, 1010, 10)
    assert positions_octets_seconds(history, 900, 7.0) == (110, None, None)


def test_a_busy_log_costs_a_bounded_number_of_samples():
    history = LogHistory(0.0, 0, step=0.05, most=64)
    for number in range(1, 100_000):
        history.sealed(number * 0.001, number, 100)
    assert len(history) <= 64
    for missing in (10, 1_000, 50_000, 99_000):
        operations, octets, seconds = positions_octets_seconds(history, 99_999 - missing, 99.999)
        assert operations == missing
        assert octets == pytest.approx(missing * 100, rel=0.1, abs=10_000)
        assert seconds == pytest.approx(missing / 1000, rel=0.1, abs=0.1)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 50), st.integers(0, 10_000), st.booleans()), max_size=60))
def test_lag_never_grows_with_the_position(steps):
    now, position = 0.0, 0
    history = LogHistory(now, position, most=16)
    for pause, operations, octets, tick in steps:
        now, position = now + pause, position + operations
        history.sealed(now, position, octets)
        if tick:
            history.tick(now)
    last = (position + 1, history.octets + 1, now + 1)
    for at in range(position + 1):
        found = positions_octets_seconds(history, at, now)
        assert all(value >= 0 for value in found)
        assert found[0] < last[0]
        assert found[1] <= last[1]
        assert found[2] <= last[2] + 0.001
        last = found
    assert positions_octets_seconds(history, position, now) == (0, 0, 0.0)


# ---- catching up


def test_rates_are_those_of_the_last_seconds():
    progress = Progress(0.0)
    assert progress.rates() == (0.0, 0.0)
    for second in range(1, 11):
        progress.note(float(second), 1000 * second, 10 * second)
    for second in range(11, 31):
        progress.note(float(second), 10_000 + 5000 * (second - 10), 100 + 50 * (second - 10))
    assert progress.rates() == (pytest.approx(5000), pytest.approx(50))


def test_what_is_left_of_a_plan():
    configuration = FakeConfiguration()
    for name in ("p", "q"):
        configuration.declare(name)
    host = type("H", (), {"engine": configuration.engine, "configuration": configuration})()
    client = Publisher(host)
    for number in range(100):
        client.publish("p" if number < 40 else "q", b"x" * 100)
    core = configuration.queues["q"][0]
    ids = [item[0] for item in core.peek(100)]
    held = {(core.number, configuration.queues["q"][1]): encode_ids([(ids[0], ids[19])])}
    plan = Plan(configuration, held, configuration.engine.position, 500)
    messages, octets = plan.remaining()
    assert messages == 80
    assert octets == pytest.approx(80 * core.bytes / 60, rel=0.01)

    sink: Any = type("Sink", (), {"send_frame": lambda *_: None})()
    seen = [messages]
    while not plan.done:
        plan.step(sink)
        plan.under_way = 0
        seen.append(plan.remaining()[0])
    assert seen == sorted(seen, reverse=True)
    assert len(seen) > 3
    assert plan.remaining() == (0, 0)
    assert plan.messages == 80


def test_progress_in_words():
    found = {"queues": 40, "left": 28, "messages": 12, "messages_left": 34, "rate": 1_500_000, "remaining": 61.5}
    assert progress_text(found) == "12 of 40 queues, 12 messages sent, about 34 left, 1.5 MB/s, 62 s to go"
    assert progress_text({**found, "remaining": None}).endswith("1.5 MB/s")


# ---- in a cluster


def member(world, name, primary="a"):
    found = [shown for shown in world[primary].node.role.members() if shown["name"] == name]
    assert len(found) == 1
    return found[0]


def test_lag_of_a_backup_that_hangs():
    world = World()
    world.cluster()
    client = filled(world)
    world.run(1.0)
    assert member(world, "b")["lag"] == {"positions": 0, "octets": 0, "seconds": 0.0}
    world.pause("b")
    for _ in range(5):
        client.publish("q", b"x" * 1000)
    world.run(0.7)
    found = member(world, "b")["lag"]
    assert found["positions"] == 5
    assert found["octets"] > 5000
    assert found["seconds"] == pytest.approx(0.7, abs=0.01)
    assert member(world, "c")["lag"]["positions"] == 0


def test_catch_up_is_told_and_logged(monkeypatch):
    monkeypatch.setattr(lag, "REPORT", 0.05)
    world = World(slice_size=1024)
    world.run(0.01)
    world.cut("b", "a", "c")
    world.promote("a", force=True)
    client = filled(world)
    for _ in range(2000):
        client.publish("q", b"x" * 1000)
    world.heal()
    world.until(lambda: "catchup" in member_or_empty(world, "b"), 30)
    world.until(lambda: member_or_empty(world, "b").get("catchup", {}).get("messages", 0) > 100)
    found = member(world, "b")["catchup"]
    assert 0 < found["messages_left"] < 2020
    assert found["octets_left"] >= 1000 * found["messages_left"]
    assert found["queues"] == found["left"] == 1
    world.until(lambda: any("b catches up: 0 of 1 queues" in line for line in world.lines))
    rated = member(world, "b")["catchup"]
    assert rated["rate"] > 0
    assert rated["message_rate"] > 0
    assert rated["remaining"] == pytest.approx(rated["octets_left"] / rated["rate"], rel=0.1, abs=0.1)
    world.until(lambda: world["b"].state is State.READY)
    assert "catchup" not in member(world, "b")


def member_or_empty(world, name):
    return next((shown for shown in world["a"].node.role.members() if shown["name"] == name), {})


# ---- backups that cannot keep up


@pytest.fixture
def backlog(monkeypatch):
    """What waits for each backup, by name, in octets."""
    waiting: dict[str, int] = {}
    monkeypatch.setattr(FakeLink, "backlog", property(lambda link: waiting.get(link.peer_host.name, 0)))
    return waiting


def stall(world) -> dict[str, Any]:
    role: Any = world["a"].node.role
    found: dict[str, Any] = role.stall()
    return found


def throttled(world):
    return world["a"].engine.throttled


def test_a_slow_backup_slows_publishers_and_is_then_dropped(backlog):
    world = World(**SLOW)
    world.cluster()
    client = filled(world)
    backlog["b"] = 100 << 20
    client.publish("q", b"m20")
    assert throttled(world)
    world.run(2.5)
    assert throttled(world)
    assert re.search(r"less waits for it, or it is dropped in 0\.[3-7] s", stall(world)["until"])
    assert "id-b" in world["a"].disk.in_sync
    world.until(lambda: "id-b" not in world["a"].disk.in_sync, 1.5)
    backlog.clear()
    world.until(lambda: not throttled(world), 1.0)
    assert any("too slow: 100 MiB" in line for line in world.lines)
    client.publish("q", b"m21")
    world.until(lambda: client.confirmed == 22, 0.1)
    world.until(lambda: "id-b" not in world["c"].disk.in_sync, 0.1)


def test_a_dropped_backup_has_to_wait_and_then_joins_by_difference(backlog):
    world = World(**SLOW)
    world.cluster()
    client = filled(world)
    backlog["b"] = 100 << 20
    client.publish("q", b"m20")
    world.until(lambda: "id-b" not in world["a"].disk.in_sync, 5)
    backlog.clear()
    assert 2.5 < world.until(lambda: world["b"].state is State.CATCHUP or "id-b" in world["a"].disk.in_sync, 10) < 6
    world.until(lambda: world["b"].state is State.READY, 5)
    assert world["b"].contents("q") == world["a"].contents("q")
    assert any("too slow and may not come back within 3 s" in line for line in world.lines)


def test_a_backup_says_once_why_it_is_refused():
    world = World()
    world.cluster()
    for reason in ("too slow", "too slow", "other"):
        role: Any = world["b"].node.role
        world["b"].node.link_frame(role.link, Kind.CONTROL, 0, encode_control("refused", reason=reason))
        world.until(lambda: world["b"].node.role.primary_address != "" and world["b"].state is State.READY)
        world.run(1.0)
    refused = [line.partition("b error: ")[2] for line in world.lines if "b error" in line]
    assert refused == ["the primary refuses us: too slow", "the primary refuses us: other"]


def test_each_drop_makes_the_wait_longer_until_it_is_forgiven(backlog):
    world = World(**SLOW)
    world.cluster()
    client = filled(world)
    role: Any = world["a"].node.role
    slow = role._slow

    def dropped(patience):
        backlog["b"] = 100 << 20
        client.publish("q", b"x")
        world.until(lambda: bool(slow.refusal("id-b", world.clock)), patience)
        backlog.clear()
        return world.until(lambda: not slow.refusal("id-b", world.clock), 60)

    waits = [dropped(40) for _ in range(6)]
    assert waits == pytest.approx([3, 6, 12, 24, 48, 48], abs=0.1)
    world.run(60.0)
    assert world["b"].state is State.READY
    assert dropped(40) == pytest.approx(3, abs=0.1)


def test_a_backup_that_gets_faster_in_time_stays(backlog):
    world = World(**SLOW)
    world.cluster()
    client = filled(world)
    backlog["b"] = 100 << 20
    client.publish("q", b"m20")
    world.run(2.5)
    backlog["b"] = 1 << 20
    world.run(3.0)
    assert not throttled(world)
    assert world["b"].state is State.READY
    assert "id-b" in world["a"].disk.in_sync


def test_zero_waits_for_ever(backlog):
    world = World(slow_backup_timeout=0.0)
    world.cluster()
    client = filled(world)
    backlog["b"] = 100 << 20
    client.publish("q", b"m20")
    world.run(60.0)
    assert throttled(world)
    assert "id-b" in world["a"].disk.in_sync


def test_quorum_keeps_a_slow_backup_that_it_needs(backlog):
    world = World(safety="quorum", **SLOW)
    world.cluster()
    client = filled(world)
    world["c"].kill()
    world.until(lambda: "id-c" not in world["a"].disk.in_sync)
    backlog["b"] = 100 << 20
    client.publish("q", b"m20")
    world.run(20.0)
    assert throttled(world)
    assert world["a"].disk.in_sync.ids == {"id-a", "id-b"}
    stalled = stall(world)
    assert stalled["why"] == "slow: 100 MiB wait for b, publishers are paused"
    assert stalled["until"] == "less waits for it"
    assert stalled["seconds"] == pytest.approx(20, abs=0.5)
    world["c"].boot()
    world.until(lambda: world["a"].disk.in_sync.ids == {"id-a", "id-c"}, 20)
