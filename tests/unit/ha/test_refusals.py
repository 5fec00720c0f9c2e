"""A host that refuses connections though its broker lives: closed port, firewall, listener that restarts."""

from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.refusals import Refusals
from ha.model.status import State
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import Publisher, World

REFUSED, SILENT, ANSWERED = Outcome.REFUSED, Outcome.SILENT, Outcome.ANSWERED


class Asked:
    """Refusals with a clock that the test sets."""

    def __init__(self, settle: float = 1.0) -> None:
        self.clock: Any = SimpleNamespace(time=10.0, now=lambda: self.clock.time)
        self.refusals = Refusals(self.clock, settle)

    def at(self, time: float, outcome: Outcome) -> Outcome:
        self.clock.time = time
        return self.refusals.judge("a:1", Answer(outcome, error="why")).outcome


def test_a_refusal_counts_when_it_has_lasted() -> None:
    asked = Asked()
    found = [asked.at(time, REFUSED) for time in (10.0, 10.5, 10.99, 11.0)]
    assert found == [SILENT, SILENT, SILENT, REFUSED]


@pytest.mark.parametrize("between", [SILENT, ANSWERED])
def test_an_answer_or_silence_in_between_begins_again(between: Outcome) -> None:
    asked = Asked()
    assert [asked.at(10.0, REFUSED), asked.at(10.9, between)] == [SILENT, between]
    assert [asked.at(time, REFUSED) for time in (11.0, 11.95, 12.0)] == [SILENT, SILENT, REFUSED]


def test_a_sign_of_life_begins_again_also_when_it_is_heard_of_late() -> None:
    asked = Asked()
    assert asked.at(10.0, REFUSED) is SILENT
    asked.refusals.alive("a:1", 10.4)
    asked.refusals.alive("a:1", 10.2)
    assert [asked.at(time, REFUSED) for time in (11.3, 11.4)] == [SILENT, REFUSED]


def test_what_is_left_to_wait_and_what_it_would_be_then() -> None:
    asked = Asked()
    answers = {"a:1": Answer(SILENT), "b:1": Answer(SILENT)}
    assert asked.refusals.settling(answers) == asked.refusals.settling([]) == 0.0
    asked.at(10.0, REFUSED)
    asked.clock.time = 10.25
    assert asked.refusals.settling(answers) == pytest.approx(0.75)
    assert [answer.outcome for answer in asked.refusals.as_dead(answers).values()] == [REFUSED, SILENT]
    asked.clock.time = 11.0
    assert asked.refusals.settling(answers) == 0.0


def test_without_a_time_to_settle_it_counts_at_once() -> None:
    asked = Asked(0.0)
    assert asked.at(10.0, REFUSED) is REFUSED
    assert asked.refusals.settling(["a:1"]) == 0.0


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_a_backup_is_not_promoted_over_a_primary_whose_port_is_closed_for_a_moment(names: str) -> None:
    """The primary drops its backups' links and goes on; its listener restarts."""
    world = World(names, safety="manager", isolation_wait=0.0)
    world.cluster()
    client = filled(world)
    world["a"].refuses = True
    world["a"].break_links()
    world.run(0.6)
    replies = world["b"].promote()
    world.run(0.2)
    world["a"].refuses = False
    world.until(lambda: bool(replies), 3.0)
    assert not replies[0]["ok"]
    client.publish("q", b"m20")
    world.until(lambda: client.confirmed == 21, 5.0)
    assert [host.name for host in world.hosts.values() if host.state.is_primary] == ["a"]


def test_a_new_broker_waits_for_what_refuses() -> None:
    """It cannot know whether it is alone."""
    world = World("ab", safety="manager")
    world["b"].kill()
    assert 0.7 < world.promote("a") < 1.2
    assert world["a"].state is State.ACTIVE
    assert Publisher(world["a"])
