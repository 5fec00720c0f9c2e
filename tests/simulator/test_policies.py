"""Policies: what is replicated by one keeps every promise, and a policy that was answered is never lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from qpidd_py.broker.policies import Policies
from qpidd_py.management.request import Json, Reply
from tests.simulator.mistakes_safety import patched
from tests.simulator.plan import plan
from tests.simulator.scenario import MODES, Action, Scenario
from tests.simulator.shrink import outcome
from tests.simulator.test_simulator import check
from tests.support.slow import few, mostly_slow


def by_policy(scenario: Scenario) -> Scenario:
    """With `ha-replicate=none` and a policy."""
    return replace(scenario, options={**scenario.options, "policy": True})


@pytest.mark.parametrize("mode", MODES)
def test_what_a_policy_replicates_keeps_all_promises(mode: str) -> None:
    total = Counter[str]()
    for seed in range(few(12)):
        total.update(check(by_policy(plan(seed, mode, ("crash", "promote", "pause", "isolate")))).history.counts)
    assert total["confirmed"] > 5 * few(12) and total["prefixes compared"] > 20 * few(12), total


def test_a_policy_that_does_nothing_is_found() -> None:
    with patched(Policies, replicates=lambda *_: False):
        assert any(outcome(by_policy(plan(seed, "quorum", ("crash",)))) for seed in range(5))


def killed(mode: str, number: int) -> Scenario:
    """A primary, sometimes one that was cut off, is killed a millisecond after it was told, again and again."""
    seed, actions = str(number), []
    for turn in range(4):
        at, op = 0.6 + 0.8 * turn + 0.0004 * number, "clear policy" if turn % 2 else "set policy"
        if number % 3 == 0:
            actions.append(Action(at - 0.001, "isolate", {"who": "primary", "clients": False, "for": 0.3}))
        actions.append(Action(at, "configure", {"who": "q1", "op": op, "name": "p"}))
        actions.append(Action(at + 0.001, "crash", {"who": "primary", "power": bool(number % 2), "for": 0.3}))
    return Scenario(seed, mode, 3, clients=({"name": "q1", "kind": "architect"},), actions=tuple(actions))


@pytest.mark.parametrize("mode", mostly_slow(("quorum", "registry", "manager", "availability"), 2))
def test_one_that_was_answered_is_there_when_its_primary_is_killed(mode: str) -> None:
    runs = [check(killed(mode, number)) for number in range(few(24))]
    answered = sum(run.history.counts["policies"] for run in runs)
    assert 0 < answered < 4 * len(runs), "some have no answer"
    assert sum(run.history.counts["promotions"] for run in runs) > 2 * len(runs)


def test_one_that_is_answered_before_it_is_safe_is_found() -> None:
    from qpidd_py.management.model import Management

    def at_once(self: Management, method: str, change: tuple[Json, int], reply: Reply, arguments: Json) -> None:
        reply({"ok": True, "result": change[0]})

    with patched(Management, _when_safe=at_once):
        assert any(outcome(killed("quorum", number)).startswith("I7") for number in range(0, 24, 3))
