"""From a seed to a scenario: how many brokers, which clients and what they do, what goes wrong and when.

Options of a scenario:

    managers    how many resource managers there are, each with its own mind (default 1)
    total       may all brokers die at once? (default no: the last that holds everything is spared)
    clocks      {broker: [rate, offset of the monotonic clock, offset of the wall clock]}, seconds
    queues      queues beside the basic ones
    calm        there are planned switch-overs only
    settings    of the nodes, where they differ from the usual
    spares      brokers that are no members, but may become some
    scores      the manager goes by the promotion scores alone, as Pacemaker does
    fencing     the registry knows that who has no power is gone
    unfenced    the manager keeps none of its rules (only in scenarios that show what then happens)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.simulator.coincidences import planned
from tests.simulator.faults import STEPS
from tests.simulator.scenario import FORGIVING, MODES, Action, Fields, Scenario

DURATION = 4.0
SECONDS = (0.02, 0.2, 0.6, 1.5, 2.5)
"""How long a cut or a pause lasts."""
MOMENTS = (
    "before a vote",
    "after a vote",
    "before a set",
    "after a set",
    "promote_request",
    "claim",
    "promoted",
    "catchup_begin",
    "catchup_end",
    "backup_connected",
    "backup_lost",
    "membership",
    "demote",
)
"""When a trap springs."""
SCORED = ("quorum", "registry", "manager")
"""Modes of `ha-safety` in which Pacemaker is used."""
SKEWS = {"quorum": 0.2, "registry": 0.2, "manager": 0.02, "availability": 0.02, "gamble": 0.02}
"""By how much a clock may be fast or slow: where the promise rests on no clock, by a lot."""


def plan(seed: int, mode: str = "", faults: Sequence[str] = ()) -> Scenario:
    """`mode` and the kinds of `faults` are the seed's choice by default."""
    rng = Random(f"plan {seed} {mode}")
    mode = mode or rng.choice(MODES)
    size = _size(rng, mode)
    names = "abcdefgh"[:size]
    options: Fields = {"managers": 2 if rng.random() < 0.2 else 1, "total": rng.random() < 0.05}
    if rng.random() < 0.5:
        options["clocks"] = {name: _clock(rng, SKEWS[mode]) for name in names}
    options["settings"] = _settings(rng, mode)
    if set(faults) == {"relocate"}:
        options["calm"] = True
    if mode in SCORED and Random(f"scores {seed} {mode}").random() < 0.4:
        options |= {"scores": True, "managers": 1}
    if mode == "registry" and Random(f"fencing {seed}").random() < 0.5:
        options["fencing"] = True
    clients, actions = _clients(rng, options)
    grows = "member" in faults or rng.random() < 0.1
    if grows or rng.random() < 0.3:
        options["spares"] = rng.randint(1, 2)
    spares: int = options.get("spares", 0)
    actions += _faults(rng, mode, names, spares, [client["name"] for client in clients], faults)
    if grows:
        added = "abcdefgh"[size : size + spares]
        actions += [Action(_time(rng, 0.5, 1.5), "member", {"action": "add", "who": name}) for name in added]
    actions.sort(key=lambda action: action.at)
    return Scenario(str(seed), mode, size, DURATION, options, tuple(clients), tuple(actions))


def _size(rng: Random, mode: str) -> int:
    sizes = (3, 3, 3, 3, 3, 4, 5) if mode == "quorum" else (2, 3, 3, 3, 3, 3, 4, 5)
    return rng.choice(sizes)


def _clock(rng: Random, skew: float) -> list[float]:
    return [round(rng.uniform(1 - skew, 1 + skew), 3), round(rng.uniform(0, 1000), 3), round(rng.uniform(0, 0.05), 3)]


def _settings(rng: Random, mode: str) -> Fields:
    """Times that make no difference to what is promised."""
    settings: Fields = {"isolation_timeout": rng.choice((0.0, 0.5, 1.0))}
    if mode in FORGIVING:
        settings["isolation_wait"] = rng.choice((0.05, 0.3, 1.0))
    return settings


def _time(rng: Random, low: float = 0.1, high: float = DURATION) -> float:
    return round(rng.uniform(low, high), 4)


# ---- clients -----------------------------------------------------------------------------------------------------


