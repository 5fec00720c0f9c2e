"""Readings of clocks that travel with heartbeats, and the events that they become."""

from __future__ import annotations

from ha.model.clock_readings import EVERY, LATEST, ClockReadings, decode, encode
from ha.model.protocol import Kind
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import LATENCY, Host, World

SECOND = 1_000_000


def heard(readings: ClockReadings, *received: tuple[float, int]) -> list[bool]:
    """(monotonic seconds, µs that the reading seems to have travelled): is it written?"""
    walls = ((now, int(now * SECOND) + SECOND, delay) for now, delay in received)
    return [readings.hear(encode(wall - delay), now, wall) is not None for now, wall, delay in walls]


def test_the_body_of_a_heartbeat() -> None:
    assert decode(encode(1_795_226_000_000_001)) == 1_795_226_000_000_001
    assert decode(encode(7) + b"what comes one day") == 7
    assert [decode(body) for body in (b"", b"\0" * 7, encode(0), encode(-5))] == [None] * 4


def test_the_first_reading_is_written_and_then_what_says_more() -> None:
    assert heard(ClockReadings(), (0, 900), (0.2, 100), (1.0, 900), (1.2, 899), (1.5, 1), (2.3, 898)) == [
        *(True, False),  # sooner than a second after the last
        *(False, True),
        *(False, True),
    ]


def test_an_idle_link_has_an_event_now_and_then() -> None:
    every_quarter = [(number / 4, 500) for number in range(100)]
    written = [now for (now, _), yes in zip(every_quarter, heard(ClockReadings(), *every_quarter), strict=True) if yes]
    assert written == [0, LATEST, 2 * LATEST]


def test_a_reading_is_due_once_a_second() -> None:
    readings = ClockReadings()
    assert readings.due(5.0)
    assert decode(readings.say(5.0, 77)) == 77
    assert not readings.due(5.0 + EVERY - 0.01)
    assert readings.due(5.0 + EVERY)


def clocks(host: Host) -> list[tuple[str, int]]:
    return [(fields["peer"], fields["attrs"]["peer_wall"]) for kind, fields in host.events if kind == "clock"]


def test_both_ends_of_each_link_write_what_the_other_ones_clock_showed() -> None:
    world = World()
    for number, host in enumerate(world.hosts.values(), 1):
        host.wall_offset = number * 1000 * SECOND
    world.cluster()
    world.run(1.0)
    assert {peer for peer, _ in clocks(world["a"])} == {"b", "c"}
    for name, number in (("b", 2), ("c", 3)):
        (peer, reading) = clocks(world[name])[0]
        assert peer == "a" and 1000 * SECOND < reading <= 1000 * SECOND + world.clock * SECOND
        back = next(wall for peer, wall in clocks(world["a"]) if peer == name)
        assert number * 1000 * SECOND < back <= number * 1000 * SECOND + world.clock * SECOND


def test_a_busy_link_carries_readings_too() -> None:
    world = World("ab")
    world.cluster()
    client = filled(world)
    link = world["b"].node.role.link  # type: ignore[attr-defined]
    before = link.other.frames.count(Kind.HEARTBEAT)
    for _ in range(40):  # never half an interval of silence
        client.publish("q", b"m")
        world["a"].engine.end_turn()
        world.run(0.1)
    assert link.other.frames.count(Kind.HEARTBEAT) - before >= 3


def test_a_new_link_begins_anew() -> None:
    world = World("ab")
    world.cluster()
    world.run(1.0)
    count = len(clocks(world["a"]))
    world["b"].kill()
    world.until(lambda: not world["a"].node.role.ready())  # type: ignore[attr-defined]
    world["b"].boot()
    world.until(lambda: len(clocks(world["a"])) == count + 1, 2.0)


def test_a_peer_that_sends_no_readings_is_as_good() -> None:
    world = World("ab")
    world.cluster()
    world.run(1.0)
    role, count = world["b"].node.role, len(clocks(world["b"]))
    world["b"].node.link_frame(role.link, Kind.HEARTBEAT, 0, b"")  # type: ignore[attr-defined]
    world.run(LATENCY)
    assert len(clocks(world["b"])) == count and role is world["b"].node.role
