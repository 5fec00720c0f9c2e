"""From a seed to a scenario: how many brokers, which clients and what they do, what goes wrong and when.

Options of a scenario:

    managers    how many resource managers there are, each with its own mind (default 1)
    total       may all brokers die at once? (default no: the last that holds everything is spared)
    clocks      {broker: [rate, offset of the monotonic clock, offset of the wall clock]}, seconds
    queues      queues in addition to the basic ones
    calm        there are planned switch-overs only
    settings    of the nodes, where they differ from the usual
    spares      brokers that are no members, but may become some
    scores      the manager goes by the promotion scores alone, as Pacemaker does
    fencing     the registry knows that who has no power is gone
    resets      share of a dying process's connections that are reset, and lose what is under way
    asker       brokers ask each other over connections, through the real `Asker`
    registry file    the registry is the real `FileRegistry`, on a disk that the brokers share
    pacemaker   the registry is the real one of `ha-registry=pacemaker`, in a cluster of this kind (`pacemaker.py`)
    turn        seconds that a turn of a broker's loop may last
    segments    of the log in memory: their size, and when and how they are compacted (`process.py`)
    search      how events are ordered: tail, most, split (`network.py`), priorities (`process.py`), timers
    reactor     what a turn reads of the connections, and what their sockets take (`reactor.py`)
    unfenced    the manager keeps none of its rules (only in scenarios that show what then happens)
    journal     brokers have journals: octets of a segment, seconds of a commit (`journal.py`)
    reads       seconds that a started broker reads its journal, at most: it answers, and takes part in nothing
    once        clients declare what they need when they start, and not again when they connect again
    liveness    the faults that never end, and who has none (`liveness.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.simulator import journal_faults
from tests.simulator import liveness as core
from tests.simulator.coincidences import planned
from tests.simulator.disk import FAULTS as DISK_FAULTS
from tests.simulator.faults import STEPS
from tests.simulator.lateness import late
from tests.simulator.registry import FILE_FAULTS
from tests.simulator.scenario import FORGIVING, MODES, Action, Fields, Scenario
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
DURATION = 4.0
FOLLOWED = 0.2
"""Share of the scenarios with all kinds of faults in which a broker outside follows a queue."""
ONCE = 0.5
"""Share of the scenarios whose clients declare nothing when they connect again."""
PAGED = 0.3
"""Share of the scenarios in which messages leave the brokers' memory."""
ROTTEN = 0.5
"""Share of these, with all kinds of faults, in which some of them cannot be read back."""
LOCKED = 0.1
"""Share of the scenarios with all kinds of faults in which a queue has one consumer at a time, with fencing tokens."""
RETURNED = 0.15
"""Share of the scenarios with all kinds of faults in which messages come back."""
SLICED = 0.4
"""Share of the scenarios whose connections are served by the reactor."""
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
REJECTING = ("quorum", "registry")
"""Modes whose promise does not rest on it that a broker whose host refuses a connection is gone."""
RESTARTS = 0.35
"""Seconds for which a listener is closed at most, in the other modes: less than `dead_after` (`ha.model.refusals`)."""
APART = (
    "clone",
    "narrow",
    "pacemaker",
    "blackout",
    "disks",
    "listener",
    "late",
    "letters",
    "torn",
    "returns",
    "locks",
    "reads",
    "pages",
)
"""Kinds of faults that are drawn by themselves, so that the others of a seed stay what they are."""
SCORED = ("quorum", "registry", "manager")
"""Modes of `ha-safety` in which Pacemaker is used."""
SKEWS = {"quorum": 0.2, "registry": 0.2, "manager": 0.02, "availability": 0.02, "gamble": 0.02}
"""By how much a clock may be fast or slow: where the promise rests on no clock, by a lot."""


