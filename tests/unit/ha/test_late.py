"""A backup that lives and is late leaves the in-sync set, and comes back when it keeps up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from ha.model.status import State
from ha.primary.late import LIMIT, MOST, PAID, Lateness
from ha.primary.losses import Losses
from tests.unit.ha.world import Publisher, World

ALL = {"id-a", "id-b", "id-c"}


class Load:
    """A publisher that sends a message every `every` seconds, and how long each confirm took."""

    def __init__(self, world: World, every: float = 0.005) -> None:
        self.world, self.every = world, every
        self.publisher = Publisher(world["a"])
        self.sent: list[float] = []
        self.waits: list[tuple[float, float]] = []
        """(when it was published, how long its confirm took)."""
        self.step()

    def step(self) -> None:
        self.look()
        self.publisher.publish("q", b"x")
        self.sent.append(self.world.clock)
        self.world.at(self.every, self.step)
        self.world.at(self.every / 2, self.look)

    def look(self) -> None:
        for number in range(len(self.waits), self.publisher.confirmed):
            self.waits.append((self.sent[number], self.world.clock - self.sent[number]))

    def longest(self, since: float) -> float:
        """Seconds; what is not confirmed yet counts, too."""
        self.look()
        open_since = self.sent[len(self.waits)] if len(self.waits) < len(self.sent) else self.world.clock
        waits = [wait for published, wait in self.waits if published >= since]
        return max([*waits, self.world.clock - max(since, open_since)])


class Stutter:
    """A broker that runs `runs` of each `every` seconds, while `wanted` says so."""

    def __init__(
        self,
        world: World,
        name: str,
        runs: float = 0.03,
        every: float = 0.48,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.world, self.name, self.runs, self.every, self.wanted = world, name, runs, every, wanted
        self.on = True
        self.step()

    def step(self) -> None:
        if self.on and self.wanted():
            self.world.pause(self.name)
            self.world.at(self.every - self.runs, lambda: self.world.resume(self.name))
        self.world.at(self.every, self.step)


def started(names: str = "abc", **settings: Any) -> World:
    world = World(names, **{"safety": "quorum", **settings})
    world.cluster()
    world["a"].configuration.declare("q")
    world.run(0.1)
    return world


def members(world: World) -> frozenset[str]:
    return world["a"].node.local.persisted.in_sync.ids


def shown(world: World, name: str) -> dict[str, Any]:
    return next(found for found in world["a"].node.role.members() if found["name"] == name)


def late_events(world: World) -> list[str]:
    return [fields["result"] for kind, fields in world["a"].events if kind == "backup_late"]


@pytest.mark.parametrize("safety", ["quorum", "manager", "availability"])
def test_a_backup_that_stutters_leaves_and_delays_nobody(safety: str) -> None:
    world = started(safety=safety)
    load = Load(world)
    start = world.clock
    Stutter(world, "c")
    world.run(10.0)
    assert load.longest(start) > 0.4
    assert load.longest(start + 1.5) < 0.06
    assert members(world) == {"id-a", "id-b"}
    assert any("backup c is late" in line for line in world.lines)
    assert late_events(world) == ["begun"]
    assert shown(world, "c")["late"] > 3.0 and shown(world, "c")["state"] == "catchup"


def test_its_link_stays_and_it_has_what_is_confirmed_a_little_later() -> None:
    world = started()
    load = Load(world)
    links = list(world["a"].links)
    Stutter(world, "c")
    world.run(5.0)
    assert world["a"].links == links and all(link.open for link in links)
    assert world["c"].state is State.CATCHUP
    published = load.publisher.confirmed
    world.run(1.0)
    assert world["c"].configuration.queues["q"][0].ready >= published


def test_it_is_back_when_it_keeps_up_and_counts_again() -> None:
    world = started()
    Load(world)
    stutter = Stutter(world, "c")
    world.until(lambda: members(world) == {"id-a", "id-b"}, 3.0)
    stutter.on = False
    assert 3.5 < world.until(lambda: members(world) == ALL, 10.0) < 6.0
    world.until(lambda: world["c"].state is State.READY)
    assert late_events(world) == ["begun", "ended"]
    assert shown(world, "c")["late"] is None
    world.pause("b")
    world.pause("c")
    confirmed = world["a"].engine.safe
    world.run(0.3)
    assert world["a"].engine.safe <= confirmed + 2, "nothing is confirmed without it"


def test_what_is_slow_only_as_a_member_costs_less_and_less() -> None:
    world = started()
    Load(world)
    Stutter(world, "c", wanted=lambda: "id-c" in members(world))
    begun = []
    for _ in range(4):
        world.until(lambda: "id-c" not in members(world), 200.0)
        begun.append(world.clock)
        world.until(lambda: "id-c" in members(world), 200.0)
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    assert all(later > 1.6 * earlier for earlier, later in pairwise(pauses))


@pytest.mark.parametrize("phase", [0.0, 0.2])
def test_where_all_backups_are_slow_none_leaves(phase: float) -> None:
    world = started()
    Load(world)
    Stutter(world, "b")
    world.run(phase)
    Stutter(world, "c")
    world.run(20.0)
    assert members(world) == ALL


def test_a_pair_waits_for_its_backup() -> None:
    world = started("ab", safety="manager")
    Load(world)
    Stutter(world, "b")
    world.run(10.0)
    assert members(world) == {"id-a", "id-b"}


def test_two_of_five_leave_and_no_more() -> None:
    world = started("abcde")
    load = Load(world)
    for name in "de":
        Stutter(world, name)
        world.run(0.1)
    start = world.clock
    world.run(5.0)
    assert members(world) == ALL
    assert load.longest(start + 1.5) < 0.06
    Stutter(world, "c")
    world.run(5.0)
    assert members(world) == ALL, "a majority is needed"


def test_it_is_back_at_once_when_it_is_needed() -> None:
    world = started()
    load = Load(world)
    Stutter(world, "c", 0.2)
    world.until(lambda: "id-c" not in members(world), 5.0)
    world["b"].kill()
    world.until(lambda: members(world) == {"id-a", "id-c"}, 3.0)
    confirmed = load.publisher.confirmed
    world.until(lambda: load.publisher.confirmed > confirmed + 100, 3.0)


def test_a_single_pause_and_a_tenth_of_the_time_cost_nothing() -> None:
    world = started()
    Load(world)
    world.pause("c")
    world.run(0.9)
    world.resume("c")
    world.run(4.0)
    Stutter(world, "c", 0.9, 1.0)
    world.run(20.0)
    assert members(world) == ALL and not late_events(world)


def test_zero_means_never() -> None:
    world = started(slow_backup_latency=0.0)
    Load(world)
    Stutter(world, "c")
    world.run(10.0)
    assert members(world) == ALL


def test_a_link_that_breaks_does_not_bring_it_back() -> None:
    world = started()
    Load(world)
    Stutter(world, "c")
    world.until(lambda: "id-c" not in members(world), 3.0)
    world["c"].break_links()
    world.run(3.0)
    assert shown(world, "c")["late"] is not None
    assert members(world) == {"id-a", "id-b"}


def test_it_holds_no_publishers_up_and_what_waits_for_it_is_bounded() -> None:
    world = started(backlog_high=20_000, backlog_low=5_000, slow_backup_timeout=0.0)
    Load(world)
    Stutter(world, "c")
    world.until(lambda: "id-c" not in members(world), 3.0)
    a = world["a"]
    link = next(link for link in a.links if link.open and link.peer_host.name == "c")
    publisher = Publisher(a)
    with patch.object(link, "output_ready", lambda: None):  # nothing leaves any more
        for _ in range(40):
            publisher.publish("q", b"x" * 1000)
        assert link.backlog > 20_000 and not a.configuration.throttled
        world.run(0.2)
    assert not link.open and any("too slow: 0 MiB wait for it" in line for line in world.lines)


def test_the_others_are_asked_for_a_rival_first() -> None:
    """The set gets smaller only after a survey that was begun when it was late already."""
    world = started()
    Load(world)
    Stutter(world, "c")
    asked: list[float] = []
    look = Losses._look

    def noted(losses: Losses) -> None:
        asked.append(world.clock)
        look(losses)

    start = world.clock
    with patch.object(Losses, "_look", noted):
        world.until(lambda: "id-c" not in members(world), 3.0)
    assert any(start + LIMIT / 2 <= time < world.clock for time in asked)


def test_a_primary_that_paused_blames_no_backup() -> None:
    world = started()
    Load(world)
    Stutter(world, "a", 0.4, 0.8)
    world.run(20.0)
    assert members(world) == ALL


def test_debt_grows_and_is_paid() -> None:
    known = Lateness()
    for step in range(8):
        known.note(True, 0.125, float(step))
    assert known.debt == LIMIT and known.since == 3.0
    known.note(True, 0.125, 9.0)
    assert known.debt == LIMIT
    for leaves in range(8):
        known.leave(100.0)
        assert known.debt == min(MOST, LIMIT * 2**leaves)
        known.note(True, 5.0, 100.0)
        assert known.debt == known.owed, "what it owes does not grow while it is out"
        known.note(False, 1.0, 100.0)
        assert known.debt == known.owed - PAID
        known.end(100.0)
    known.leave(10_000.0)
    assert known.debt == LIMIT
