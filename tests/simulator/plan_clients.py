"""The clients of a plan, and what each of them does."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.simulator.drawing import DURATION, a_consumer, a_publish, a_time
from tests.simulator.scenario import Action, Fields
from tests.simulator.topology import LETTERS

TAKEN = {
    "prio": 1.0,
    "brief": 0.3,
    "short": 0.5,
    "full": 1.0,
    "scrap": 0.0,
    "mortal": 0.3,
    "crowded": 0.3,
    "picky": 1.0,
    "dead": 0.7,
    "fleeting": 0.5,
    "turned": 0.5,
}
"""Queues that a scenario may have in addition to the basic ones, and how often somebody takes what is in them."""
ROUTE = {"turned": "turn"}
"""What says to which exchange, where it is not the name of the queue."""


def clients_of(rng: Random, options: Fields) -> tuple[list[Fields], list[Action]]:
    clients = [a_consumer(rng, "c1", "main"), a_consumer(rng, "c2", "fan2"), {"name": "w1", "kind": "worker"}]
    if rng.random() < 0.3:
        clients.append(a_consumer(rng, "c3", "main"))
    if rng.random() < 0.7:
        clients += [a_consumer(rng, "c11", "out1"), a_consumer(rng, "c12", "out2")]
    queues, routes = _queues(rng), ["main"] * 5 + ["work"] * 3 + ["fan"] * 2 + ["nowhere"]
    if queues:
        options["queues"] = queues
        routes += [ROUTE.get(queue, queue) for queue in queues if queue != "dead" for _ in range(3)]
    clients += [_taker(rng, f"d{number}", queue) for number, queue in enumerate(queues) if rng.random() < TAKEN[queue]]
    actions: list[Action] = []
    # Half of those that have a queue with a limit send to little else.
    aim = [rng.choice([queue for queue in queues if queue != "dead"])] if queues and rng.random() < 0.5 else []
    routes += [ROUTE.get(queue, queue) for queue in aim for _ in range(2 * len(routes))]
    many = 8 if rng.random() < 0.04 else 1
    for name, most in (("p1", 25), ("p2", 15)):
        polite = options.get("calm", rng.random() < 0.5)
        clients.append({"name": name, "kind": "producer", "window": rng.randint(1, 6) * many, "polite": polite})
        actions += _publishes(rng, name, rng.randint(1, most) * many, routes)
    clients.append({"name": "q1", "kind": "architect"})
    actions += _orders(rng, rng.choice((0, 0, 2, 4, 8)))
    if "turned" in queues:
        actions += [_turn(rng) for _ in range(rng.randint(2, 10))]
    if "scrap" in queues:
        clients.append({"name": "v1", "kind": "vandal"})
        actions += [_vandalism(rng) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.2:
        clients.append({"name": "h1", "kind": "hermit", "exclusive": rng.random() < 0.5})
    return clients, actions


def _queues(rng: Random) -> list[str]:
    """In addition to the basic ones."""
    queues = [queue for queue in TAKEN if queue != "dead" and rng.random() < 0.25]
    return [*queues, "dead"] if any(queue in LETTERS for queue in queues) else queues


def _taker(rng: Random, name: str, queue: str) -> Fields:
    if queue == "fleeting" or rng.random() < 0.5:
        return a_consumer(rng, name, queue)
    if rng.random() < 0.5:
        return {"name": name, "kind": "reader", "queue": queue}
    return {**a_consumer(rng, name, queue), "kind": "getter"}


def _turn(rng: Random) -> Action:
    op = rng.choice(("bind", "unbind"))
    return Action(a_time(rng), "configure", {"who": "q1", "op": op, "name": "turned", "to": "turn"})


def _publishes(rng: Random, name: str, count: int, routes: Sequence[str]) -> list[Action]:
    # Most are at work for as long as there are faults, some do all at once.
    until = rng.choice((0.2, 2.0, DURATION, DURATION))
    return [a_publish(rng, name, a_time(rng, 0.0, until), rng.choice(routes)) for _ in range(count)]


def _orders(rng: Random, count: int) -> list[Action]:
    ops = ("declare queue", "declare queue", "delete queue", "declare exchange", "delete exchange")
    found = []
    for _ in range(count):
        if rng.random() < 0.4:
            op, name, to = rng.choice(("bind", "bind", "unbind")), f"own{rng.randrange(3)}", f"ex{rng.randrange(2)}"
            found.append(Action(a_time(rng), "configure", {"who": "q1", "op": op, "name": name, "to": to}))
            continue
        op = rng.choice(ops)
        name = f"own{rng.randrange(3)}" if op.endswith("queue") else f"ex{rng.randrange(2)}"
        found.append(Action(a_time(rng), "configure", {"who": "q1", "op": op, "name": name}))
    return found


def _vandalism(rng: Random) -> Action:
    return Action(a_time(rng), "scrap", {"who": "v1", "op": rng.choice(("purge", "purge", "replace", "delete"))})