def plan(seed: int, mode: str = "", faults: Sequence[str] = (), liveness: bool = False) -> Scenario:
    """`mode` and the kinds of `faults` are the seed's choice by default, and whether there is a core that must live."""
    rng = Random(f"plan {seed} {mode}")
    mode = mode or rng.choice(MODES)
    size = _size(rng, mode)
    names = "abcdefgh"[:size]
    options: Fields = {"managers": 2 if rng.random() < 0.2 else 1, "total": rng.random() < 0.05}
    if rng.random() < 0.5:
        options["clocks"] = {name: _clock(rng, SKEWS[mode]) for name in names}
    options["settings"] = _settings(rng, mode)
    options["resets"] = rng.choice((0.0, 0.3, 1.0))
    if set(faults) == {"relocate"}:
        options["calm"] = True
    if mode in SCORED and Random(f"scores {seed} {mode}").random() < 0.4:
        options |= {"scores": True, "managers": 1}
    if mode == "registry" and Random(f"fencing {seed}").random() < 0.5:
        options["fencing"] = True
    if found := _search(Random(f"search {seed} {mode}"), mode):
        options["search"] = found
        options["settings"]["slice_size"] = Random(f"slices {seed}").choice((256, 1024, 4096, 65536))
    clients, actions = _clients(rng, options)
    grows = "member" in faults or rng.random() < 0.1
    if grows or rng.random() < 0.3:
        options["spares"] = rng.randint(1, 2)
    spares: int = options.get("spares", 0)
    actions += _faults(rng, mode, names, spares, [client["name"] for client in clients], faults)
    if "brief" in options.get("queues", ()):
        # Messages live by the wall clock.
        actions = [action for action in actions if action.do != "clock-step"]
    if grows:
        added = "abcdefgh"[size : size + spares]
        actions += [Action(_time(rng, 0.5, 1.5), "member", {"action": "add", "who": name}) for name in added]
    options |= _knobs(seed, mode, faults)
    actions += _apart(seed, mode, names, options, clients, faults)
    followed = Random(f"follower {seed} {mode}")
    if not faults and followed.random() < FOLLOWED:
        clients.append({"name": "f1", "kind": "follower", "follows": followed.choice(("main", "work", "fan1", "out1"))})
    apart = Random(f"liveness {seed} {mode}")
    if liveness or (apart.random() < core.SHARE and mode not in ("gamble", "manager") and not faults):
        options["liveness"] = core.planned(apart, names)
        options["settings"]["isolation_timeout"] = apart.choice((0.5, 1.0))
        clients.append(dict(core.PROBE))
    actions += _pacemaker(seed, mode, names, options, faults)
    actions += _journals(seed, mode, names, options, [each["name"] for each in clients], faults)
    actions += _disks(seed, mode, names, options, faults)
    if seconds := _reads(Random(f"reads {seed} {mode}"), options, faults):
        options["reads"] = seconds
    actions.sort(key=lambda action: action.at)
    return Scenario(str(seed), mode, size, DURATION, options, tuple(clients), tuple(actions))


def _knobs(seed: int, mode: str, faults: Sequence[str]) -> Fields:
    """Which of `knobs.py` are turned; each is drawn by itself, so that the others of a seed stay what they are."""
    options: Fields = {}
    if turn := Random(f"turn {seed}").choice((0.0, 0.0, 0.002, 0.01)):
        options["turn"] = turn
    if mode in FORGIVING and Random(f"asker {seed} {mode}").random() < 0.5:
        options["asker"] = True
    if mode == "registry" and Random(f"file {seed}").random() < 0.5:
        options["registry file"] = True
    if found := _segments(Random(f"segments {seed}")):
        options["segments"] = found
    if units := Random(f"looks {seed}").choice((0, 0, 0, 4, 9)):
        options["looks"] = units
    paged = Random(f"pages {seed}")
    if paged.random() < PAGED:
        options["pages"] = paged.choice((0.0, 0.0003, 0.05))
    if not faults and (found := _reactor(Random(f"reactor {seed} {mode}"), mode)):
        options["reactor"] = found
    if Random(f"once {seed} {mode}").random() < ONCE:
        options["once"] = True
    return options


def _search(rng: Random, mode: str) -> Fields:
    """Half of the seeds have an order of their own: what is legal, and hardly ever happens."""
    if rng.random() < 0.5:
        return {}
    found: Fields = {"split": rng.choice((0.05, 0.5, 0.9)), "priorities": rng.random() < 0.5}
    if rng.random() < 0.6:
        # Where the manager's promise is that brokers hear each other in time, delays stay far below that time.
        found |= {"tail": rng.choice((0.8, 1.2, 2.0)), "most": 0.5 if mode in FORGIVING else 0.02}
    if rng.random() < 0.3:
        found["timers"] = rng.choice((0.001, 0.005))
    return found


