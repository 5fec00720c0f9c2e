"""Queues of special kinds, and who uses them; each is drawn by itself, so that the rest of a seed stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.simulator.drawing import DURATION, a_consumer, a_publish, a_time
from tests.simulator.scenario import Action, Fields

LOCKED = 0.1
"""Share of the scenarios with all kinds of faults in which a queue has one consumer at a time, with fencing tokens."""
KIND = 0.08
"""Share of the scenarios with all kinds of faults in which there is a queue of each of the `KINDS`."""
RETURNED = 0.15
"""Share of the scenarios with all kinds of faults in which messages come back."""


def letters(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
    """Only where it is asked for: a primary steps down, stands still or dies while dead letters wait, of many messages
    that are rejected at once.  `torn`: it dies while they are on their way to its backups, piece by piece, so that a
    backup has any part of what was written."""
    rng = Random(f"letters {seed} {mode}")
    torn = "torn" in only
    if "letters" not in only and not torn:
        return []
    queue = rng.choice(("crowded", "picky", "picky"))
    options["queues"] = list(dict.fromkeys([*options.get("queues", ()), queue, "dead"]))
    options["turn"] = 0.01  # so that there is time in which they wait
    options["segments"] = {"size": 512, "sparse": 1, "sweep": 20}  # so that batches end between any two records
    if torn:
        options |= {"resets": 1.0, "search": {"split": 0.9, "tail": 0.8, "most": 0.01}}
    clients.append({"name": "e1", "kind": "hoarder", "queue": queue, "prefetch": 200, "slowness": 0.0})
    next(each for each in clients if each["name"] == "p1")["window"] = 200
    actions = []
    for at in sorted(a_time(rng, 0.3, 3.0) for _ in range(rng.choice((1, 1, 2)))):
        many = 12 if torn else rng.choice((12, 150))
        published = [a_publish(rng, "p1", round(at + rng.uniform(0, 0.02), 4), queue) for _ in range(many)]
        # What is larger than a segment gets one that it fills: whatever follows it may be in another batch.
        actions += [_sized(each, 600) for each in published] if torn else published
        actions.append(Action(round(at + 0.2, 4), "discard", {"who": "e1"}))
        end = round(at + 0.2 + rng.uniform(0, 0.015), 4)
        actions.append(_torn(rng, round(at + 0.2, 4)) if torn else _role_ends(rng, end))
    return actions


def _sized(publish: Action, size: int) -> Action:
    return Action(publish.at, publish.do, {**publish.fields, "size": size})


def _torn(rng: Random, at: float) -> Action:
    """The primary dies when the first of its letters have left, or a moment later."""
    crash: Fields = {"do": "crash", "who": "it", "power": False, "for": 0.3}
    return Action(at, "trap", {"on": "letter", "then": crash, "delay": round(rng.expovariate(1 / 0.005), 4)})


def _role_ends(rng: Random, at: float) -> Action:
    """A primary that stood still hears of its successor when what was under way has waited."""
    draw = rng.random()
    if draw < 0.5:
        return Action(at, "pause", {"who": "primary", "for": 1.5})
    crash: Fields = {"who": "primary", "power": rng.random() < 0.5, "for": 0.3}
    return Action(at, "crash", crash) if draw < 0.85 else Action(at, "demote")


def returns(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
    """In some scenarios there is a queue that counts how often messages come back, and most do.  Drawn apart, too."""
    rng = Random(f"returns {seed} {mode}")
    if "returns" not in only and (only or rng.random() > RETURNED):
        return []
    options["queues"] = list(dict.fromkeys([*options.get("queues", ()), "poison", "dead"]))
    for name in ("b1", "b2")[: rng.choice((1, 2))]:
        clients.append({**a_consumer(rng, name, "poison"), "rejects": False, "returns": rng.choice((0.4, 0.8))})
    return [a_publish(rng, "p1", a_time(rng), "poison") for _ in range(rng.choice((5, 20, 60)))]


def locks(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
    """In some scenarios several consumers want to be the one.  Drawn apart, too."""
    rng = Random(f"locks {seed} {mode}")
    if "locks" not in only and (only or rng.random() > LOCKED):
        return []
    options["queues"] = list(dict.fromkeys([*options.get("queues", ()), "lock"]))
    for name in ("k1", "k2", "k3")[: rng.choice((2, 3))]:
        holds = {"slowness": rng.choice((0.02, 0.1)), "prefetch": rng.choice((1, 1, 5))}
        clients.append({**a_consumer(rng, name, "lock"), **holds, "rejects": False, "returns": rng.choice((0.1, 0.4))})
    return [a_publish(rng, "p1", a_time(rng), "lock") for _ in range(rng.choice((1, 5, 20)))]


# ---- kinds ---------------------------------------------------------------------------------------------------------

Drawn = tuple[list[str], list[Fields], list[Action]]
"""Queues, who uses them, and what is done."""


def kinds(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
    """Each by itself, too."""
    actions: list[Action] = []
    for name, draw in KINDS.items():
        rng = Random(f"{name} {seed} {mode}")
        if name in only or (not only and rng.random() < KIND):
            queues, users, done = draw(rng)
            options["queues"] = list(dict.fromkeys([*options.get("queues", ()), *queues]))
            clients += users
            actions += done
    return actions


def _user(rng: Random, name: str, queue: str, **fields: object) -> Fields:
    kind = rng.choice(("consumer", "consumer", "getter"))
    return {**a_consumer(rng, name, queue), "kind": kind, "rejects": False, **fields}


def _many(rng: Random, queue: str, most: int, **fields: Sequence[object]) -> list[Action]:
    """Publishes of which each has one of these values for a field."""
    actions = [a_publish(rng, rng.choice(("p1", "p2")), a_time(rng), queue) for _ in range(rng.randint(5, most))]
    return [
        Action(each.at, each.do, {**each.fields, **{name: rng.choice(values) for name, values in fields.items()}})
        for each in actions
    ]


def _once(rng: Random) -> Drawn:
    """Messages are published again, also when they were confirmed; somebody takes them or not."""
    queue = rng.choice(("once", "once", "once-few", "once-brief"))
    published = _many(rng, queue, 40)
    again = [
        Action(round(each.at + rng.expovariate(2), 4), "publish", {**each.fields, "again": rng.choice((0, 0, 1, 3, 5))})
        for each in published
        if rng.random() < 0.6
    ]
    return [queue], [_user(rng, "o1", queue)] if rng.random() < 0.6 else [], [*published, *again]


def _delays(rng: Random) -> Drawn:
    """Messages wait for longer and shorter than a fail-over."""
    published = _many(rng, "due", 40, delay=(1, 50, 300, 1000, 2500))
    return ["due"], [_user(rng, "u1", "due")] if rng.random() < 0.7 else [], published


def _groups(rng: Random) -> Drawn:
    """Several consumers share few groups."""
    users = []
    for name in ("g1", "g2", "g3")[: rng.choice((2, 3))]:
        holds = {"slowness": rng.choice((0.01, 0.05)), "prefetch": rng.choice((1, 3, 10))}
        users.append({**_user(rng, name, "grouped", returns=rng.choice((0.0, 0.1, 0.3))), "kind": "consumer", **holds})
    return ["grouped"], users, _many(rng, "grouped", 80, key=("red", "green", "blue"))


def _values(rng: Random) -> Drawn:
    """Few values change often."""
    users = [_user(rng, "n1", "values", returns=0.3)] if rng.random() < 0.5 else []
    return ["values"], users, _many(rng, "values", 60, key=("red", "green", "blue"))


def _kept_letters(rng: Random) -> Drawn:
    """Dead letters find a full queue, or no queue at times."""
    if rng.random() < 0.5:
        users = [_user(rng, "s1", "safely", rejects=True, kind="consumer"), _user(rng, "s2", "tight")]
        return ["safely", "tight"], users, _many(rng, "safely", 40)
    turns = [(a_time(rng), rng.choice(("bind", "unbind"))) for _ in range(rng.randint(1, 6))]
    orders = [
        Action(at, "configure", {"who": "q1", "op": op, "name": "turned", "to": "turn"})
        for at, op in [*turns, (DURATION + 1, "bind"), (DURATION + 3, "bind")]  # an answer may be lost
    ]
    return ["patient", "turned"], [_user(rng, "s2", "turned")], [*_many(rng, "patient", 40), *orders]


def _homes(rng: Random) -> Drawn:
    """A queue of its own waits for a client that dies now and then, or is exclusive and does not."""
    timed: Fields = {"name": "h2", "kind": "hermit", "exclusive": False, "timeout": 1}
    lonely: Fields = {"name": "h3", "kind": "hermit", "exclusive": True}
    return [], [timed, lonely], [a_publish(rng, "p1", a_time(rng), "fan") for _ in range(rng.randint(3, 20))]


KINDS: Mapping[str, Callable[[Random], Drawn]] = {
    "once": _once,
    "delays": _delays,
    "groups": _groups,
    "values": _values,
    "kept letters": _kept_letters,
    "homes": _homes,
}
