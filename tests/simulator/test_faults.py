"""Faults and search can fail: each planted mistake is found by the scenario that belongs to it."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulator import knobs
from tests.simulator import mistakes_liveness as mistakes
from tests.simulator.coverage import Coverage
from tests.simulator.loop import SimLoop
from tests.simulator.network import CALM, End, Network
from tests.simulator.plan import plan
from tests.simulator.scenario import Scenario
from tests.simulator.scheduler import Call, Scheduler
from tests.simulator.search import Search
from tests.simulator.shrink import outcome
from tests.simulator.simulation import Simulation

FOUND = Path(__file__).parent / "found"
RUNS = 16


@pytest.mark.parametrize(
    ("name", "mistake", "expected"),
    [
        ("a-primary-that-only-answers", mistakes.respect_an_isolated_primary, "liveness"),
        ("removed-by-one-that-only-answers", mistakes.name_the_set_that_it_made_alone, "liveness"),
        ("it-answers-questions-and-no-claim", mistakes.wait_for_every_claim, "liveness"),
        ("links-that-break-before-they-are-complete", mistakes.forgive_broken_links, "liveness"),
        ("links-that-break-when-they-are-complete", mistakes.believe_complete_links, "liveness"),
        ("back-before-it-is-missed", mistakes.forgive_broken_links, "liveness"),
        ("a-crash-loop-hides-a-silent-backup", mistakes.begin_surveys_anew, "liveness"),
        ("back-without-a-write", mistakes.write_for_a_kept_place, "liveness"),
        ("a-majority-that-it-does-not-see", mistakes.see_only_links, "liveness"),
        ("a-majority-around-the-one-that-it-lost", mistakes.only_what_one_says, "liveness"),
        ("a-backup-that-cannot-be-listed", mistakes.only_changes_are_waited_for, "liveness"),
        ("refused-is-not-dead", mistakes.bury_the_refusing, "I1"),
    ],
)
def test_a_planted_mistake_is_found(
    name: str, mistake: Callable[[], AbstractContextManager[None]], expected: str
) -> None:
    """In the run that is recorded or, since a change elsewhere may shift it by some milliseconds, in another."""
    scenario = Scenario.load(FOUND / f"{name}.yaml")
    with mistake():
        runs = (scenario, *(replace(scenario, seed=str(seed)) for seed in range(RUNS)))
        found = next((run for run in runs if outcome(run).startswith(expected)), None)
    assert found is not None
    assert found is scenario or outcome(found) == ""


def test_the_core_has_no_copy_of_a_broker() -> None:
    simulation = Simulation(Scenario.load(FOUND / "a-copy-is-no-healthy-broker.yaml"))
    simulation.run()
    assert sorted(process.name for process in simulation.liveness.core) == ["a", "b", "c"]


def test_a_core_that_does_not_know_of_a_removal_has_a_majority_of_the_list_before_it() -> None:
    simulation = Simulation(Scenario.load(FOUND / "removed-and-only-the-outside-knows.yaml"))
    simulation.run()
    assert sorted(process.name for process in simulation.liveness.core) == ["a", "b", "c"]


def test_a_broker_that_is_given_up_fences_no_node_when_its_promotion_succeeds() -> None:
    simulation = Simulation(Scenario.load(FOUND / "promoted-while-it-is-given-up.yaml"))
    simulation.run()
    assert simulation.history.counts["total failures"] == 0


class Recorder:
    """A host that keeps what it is told."""

    powered, busy_until = True, 0.0

    def __init__(self, name: str) -> None:
        self.name = name
        self.ends: list[End] = []
        self.seen: list[bytes] = []
        self.closed: list[str] = []

    def accept(self, end: End) -> bool:
        self.watch(end)
        return True

    def watch(self, end: End) -> End:
        self.ends.append(end)
        end.on_data, end.on_closed = self.seen.append, self.closed.append
        return end

    def run(self, source: object, call: Call) -> None:
        call()


def connected() -> tuple[Scheduler, Network, Recorder, Recorder, End]:
    scheduler = Scheduler(1)
    network = Network(scheduler, Random)
    one, other = Recorder("a"), Recorder("b")
    near = one.watch(network.connect(one, other))
    scheduler.run_until(1.0)
    return scheduler, network, one, other, near


@pytest.mark.parametrize("both", [True, False])
def test_a_reset_loses_what_is_under_way(both: bool) -> None:
    scheduler, _, one, other, near = connected()
    near.send(b"lost")
    near.reset(both)
    scheduler.run_until(2.0)
    assert (b"".join(other.seen), one.closed, other.closed) == (b"", ["reset"], ["reset"] if both else [])
    other.ends[0].send(b"is anybody there")
    scheduler.run_until(3.0)
    assert (one.seen, other.closed) == ([], ["reset"])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_process_that_ends_with_a_reset_loses_what_is_under_way(share: float) -> None:
    scheduler, network, _, other, near = connected()
    network.reset_share = share
    near.send(b"said before the end")
    near.crash(power=False)
    scheduler.run_until(2.0)
    assert b"".join(other.seen) == (b"" if share else b"said before the end")
    assert len(other.closed) == 1


def test_a_clogged_path_carries_the_first_octets_of_each_connection() -> None:
    scheduler, network, one, other, near = connected()
    network.clogged["a", "b"] = 5
    near.send(b"12345")
    near.send(b"6")
    one.watch(network.connect(one, other)).send(b"again")
    scheduler.run_until(2.0)
    assert sorted(other.seen) == [b"12345", b"again"]


def test_writes_in_pieces_keep_their_order() -> None:
    scheduler, network, _, other, near = connected()
    network.search({"split": 0.95, "tail": 0.8, "most": 0.5})
    sent = bytes(range(200))
    near.send(sent)
    scheduler.run_until(200.0)
    assert b"".join(other.seen) == sent
    assert len(other.seen) > 1


@pytest.mark.parametrize("repair", ["all", "core"])
def test_a_repaired_network_is_faster_than_a_link_may_be_silent(repair: str) -> None:
    _, network, one, other, _ = connected()
    network.search({"tail": 0.8, "most": 0.5})
    rng = network.rng("a", "b")
    before = [network.delay(one, other, rng) for _ in range(3000)]
    if repair == "all":
        network.heal_all()
    else:
        network.repair({"a", "b"})
    after = [network.delay(one, other, rng) for _ in range(3000)]
    assert max(before) == 0.5
    assert max(after) == CALM


@pytest.mark.parametrize(("kind", "times"), [("repeated", 2), ("delayed", 1)])
def test_a_request_arrives_twice_or_late(kind: str, times: int) -> None:
    scheduler, network, one, other, _ = connected()
    getattr(network, kind)["a", "b"] = 5.0
    arrived: list[float] = []
    network.request(one, other, lambda: arrived.append(scheduler.now))
    scheduler.run_until(10.0)
    assert len(arrived) == times
    assert max(arrived) > 1.1


def test_a_search_keeps_what_is_new_and_its_scenarios_replay() -> None:
    search = Search("quorum")
    for _ in range(6):
        search.step()
    assert search.corpus
    assert not search.failures
    mutated = search.mutated(search.corpus[0])
    first, second = Simulation(mutated), Simulation(Scenario.read(mutated.text()))
    for simulation in (first, second):
        simulation.run()
    assert first.schedule() == second.schedule()
    assert first.pairs == second.pairs


def test_coverage_names_a_seed_for_each_rare_pair() -> None:
    coverage = Coverage()
    assert coverage.add(1, [("ready", "ha.ask"), ("joining", "ha.claim")])
    assert not coverage.add(2, [("ready", "ha.ask")])
    assert not coverage.add(3, [("ready", "ha.ask")])
    text = coverage.text()
    assert "2 pairs" in text
    assert "ha.claim" in text
    assert "ha.ask" not in text


def test_every_knob_is_turned_by_the_first_plans() -> None:
    found = sum((knobs.turned(plan(seed)) for seed in range(300)), Counter[str]())
    assert set(found) == set(knobs.KNOBS), knobs.text(found)


def test_a_knob_that_no_scenario_turns_is_seen() -> None:
    plain = Scenario("1", "quorum", 3, 1.0, {}, (), ())
    assert not knobs.turned(plain)
    assert "turn              0  Engine.schedule" in knobs.text(knobs.turned(plain))


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_process_had_under_way_ends_with_it(begun: bool) -> None:
    """A question that was asked, or that waited for a connection, when it was killed."""
    calls: list[Callable[[], None]] = []
    process = SimpleNamespace(after=lambda delay, call: calls.append(call), simulation=SimpleNamespace(by_address={}))
    loop = SimLoop(cast(Any, process))

    async def ask() -> None:
        await loop.create_connection(asyncio.Protocol, "a", 5672)

    work = ask()
    loop.create_task(work)
    if begun:
        calls.pop()()
    loop.die()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    for call in calls:
        call()
