"""Hundreds of schedules over all modes, and that each of them can be seen again."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.simulator.plan import plan
from tests.simulator.runner import Work, run, run_chunk
from tests.simulator.scenario import FORGIVING, MODES, Scenario
from tests.simulator.scheduler import Violation
from tests.simulator.shrink import kind, outcome, shrink
from tests.simulator.simulation import Simulation
from tests.support.slow import few, mostly_slow

SEEDS = 500
CHUNK = 25


def check(scenario: Scenario) -> Simulation:
    """Run it; fails with its schedule when something does not hold."""
    simulation = Simulation(scenario)
    try:
        simulation.run()
    except Violation as violation:
        pytest.fail(f"{simulation.schedule()}\n\n{scenario.text()}\n{violation}", pytrace=False)
    return simulation


def check_seeds(seeds: Sequence[int], mode: str = "", faults: Sequence[str] = ()) -> Counter[str]:
    """What has happened in all of them together."""
    total = Counter[str]()
    for seed in seeds:
        total.update(check(plan(seed, mode, faults)).history.counts)
    return total


@pytest.mark.parametrize("number", mostly_slow(range(SEEDS // CHUNK), len(MODES)))
def test_invariants_hold(number: int) -> None:
    mode = MODES[number % len(MODES)]
    total = check_seeds(range(number * CHUNK, (number + 1) * CHUNK), mode)
    # A simulation in which nothing happens proves nothing.
    assert total["confirmed"] > 10 * CHUNK, total
    assert total["committed"] > 2 * CHUNK, total
    assert total["promotions"] > 1.2 * CHUNK, total
    assert total["redelivered"] > CHUNK / 5, total
    assert total["prefixes compared"] > 20 * CHUNK, total
    assert total["octets compacted"] > 0, total
    assert mode not in FORGIVING or total["answers over connections"] > CHUNK, total
    assert total["publishers wait"] > 0, total
    assert mode != "registry" or (total["exchanges by pacemaker"] > CHUNK and total["exchanges by file"] > CHUNK), total


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", ["ambush", "pause", "isolate", "crash", "trap", "linger"])
@pytest.mark.parametrize("seeds", mostly_slow([range(5), range(5, 20)], 1), ids=str)
def test_invariants_hold_under_one_kind_of_fault(mode: str, fault: str, seeds: range) -> None:
    total = check_seeds(seeds, mode, (fault,))
    assert total["confirmed"] > 5 * len(seeds), total


def test_dead_letters_may_wait_when_a_role_ends() -> None:
    """Seed 21 shows what happens if they are not forgotten then (tests/mutants/core.yaml)."""
    total = check_seeds(range(19, 23), "quorum", ("letters",))
    assert total["confirmed"] > 200, total


@pytest.mark.parametrize("mode", MODES)
def test_returns_are_counted_over_fail_overs(mode: str) -> None:
    total = check_seeds(range(few(15)), mode, ("crash", "returns"))
    assert total["counted"] > 50, total


@pytest.mark.parametrize("mode", MODES)
def test_tokens_grow_over_fail_overs(mode: str) -> None:
    total = check_seeds(range(few(15)), mode, ("crash", "promote", "locks"))
    assert total["with a token"] > 20, total


KINDS = {
    "once": ("confirmed again", 1),
    "delays": ("due", 10),
    "groups": ("grouped", 10),
    "values": ("values", 10),
    "kept letters": ("letters", 5),
}
"""What must have happened, and how often at least."""


@pytest.mark.parametrize("mode", mostly_slow(MODES, 2))
@pytest.mark.parametrize("kind", KINDS)
def test_special_queues_keep_their_promises_over_fail_overs(kind: str, mode: str) -> None:
    what, least = KINDS[kind]
    total = check_seeds(range(few(6)), mode, ("crash", "promote", kind))
    assert total[what] >= least, total


@pytest.mark.parametrize("fault", ["blackout", "pages"])
@pytest.mark.parametrize("kind", mostly_slow(KINDS, 2))
def test_special_queues_keep_them_on_disks_and_when_pages_rot(kind: str, fault: str) -> None:
    what, least = KINDS[kind]
    total = check_seeds(range(few(6)), "quorum", ("crash", fault, kind))
    assert total[what] >= least, total


def test_a_seed_replays_exactly() -> None:
    first, second = check(plan(7, "manager")), check(plan(7, "manager"))
    assert first.schedule() == second.schedule()
    assert first.scheduler.steps == second.scheduler.steps


def test_nothing_is_left_of_a_run() -> None:
    """Thousands of seeds run in one process."""
    simulation = Simulation(plan(1, "quorum", ("crash",)))
    simulation.run()
    lives = [weakref.ref(broker) for process in simulation.brokers for broker in process._brokers]
    assert len(lives) > len(simulation.brokers)
    del simulation
    gc.collect()
    assert [each for each in lives if each() is not None] == []


def test_a_scenario_from_a_file_replays_exactly() -> None:
    scenario = plan(11, "quorum")
    again = Scenario.read(scenario.text())
    assert again == scenario
    assert check(again).schedule() == check(scenario).schedule()


def test_a_failure_prints_its_schedule_and_shrinks() -> None:
    work = Work("manager", mutant="shrink-at-once")
    with work.broken():
        outcomes = ((seed, outcome(plan(seed, "manager"))) for seed in range(150))
        seed, violation = next(found for found in outcomes if found[1])
        scenario = plan(seed, "manager")
        small = shrink(scenario, violation, 200)
        assert len(small.actions) < len(scenario.actions)
        simulation = Simulation(Scenario.read(small.text()))
        with pytest.raises(Violation) as raised:
            simulation.run()
    assert kind(str(raised.value)) == kind(violation)
    schedule = simulation.schedule()
    assert f"seed {seed}" in schedule
    assert "promote" in schedule


def test_the_runner_counts_on_several_processors(capsys: pytest.CaptureFixture[str]) -> None:
    work = Work("quorum", mutant="confirm-at-once")
    alone, together = (run(range(25), work, jobs, keep_going=True) for jobs in (1, 2))
    assert alone.seeds == together.seeds == 25
    assert sorted(alone.failures) == sorted(together.failures)
    assert alone.failures
    printed = capsys.readouterr()
    assert f"seed {alone.failures[0][0]} FAILS: {alone.failures[0][1]}" in printed.out
    assert "25/25 seeds" in printed.err


def test_a_judge_that_fails_is_a_failure_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are still judged."""

    def broken(simulation: Simulation) -> None:
        raise KeyError("a queue")

    monkeypatch.setattr(Simulation, "run", broken)
    report = run_chunk([1, 2], Work())
    assert report.seeds == 2
    assert [text.splitlines()[0] for _, text in report.failures] == ["the simulator has failed:"] * 2
    assert all("KeyError: 'a queue'" in text for _, text in report.failures)
