"""From a seed to a scenario: how many brokers, which clients and what they do, what goes wrong and when.

Clients: `plan_clients.py`, and those of special queues `plan_queues.py`; faults: `plan_faults.py`, `plan_apart.py`.

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
    policy      nothing is replicated but by an administrator's policy (`ha-mode: all`)
    once        clients declare what they need when they start, and not again when they connect again
    liveness    the faults that never end, and who has none (`liveness.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.simulator import liveness as core
from tests.simulator.drawing import DURATION, a_time
from tests.simulator.lateness import late
from tests.simulator.plan_apart import clones, disks, journals, listener, narrow, pacemaker, pages, reads
from tests.simulator.plan_clients import clients_of
from tests.simulator.plan_faults import faults_of
from tests.simulator.plan_queues import kinds, letters, locks, returns
from tests.simulator.scenario import FORGIVING, MODES, Action, Fields, Scenario
from tests.simulator.topology import BY_TIME

FOLLOWED = 0.2
"""Share of the scenarios with all kinds of faults in which a broker outside follows a queue."""
ONCE = 0.5
"""Share of the scenarios whose clients declare nothing when they connect again."""
PAGED = 0.3
"""Share of the scenarios in which messages leave the brokers' memory."""
SLICED = 0.4
"""Share of the scenarios whose connections are served by the reactor."""
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
    clients, actions = clients_of(rng, options)
    grows = "member" in faults or rng.random() < 0.1
    if grows or rng.random() < 0.3:
        options["spares"] = rng.randint(1, 2)
    spares: int = options.get("spares", 0)
    actions += faults_of(rng, mode, names, spares, [client["name"] for client in clients], faults)
    if grows:
        added = "abcdefgh"[size : size + spares]
        actions += [Action(a_time(rng, 0.5, 1.5), "member", {"action": "add", "who": name}) for name in added]
    options |= _knobs(seed, mode, faults)
    actions += _apart(seed, mode, names, options, clients, faults)
    if not BY_TIME.isdisjoint(options.get("queues", ())):
        actions = [action for action in actions if action.do != "clock-step"]
    followed = Random(f"follower {seed} {mode}")
    if not faults and followed.random() < FOLLOWED:
        clients.append({"name": "f1", "kind": "follower", "follows": followed.choice(("main", "work", "fan1", "out1"))})
    apart = Random(f"liveness {seed} {mode}")
    if liveness or (apart.random() < core.SHARE and mode not in ("gamble", "manager") and not faults):
        options["liveness"] = core.planned(apart, names)
        options["settings"]["isolation_timeout"] = apart.choice((0.5, 1.0))
        clients.append(dict(core.PROBE))
    actions += pacemaker(seed, mode, names, options, faults)
    actions += journals(seed, mode, names, options, [each["name"] for each in clients], faults)
    actions += disks(seed, mode, names, options, faults)
    if seconds := reads(Random(f"reads {seed} {mode}"), options, faults):
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
        options["reactor"] = found | _linger(Random(f"linger {seed} {mode}"))
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


def _linger(rng: Random) -> Fields:
    """Seconds for which an acknowledgement waits for a batch that comes anyway; half of the seeds do not linger."""
    return {"linger": rng.choice((0.001, 0.005, 0.1))} if rng.random() < 0.5 else {}


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


def _apart(
    seed: int, mode: str, names: str, options: Fields, clients: list[Fields], only: Sequence[str]
) -> list[Action]:
    """What is drawn apart, each kind by itself."""
    return [
        *narrow(seed, mode, names, options, only),
        *late(seed, mode, names, only),
        *clones(seed, mode, names, options, only),
        *listener(seed, mode, names, only),
        *letters(seed, mode, options, clients, only),
        *returns(seed, mode, options, clients, only),
        *locks(seed, mode, options, clients, only),
        *pages(seed, mode, names, options, only),
        *kinds(seed, mode, options, clients, only),
    ]
