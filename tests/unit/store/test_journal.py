"""The journal of an engine: what it makes publishers wait for, and the space that it takes."""

from __future__ import annotations

import random

import pytest

from qpidd_py.store import journal
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import frames, scan
from tests.support.memory_disk import MemoryDisk
from tests.unit.store.machine import SEGMENT, Machine


@pytest.fixture
def machine() -> Machine:
    machine = Machine(MemoryDisk(), random.Random(1))
    machine.declare("q")
    machine.settle()
    return machine


def test_a_publish_is_confirmed_when_it_is_synced(machine: Machine) -> None:
    machine.publish("q", 3)
    machine.turn()
    assert not machine.told["q"].confirmed
    machine.commit()
    assert len(machine.told["q"].confirmed) == 3
    assert machine.journal.waiting == 0


def test_publishers_wait_while_the_disk_is_far_behind(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BEHIND", 4000)
    told: list[bool] = []
    machine.journal._fell_behind = told.append
    while machine.journal.waiting <= 4000:
        assert told == []
        machine.publish("q", 1, 400)
        machine.turn()
    assert told == [True]
    machine.commit()
    assert told == [True, False]


def test_what_waits_is_carried_and_the_rest_goes(machine: Machine) -> None:
    """One message stays while a hundred times the size of a segment comes and goes."""
    machine.publish("q", 1)
    machine.declare("busy")
    for _ in range(300):
        machine.publish("busy", 5, 400)
        machine.turn()
        machine.consume("busy", 10)
        machine.commit()
    machine.settle()
    assert machine.journal.octets <= (journal.SLACK + 3) * SEGMENT
    assert machine.journal.carried < 300 * 5 * 200 // 5, "a fifth of what came: what was gone was not carried"
    kinds = [frame.kind for frame in frames(machine.disk, scan(machine.disk))]
    assert kinds[0] == Kind.SNAPSHOT and Kind.HEAD in kinds
    machine.boot()
    assert len(machine.contents("q")) == 1 and not machine.contents("busy")


def test_a_configuration_larger_than_a_segment_does_not_fill_one_after_the_other(machine: Machine) -> None:
    for number in range(60):
        machine.declare(f"queue-{number}")
    machine.settle()
    machine.publish("q", 20, 400)
    machine.settle()
    generation = machine.journal._generation
    for _ in range(20):
        machine.publish("q", 1)
        machine.turn()
        machine.commit()
    assert machine.journal._generation <= generation + 1
    machine.boot()
    assert len(machine.broker.vhost.queues) == 61


def test_a_long_backlog_is_not_carried_again_and_again(machine: Machine) -> None:
    machine.publish("q", 400, 400)
    machine.settle()
    before = machine.journal.octets
    machine.publish("q", 100, 400)
    machine.settle()
    assert machine.journal.carried == 0 and machine.journal.octets > before


def test_a_full_disk_is_relieved_by_what_was_consumed(machine: Machine) -> None:
    machine.publish("q", 60, 400)
    machine.settle()
    machine.consume("q", 60)
    machine.settle()
    assert machine.journal.carried == 0
    machine.journal.relieve()
    machine.settle()
    assert len(machine.journal._segments) <= 1
    machine.boot()
    assert machine.contents("q") == []


def test_it_is_not_relieved_while_too_much_waits(machine: Machine) -> None:
    machine.publish("q", 60, 400)
    machine.settle()
    before = machine.journal.octets
    machine.journal.relieve()
    assert not machine.work and machine.journal.octets == before


def test_what_was_left_makes_nothing_safe_any_more(machine: Machine) -> None:
    """Two leaders may write one epoch: positions of a log that was left may lie beyond those of the log after it."""
    before = machine.journal.position
    machine.publish("q", 3)
    machine.turn()
    machine.journal.leave()
    machine.commit()
    assert machine.journal.position == before and not machine.journal.waiting
    machine.journal.begin_again()
    assert machine.journal.position == before and not machine.journal.complete
    machine.settle()
    assert machine.journal.position == machine.broker.engine.position and machine.journal.complete