def _segments(rng: Random) -> Fields:
    """Two of three seeds have segments so small that there is something to compact, in several ticks."""
    if rng.random() > 0.67:
        return {}
    return {"size": rng.choice((512, 1024, 2048)), "sparse": 1, "sweep": rng.choice((1, 4, 20))}


def _journals(
    seed: int, mode: str, names: str, options: Fields, clients: Sequence[str], only: Sequence[str]
) -> list[Action]:
    """Half of the seeds have journals, on disks of any speed, with segments that are full soon or not; and half of
    these lose all brokers at once, or nearly so, while something is published.  Drawn apart, too."""
    rng = Random(f"journal {seed} {mode}")
    if "blackout" not in only and (mode == "gamble" or rng.random() < 0.5):
        return []
    options["journal"] = {"segment": rng.choice((4096, 16384, 65536)), "seconds": rng.choice((0.0, 0.001, 0.05, 0.05))}
    if "blackout" not in only and (only or rng.random() < 0.5):
        return []
    blackouts = [_blackout(rng, names) for _ in range(rng.choice((1, 1, 2, 4)))]
    producers = [name for name in clients if name.startswith("p")]
    return blackouts + [_late(rng, producers, each.at) for each in blackouts for _ in range(rng.choice((0, 5, 10)))]


def _reads(rng: Random, options: Fields, only: Sequence[str]) -> float:
    """In some of those with journals it takes long to read them."""
    if "journal" not in options or ("reads" not in only and (only or rng.random() > 0.3)):
        return 0.0
    return rng.choice((0.05, 0.3, 1.0))


