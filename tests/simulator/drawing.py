"""What several parts of a plan draw: a time, a publish, a consumer."""

from __future__ import annotations

from random import Random

from tests.simulator.scenario import Action, Fields
from tests.simulator.topology import LETTERS

DURATION = 4.0
SECONDS = (0.02, 0.2, 0.6, 1.5, 2.5)
"""How long a cut or a pause lasts."""


def a_time(rng: Random, low: float = 0.1, high: float = DURATION) -> float:
    return round(rng.uniform(low, high), 4)


def a_consumer(rng: Random, name: str, queue: str) -> Fields:
    prefetch, slowness = rng.choice((1, 2, 5, 20)), rng.choice((0.0, 0.005, 0.05))
    fields = {"name": name, "kind": "consumer", "queue": queue, "prefetch": prefetch, "slowness": slowness}
    return {**fields, "rejects": True} if queue in LETTERS or rng.random() < 0.1 else fields


def a_publish(rng: Random, name: str, at: float, route: str) -> Action:
    size = rng.choice((0, 10, 10, 100, 1000)) if rng.random() < 0.95 else 9000
    fields: Fields = {"who": name, "to": route, "size": size}
    if rng.random() < 0.2:
        fields["mandatory"] = True
    if route == "prio":
        fields["priority"] = rng.randint(0, 3)
    if route == "poison":
        fields["priority"] = (0, 4, 5, 9)[int(at * 10_000) % 4]  # normal and high ones; no draw, so that seeds stay
    return Action(at, "publish", fields)