def _clients(rng: Random, options: Fields) -> tuple[list[Fields], list[Action]]:
    clients = [_consumer(rng, "c1", "main"), _consumer(rng, "c2", "fan2"), {"name": "w1", "kind": "worker"}]
    if rng.random() < 0.3:
        clients.append(_consumer(rng, "c3", "main"))
    routes = ["main"] * 5 + ["work"] * 3 + ["fan"] * 2
    for queue in ("prio", "brief", "short", "full", "scrap"):
        if rng.random() < 0.2:
            options.setdefault("queues", []).append(queue)
            routes += [queue] * 3
            if queue in ("prio", "full") or (queue == "short" and rng.random() < 0.5):
                clients.append(_consumer(rng, f"c{len(clients) + 2}", queue))
    actions: list[Action] = []
    for name, most in (("p1", 25), ("p2", 15)):
        polite = options.get("calm", rng.random() < 0.5)
        clients.append({"name": name, "kind": "producer", "window": rng.randint(1, 6), "polite": polite})
        actions += _publishes(rng, name, rng.randint(1, most), routes)
    clients.append({"name": "q1", "kind": "architect"})
    actions += _orders(rng, rng.choice((0, 0, 2, 4, 8)))
    if "scrap" in options.get("queues", ()):
        clients.append({"name": "v1", "kind": "vandal"})
        actions += [_vandalism(rng) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.2:
        clients.append({"name": "h1", "kind": "hermit", "exclusive": rng.random() < 0.5})
    return clients, actions


def _consumer(rng: Random, name: str, queue: str) -> Fields:
    prefetch, slowness = rng.choice((1, 2, 5, 20)), rng.choice((0.0, 0.005, 0.05))
    return {"name": name, "kind": "consumer", "queue": queue, "prefetch": prefetch, "slowness": slowness}


def _publishes(rng: Random, name: str, count: int, routes: Sequence[str]) -> list[Action]:
    # Most are at work for as long as there are faults, some do all at once.
    until = rng.choice((0.2, 2.0, DURATION, DURATION))
    return [_publish(rng, name, _time(rng, 0.0, until), rng.choice(routes)) for _ in range(count)]


def _publish(rng: Random, name: str, at: float, route: str) -> Action:
    size = rng.choice((0, 10, 10, 100, 1000)) if rng.random() < 0.95 else 9000
    fields: Fields = {"who": name, "to": route, "size": size}
    if route == "prio":
        fields["priority"] = rng.randint(0, 3)
    return Action(at, "publish", fields)


def _orders(rng: Random, count: int) -> list[Action]:
    ops = ("declare queue", "declare queue", "delete queue", "declare exchange", "delete exchange")
    found = []
    for _ in range(count):
        if rng.random() < 0.4:
            op, name, to = rng.choice(("bind", "bind", "unbind")), f"own{rng.randrange(3)}", f"ex{rng.randrange(2)}"
            found.append(Action(_time(rng), "configure", {"who": "q1", "op": op, "name": name, "to": to}))
            continue
        op = rng.choice(ops)
        name = f"own{rng.randrange(3)}" if op.endswith("queue") else f"ex{rng.randrange(2)}"
        found.append(Action(_time(rng), "configure", {"who": "q1", "op": op, "name": name}))
    return found


def _vandalism(rng: Random) -> Action:
    return Action(_time(rng), "scrap", {"who": "v1", "op": rng.choice(("purge", "purge", "replace", "delete"))})


# ---- faults ------------------------------------------------------------------------------------------------------


def _faults(
    rng: Random, mode: str, names: str, spares: int, clients: Sequence[str], only: Sequence[str]
) -> list[Action]:
    maker = FaultMaker(rng, mode, names, spares, clients)
    known = maker.kinds | planned(rng, names)
    chosen = [known[name] for name in only or rng.sample(list(maker.kinds), rng.randint(2, len(maker.kinds)))]
    count = rng.randint(1, 9) if rng.random() < 0.8 else rng.randint(10, 30)
    return [rng.choice(chosen)(_time(rng)) for _ in range(count)]


class FaultMaker:
    """One action of each kind."""

    def __init__(self, rng: Random, mode: str, names: str, spares: int, clients: Sequence[str]) -> None:
        self._rng = rng
        self._mode = mode
        self._names = names
        self._all = "abcdefgh"[: len(names) + spares]
        self._clients = clients
        self.kinds: dict[str, Callable[[float], Action]] = {
            "crash": self._crash,
            "another crash": self._crash,
            "cut": self._cut,
            "another cut": self._cut,
            "isolate": self._isolate,
            "split": self._split,
            "pause": self._pause,
            "promote": self._promote,
            "slow": self._slow,
            "linger": self._linger,
            "ambush": self._ambush,
            "duel": self._duel,
            "trap": self._trap,
            "slow disk": self._slow_disk,
            "relocate": self._relocate,
            "demote": lambda at: Action(at, "demote"),
            "member": self._member,
        }
        if mode == "registry":
            self.kinds |= {"registry": self._registry, "another registry": self._registry}

    def _who(self) -> str:
        names: list[str] = [*self._names, *["primary"] * (2 + len(self._names) // 2)]
        return self._rng.choice(names)

    def _pair(self) -> Fields:
        one, other = self._rng.sample(self._names, 2)
        return {"from": one, "to": other}

    def _crash(self, at: float) -> Action:
        rng = self._rng
        fields: Fields = {"who": self._who(), "power": rng.random() < 0.5, "for": rng.choice((0.05, 0.3, 1.0))}
        if self._mode != "gamble" and rng.random() < 0.15:
            fields["disk"] = "lost"
        return Action(at, "crash", fields)

    def _cut(self, at: float) -> Action:
        fields = {**self._pair(), "both": self._rng.random() < 0.6, "for": self._rng.choice(SECONDS)}
        return Action(at, "cut", fields)

    def _isolate(self, at: float) -> Action:
        fields = {"who": self._who(), "clients": self._rng.random() < 0.3, "for": self._rng.choice(SECONDS)}
        return Action(at, "isolate", fields)

    def _split(self, at: float) -> Action:
        rng = self._rng
        side = rng.sample(self._all, rng.randint(1, max(1, len(self._all) - 1)))
        return Action(at, "split", {"side": "".join(sorted(side)), "for": rng.choice(SECONDS)})

    def _pause(self, at: float) -> Action:
        return Action(at, "pause", {"who": self._who(), "for": self._rng.choice(SECONDS)})

    def _promote(self, at: float) -> Action:
        return Action(at, "promote", {"who": self._rng.choice(self._names)})

    def _slow(self, at: float) -> Action:
        delays = {"delay": self._rng.choice((0.02, 0.1, 0.3)), "for": self._rng.choice((0.3, 1.0))}
        return Action(at, "slow", {**self._pair(), **delays})

    def _linger(self, at: float) -> Action:
        """Connections hang, between brokers or between a client and a broker."""
        fields = self._pair()
        if self._rng.random() < 0.3:
            fields["from"] = self._rng.choice(self._clients)
            if self._rng.random() < 0.5:
                fields = {"from": fields["to"], "to": fields["from"]}
        return Action(at, "linger", {**fields, "for": self._rng.choice((0.3, 0.8, 1.5))})

    def _ambush(self, at: float) -> Action:
        rng = self._rng
        times = {"for": _time(rng, 0.2, 1.5), "promote": _time(rng, 0.0, 0.5), "cut": _time(rng, 0.0005, 0.25)}
        return Action(at, "ambush", {"who": rng.choice((*self._names, "backup")), **times})

    def _duel(self, at: float) -> Action:
        rng = self._rng
        times = {"for": rng.choice((0.6, 1.5, 2.5)), "promote": _time(rng, 0.2, 1.0), "delay": rng.choice((0.0, 0.03))}
        return Action(at, "duel", {"who": rng.choice(self._names), **times})

    def _slow_disk(self, at: float) -> Action:
        fields = {"who": self._who(), "delay": self._rng.choice((0.005, 0.03, 0.15)), "for": self._rng.choice(SECONDS)}
        return Action(at, "slow-disk", fields)

    def _relocate(self, at: float) -> Action:
        """A planned switch-over."""
        return Action(at, "relocate", {"to": self._rng.choice(("", *self._names))})

    def _member(self, at: float) -> Action:
        return Action(at, "member", {"action": self._rng.choice(("add", "remove")), "who": self._rng.choice(self._all)})

    def _registry(self, at: float) -> Action:
        rng = self._rng
        kind = rng.choice(("registry-down", "registry-slow", "registry-silent"))
        fields: Fields = {"for": rng.choice(SECONDS)}
        if kind == "registry-slow":
            fields["delay"] = rng.choice((0.02, 0.1, 0.3))
        return Action(at, kind, fields)

    def _trap(self, at: float) -> Action:
        rng = self._rng
        moment = rng.choice(MOMENTS)
        fields: dict[str, Any] = {"on": moment, "then": self._worst(moment)}
        if rng.random() < 0.4:
            fields["who"] = rng.choice(self._names)
        if fields["then"]["do"] != "die" and rng.random() < 0.5:
            fields["delay"] = round(rng.expovariate(1 / 0.02), 4)
        return Action(at, "trap", fields)

    def _worst(self, moment: str) -> Fields:
        rng = self._rng
        kind = rng.choice(("die", "die", "crash", "pause", "promote", "isolate", "cut", "slow disk"))
        if kind == "die":
            return {"do": "die", "step": rng.randint(1, STEPS)} if moment.startswith("before") else {"do": "die"}
        action = self.kinds[kind](0.0)
        fields: Fields = {"do": action.do, **action.fields}
        if kind in ("crash", "pause", "isolate", "slow disk") and rng.random() < 0.5:
            fields["who"] = "it"
        return fields