def _disks(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some of those with journals their disks have faults of their own.  Drawn apart, too."""
    rng = Random(f"disks {seed} {mode}")
    if "journal" not in options or ("disks" not in only and (only or rng.random() > 0.3)):
        return []
    return [journal_faults.planned(rng, mode, names, DURATION) for _ in range(rng.choice((1, 1, 2, 4)))]


def _late(rng: Random, producers: Sequence[str], before: float) -> Action:
    """A message that may be confirmed, and not be on every disk."""
    where = {"who": rng.choice(producers), "to": rng.choice(("main", "fan")), "size": 10}
    return Action(round(max(0.0, before - rng.uniform(0, 0.1)), 4), "publish", where)


def _blackout(rng: Random, names: str) -> Action:
    spread = rng.choice((0.0, 0.005, 0.1))
    ends = {name: [round(rng.uniform(0, spread), 4), round(rng.choice((0.1, 0.3, 1.0)), 4)] for name in names}
    fields = {"ends": ends, "power": rng.random() < 0.7}
    if rng.random() < 0.5:
        return Action(_time(rng), "blackout", fields)
    # While one of them takes over what the others hold, or counts since a moment ago.
    delay = rng.choice((0.0, 0.002, 0.01, 0.05))
    trap = {"on": rng.choice(("catchup_end", "membership")), "then": {"do": "blackout", **fields}, "delay": delay}
    return Action(_time(rng), "trap", trap)


def _reactor(rng: Random, mode: str) -> Fields:
    """Some seeds read and write as the reactor does, with limits that are reached; the others as with TLS."""
    if rng.random() > SLICED:
        return {}
    return {
        "octets": rng.choice((61, 509, 4093)),
        "reads": rng.choice((1, 2, 4)),
        "events": rng.choice((1, 2, 4, 64)),
        "rounds": rng.choice((1, 2, 8)),
        "partly": rng.choice((0.0, 0.1, 0.5)),
        "seconds": rng.choice((0.0, 0.0005, 0.005)) if mode in FORGIVING else rng.choice((0.0, 0.0005)),
    }


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
    if rng.random() < 0.7:
        clients += [_consumer(rng, "c11", "out1"), _consumer(rng, "c12", "out2")]
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
        return _consumer(rng, name, queue)
    if rng.random() < 0.5:
        return {"name": name, "kind": "reader", "queue": queue}
    return {**_consumer(rng, name, queue), "kind": "getter"}


def _turn(rng: Random) -> Action:
    op = rng.choice(("bind", "unbind"))
    return Action(_time(rng), "configure", {"who": "q1", "op": op, "name": "turned", "to": "turn"})


def _consumer(rng: Random, name: str, queue: str) -> Fields:
    prefetch, slowness = rng.choice((1, 2, 5, 20)), rng.choice((0.0, 0.005, 0.05))
    fields = {"name": name, "kind": "consumer", "queue": queue, "prefetch": prefetch, "slowness": slowness}
    return {**fields, "rejects": True} if queue in LETTERS or rng.random() < 0.1 else fields


def _publishes(rng: Random, name: str, count: int, routes: Sequence[str]) -> list[Action]:
    # Most are at work for as long as there are faults, some do all at once.
    until = rng.choice((0.2, 2.0, DURATION, DURATION))
    return [_publish(rng, name, _time(rng, 0.0, until), rng.choice(routes)) for _ in range(count)]


def _publish(rng: Random, name: str, at: float, route: str) -> Action:
    size = rng.choice((0, 10, 10, 100, 1000)) if rng.random() < 0.95 else 9000
    fields: Fields = {"who": name, "to": route, "size": size}
    if rng.random() < 0.2:
        fields["mandatory"] = True
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
    only = [name for name in only if name not in APART]
    known = maker.kinds | planned(rng, names)
    chosen = [known[name] for name in only or rng.sample(list(maker.kinds), rng.randint(2, len(maker.kinds)))]
    count = rng.randint(1, 9) if rng.random() < 0.8 else rng.randint(10, 30)
    return [rng.choice(chosen)(_time(rng)) for _ in range(count)]


def _apart(
    seed: int, mode: str, names: str, options: Fields, clients: list[Fields], only: Sequence[str]
) -> list[Action]:
    """What is drawn apart, each kind by itself."""
    return [
        *_narrow(seed, mode, names, options, only),
        *late(seed, mode, names, only),
        *_clones(seed, mode, names, options, only),
        *_listener(seed, mode, names, only),
        *_letters(seed, mode, options, clients, only),
        *_returns(seed, mode, options, clients, only),
        *_locks(seed, mode, options, clients, only),
        *_pages(seed, mode, names, options, only),
    ]


def _narrow(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some scenarios a path between brokers has little bandwidth, and little may wait for it; drawn apart, too."""
    rng = Random(f"narrow {seed} {mode}")
    if "narrow" not in only and (only or rng.random() > 0.25):
        return []
    high = rng.choice((300, 1000, 4000))
    options["settings"] |= {"backlog_high": high, "backlog_low": high // 4}
    options["settings"]["slow_backup_timeout"] = rng.choice((0.3, 0.3, 0.6, 0.0))
    return [_narrow_path(rng, names, _time(rng)) for _ in range(rng.randint(1, 4))]


def _narrow_path(rng: Random, names: str, at: float) -> Action:
    fields: Fields = {"from": rng.choice([*names, "primary", "primary", "primary"]), "both": rng.random() < 0.3}
    if rng.random() < 0.7:
        fields["to"] = rng.choice([name for name in names if name != fields["from"]])
    fields |= {"octets": int(10 ** rng.uniform(2.6, 3.8)), "for": rng.choice((0.6, 1.5, 2.5))}
    return Action(at, "narrow", fields)


def _clones(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some scenarios somebody copies a data directory; drawn apart, so that the others stay what they are."""
    rng = Random(f"clone {seed} {mode}")
    if "clone" not in only and (only or rng.random() > 0.1):
        return []
    spares: int = options.get("spares", 0)
    options["spares"] = spares + 1
    who = "abcdefgh"[len(names) + spares]
    fields = {"who": who, "of": rng.choice([*names, "primary"]), "listed": rng.random() < 0.4}
    return [Action(_time(rng, 0.3, 2.0), "clone", fields)]


def _listener(seed: int, mode: str, names: str, only: Sequence[str]) -> list[Action]:
    """In some scenarios of the modes that rest on refusals a listener restarts, or a firewall refuses for a moment, and
    the manager may promote another broker meanwhile; drawn apart, too."""
    rng = Random(f"listener {seed} {mode}")
    if mode in REJECTING or ("listener" not in only and (only or rng.random() > 0.3)):
        return []
    at, seconds = _time(rng, 0.3, 3.0), rng.choice((0.05, 0.2, RESTARTS))
    fields = {"who": rng.choice([*names, "primary", "primary"]), "for": seconds, "broken": rng.random() < 0.8}
    promotions = [_time(rng, at, at + seconds) for _ in range(rng.choice((0, 1, 2)))]
    return [
        Action(at, "reject", fields),
        *(Action(time, "promote", {"who": rng.choice(names)}) for time in promotions),
    ]


def _letters(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
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
    for at in sorted(_time(rng, 0.3, 3.0) for _ in range(rng.choice((1, 1, 2)))):
        many = 12 if torn else rng.choice((12, 150))
        published = [_publish(rng, "p1", round(at + rng.uniform(0, 0.02), 4), queue) for _ in range(many)]
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


def _returns(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
    """In some scenarios there is a queue that counts how often messages come back, and most do.  Drawn apart, too."""
    rng = Random(f"returns {seed} {mode}")
    if "returns" not in only and (only or rng.random() > RETURNED):
        return []
    options["queues"] = list(dict.fromkeys([*options.get("queues", ()), "poison", "dead"]))
    for name in ("b1", "b2")[: rng.choice((1, 2))]:
        clients.append({**_consumer(rng, name, "poison"), "rejects": False, "returns": rng.choice((0.4, 0.8))})
    return [_publish(rng, "p1", _time(rng), "poison") for _ in range(rng.choice((5, 20, 60)))]


def _locks(seed: int, mode: str, options: Fields, clients: list[Fields], only: Sequence[str]) -> list[Action]:
    """In some scenarios several consumers want to be the one.  Drawn apart, too."""
    rng = Random(f"locks {seed} {mode}")
    if "locks" not in only and (only or rng.random() > LOCKED):
        return []
    options["queues"] = list(dict.fromkeys([*options.get("queues", ()), "lock"]))
    for name in ("k1", "k2", "k3")[: rng.choice((2, 3))]:
        holds = {"slowness": rng.choice((0.02, 0.1)), "prefetch": rng.choice((1, 1, 5))}
        clients.append({**_consumer(rng, name, "lock"), **holds, "rejects": False, "returns": rng.choice((0.1, 0.4))})
    return [_publish(rng, "p1", _time(rng), "lock") for _ in range(rng.choice((1, 5, 20)))]


def _pages(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some of the scenarios in which messages leave memory they do not come back as they were.  (With `availability`
    the manager answers for whom it promotes, and does not know that a page is rotten.)  Drawn apart, too."""
    rng = Random(f"rotten pages {seed} {mode}")
    asked = "pages" in only
    if mode not in (*FORGIVING, "manager") or not (
        asked or (not only and "pages" in options and rng.random() < ROTTEN)
    ):
        return []
    if asked:
        options["pages"] = options.get("pages", 0.0003)
        options.setdefault("segments", {"size": 512, "sparse": 1, "sweep": 20})
    wherever = [*names, "primary", "primary", "primary"]
    fields = ({"who": rng.choice(wherever), "pages": rng.choice((1, 1, 3))} for _ in range(rng.choice((1, 2, 5))))
    return [Action(_time(rng), "page-rots", each) for each in fields]


def _role_ends(rng: Random, at: float) -> Action:
    """A primary that stood still hears of its successor when what was under way has waited."""
    draw = rng.random()
    if draw < 0.5:
        return Action(at, "pause", {"who": "primary", "for": 1.5})
    crash: Fields = {"who": "primary", "power": rng.random() < 0.5, "for": 0.3}
    return Action(at, "crash", crash) if draw < 0.85 else Action(at, "demote")


def _pacemaker(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some scenarios the registry is Pacemaker's; drawn apart, too.  A core and spare nodes have no majority."""
    rng = Random(f"pacemaker {seed}")
    excluded = mode != "registry" or ("liveness" in options and "spares" in options)
    if excluded or ("pacemaker" not in only and rng.random() > 0.4):
        return []
    options.pop("registry file", None)
    times = {"token": rng.choice((0.05, 0.15, 0.4)), "lag": rng.choice((0.02, 0.1)), "device": rng.choice((0.05, 0.5))}
    options["pacemaker"] = {**times, "apart": rng.random() < 0.25, "times": rng.random() < 0.5}
    options["settings"]["registry_timeout"] = rng.choice((0.3, 0.6, 1.0))
    if only and "pacemaker" not in only:
        return []
    return [_pacemaker_fault(rng, names, _time(rng)) for _ in range(rng.choice((0, 1, 2, 4)))]


def _pacemaker_fault(rng: Random, names: str, at: float) -> Action:
    if rng.random() < 0.2:
        return Action(at, "daemon-down", {"who": rng.choice([*names, "primary"]), "for": rng.choice(SECONDS)})
    if rng.random() < 0.6:
        side = rng.sample(names, rng.randint(1, max(1, len(names) // 2)))
        return Action(at, "ring-cut", {"side": "".join(sorted(side)), "for": rng.choice(SECONDS)})
    return Action(at, "stack-stop", {"who": rng.choice([*names, "primary"]), "for": rng.choice(SECONDS)})


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
            "reset": self._reset,
            "repeat": self._repeat,
            "delay": self._delay,
            "clock step": self._clock_step,
            "ambush": self._ambush,
            "duel": self._duel,
            "trap": self._trap,
            "slow disk": self._slow_disk,
            "disk error": self._disk_error,
            "relocate": self._relocate,
            "demote": lambda at: Action(at, "demote"),
            "member": self._member,
        }
        if mode in REJECTING:
            self.kinds["reject"] = self._reject
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

    def _reset(self, at: float) -> Action:
        return Action(at, "reset", {**self._pair(), "both": self._rng.random() < 0.5})

    def _reject(self, at: float) -> Action:
        rng = self._rng
        fields: Fields = {"who": rng.choice(self._names), "for": rng.choice(SECONDS)}
        if rng.random() < 0.4:
            fields["from"] = rng.choice([name for name in self._names if name != fields["who"]])
        return Action(at, "reject", fields)

    def _repeat(self, at: float) -> Action:
        delays = {"delay": self._rng.choice((0.01, 0.15, 1.0)), "for": self._rng.choice(SECONDS)}
        return Action(at, "repeat", {**self._pair(), **delays})

    def _delay(self, at: float) -> Action:
        delays = {"delay": self._rng.choice((0.1, 0.5, 2.0)), "for": self._rng.choice(SECONDS[:4])}
        return Action(at, "delay", {**self._pair(), **delays})

    def _clock_step(self, at: float) -> Action:
        by = self._rng.choice((-1, 1)) * self._rng.choice((0.5, 60.0, 3600.0, 1e7))
        return Action(at, "clock-step", {"who": self._who(), "by": by})

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

    def _disk_error(self, at: float) -> Action:
        fields = {"who": self._who(), "kind": self._rng.choice(DISK_FAULTS), "for": self._rng.choice(SECONDS)}
        return Action(at, "disk-error", fields)

    def _relocate(self, at: float) -> Action:
        """A planned switch-over."""
        return Action(at, "relocate", {"to": self._rng.choice(("", *self._names))})

    def _member(self, at: float) -> Action:
        return Action(at, "member", {"action": self._rng.choice(("add", "remove")), "who": self._rng.choice(self._all)})

    def _registry(self, at: float) -> Action:
        rng = self._rng
        kind = rng.choice(("registry-down", "registry-slow", "registry-silent", "registry-disk"))
        fields: Fields = {"for": rng.choice(SECONDS)}
        if kind == "registry-slow":
            fields["delay"] = rng.choice((0.02, 0.1, 0.3))
        if kind == "registry-disk":
            fields["kind"] = rng.choice(FILE_FAULTS)
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
        kind = rng.choice(("die", "die", "crash", "pause", "promote", "isolate", "cut", "slow disk", "disk error"))
        if kind == "die":
            return {"do": "die", "step": rng.randint(1, STEPS)} if moment.startswith("before") else {"do": "die"}
        action = self.kinds[kind](0.0)
        fields: Fields = {"do": action.do, **action.fields}
        if kind in ("crash", "pause", "isolate", "slow disk", "disk error") and rng.random() < 0.5:
            fields["who"] = "it"
        return fields
