"""Makes a failing scenario small: takes away what is not needed for the failure.

First groups of actions, halving them (delta debugging, Zeller and Hildebrandt 2002), then clients, options and time.
A smaller scenario counts when it breaks the same invariant; it may break it in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulator.scenario import Scenario
from tests.simulator.scheduler import Violation
from tests.simulator.simulation import Simulation

RUNS = 800
"""Most simulations that one shrinking may take."""
T = TypeVar("T")
Fails = Callable[[Scenario], bool]


def outcome(scenario: Scenario) -> str:
    """The text of the violation; empty when everything holds."""
    try:
        Simulation(scenario).run()
    except Violation as violation:
        return str(violation)
    return ""


def kind(violation: str) -> str:
    """Which invariant it is."""
    if violation.startswith("broker "):
        return violation.partition(" breaks: ")[2].partition(":")[0]
    return violation.partition(":")[0]


def shrink(scenario: Scenario, violation: str, runs: int = RUNS) -> Scenario:
    """A small scenario that breaks the same invariant."""
    left = [runs]

    def fails(smaller: Scenario) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return kind(outcome(smaller)) == kind(violation)

    before = None
    while scenario != before and left[0] > 0:
        before = scenario
        scenario = _fewer_actions(scenario, fails)
        scenario = _first(_fewer_clients, scenario, fails)
        scenario = _first(_fewer_options, scenario, fails)
        scenario = _first(_shorter, scenario, fails)
    return scenario


def _fewer_actions(scenario: Scenario, fails: Fails) -> Scenario:
    actions = minimise(scenario.actions, lambda kept: fails(scenario.with_actions(kept)))
    return scenario.with_actions(actions)


def minimise(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """No single one of the result can be taken away."""
    size = max(1, len(items) // 2)
    while items:
        at = 0
        while at < len(items):
            kept = [*items[:at], *items[at + size :]]
            if fails(kept):
                items = kept
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return items


def _first(step: Callable[[Scenario], Iterator[Scenario]], scenario: Scenario, fails: Fails) -> Scenario:
    """Take each step that still fails."""
    again = True
    while again:
        again = False
        for smaller in step(scenario):
            if fails(smaller):
                scenario, again = smaller, True
                break
    return scenario


def _fewer_clients(scenario: Scenario) -> Iterator[Scenario]:
    for client in scenario.clients:
        clients = tuple(other for other in scenario.clients if other is not client)
        yield replace(scenario, clients=clients).with_actions(
            action for action in scenario.actions if action.fields.get("who") != client["name"]
        )


def _fewer_options(scenario: Scenario) -> Iterator[Scenario]:
    for name in sorted(scenario.options.keys() - {"queues"}):
        yield replace(scenario, options={other: scenario.options[other] for other in scenario.options if other != name})


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    last = max((action.at for action in scenario.actions), default=0.0)
    for duration in (last + 0.1, last + 1.0):
        if duration < scenario.duration - 0.05:
            yield replace(scenario, duration=round(duration, 4))
