"""Faults that are drawn by themselves, so that the others of a seed stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.simulator import journal_faults
from tests.simulator.drawing import DURATION, SECONDS, a_time
from tests.simulator.plan_faults import REJECTING
from tests.simulator.scenario import FORGIVING, Action, Fields

RESTARTS = 0.35
"""Seconds for which a listener is closed at most, in the other modes: less than `dead_after` (`ha.model.refusals`)."""
ROTTEN = 0.5
"""Share of these, with all kinds of faults, in which some of them cannot be read back."""


def narrow(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some scenarios a path between brokers has little bandwidth, and little may wait for it; drawn apart, too."""
    rng = Random(f"narrow {seed} {mode}")
    if "narrow" not in only and (only or rng.random() > 0.25):
        return []
    high = rng.choice((300, 1000, 4000))
    options["settings"] |= {"backlog_high": high, "backlog_low": high // 4}
    options["settings"]["slow_backup_timeout"] = rng.choice((0.3, 0.3, 0.6, 0.0))
    return [_narrow_path(rng, names, a_time(rng)) for _ in range(rng.randint(1, 4))]


def _narrow_path(rng: Random, names: str, at: float) -> Action:
    fields: Fields = {"from": rng.choice([*names, "primary", "primary", "primary"]), "both": rng.random() < 0.3}
    if rng.random() < 0.7:
        fields["to"] = rng.choice([name for name in names if name != fields["from"]])
    fields |= {"octets": int(10 ** rng.uniform(2.6, 3.8)), "for": rng.choice((0.6, 1.5, 2.5))}
    return Action(at, "narrow", fields)


def clones(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some scenarios somebody copies a data directory; drawn apart, so that the others stay what they are."""
    rng = Random(f"clone {seed} {mode}")
    if "clone" not in only and (only or rng.random() > 0.1):
        return []
    spares: int = options.get("spares", 0)
    options["spares"] = spares + 1
    who = "abcdefgh"[len(names) + spares]
    fields = {"who": who, "of": rng.choice([*names, "primary"]), "listed": rng.random() < 0.4}
    return [Action(a_time(rng, 0.3, 2.0), "clone", fields)]


def listener(seed: int, mode: str, names: str, only: Sequence[str]) -> list[Action]:
    """In some scenarios of the modes that rest on refusals a listener restarts, or a firewall refuses for a moment, and
    the manager may promote another broker meanwhile; drawn apart, too."""
    rng = Random(f"listener {seed} {mode}")
    if mode in REJECTING or ("listener" not in only and (only or rng.random() > 0.3)):
        return []
    at, seconds = a_time(rng, 0.3, 3.0), rng.choice((0.05, 0.2, RESTARTS))
    fields = {"who": rng.choice([*names, "primary", "primary"]), "for": seconds, "broken": rng.random() < 0.8}
    promotions = [a_time(rng, at, at + seconds) for _ in range(rng.choice((0, 1, 2)))]
    return [
        Action(at, "reject", fields),
        *(Action(time, "promote", {"who": rng.choice(names)}) for time in promotions),
    ]


def pages(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
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
    return [Action(a_time(rng), "page-rots", each) for each in fields]


def journals(
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


def _blackout(rng: Random, names: str) -> Action:
    spread = rng.choice((0.0, 0.005, 0.1))
    ends = {name: [round(rng.uniform(0, spread), 4), round(rng.choice((0.1, 0.3, 1.0)), 4)] for name in names}
    fields = {"ends": ends, "power": rng.random() < 0.7}
    if rng.random() < 0.5:
        return Action(a_time(rng), "blackout", fields)
    # While one of them takes over what the others hold, or counts since a moment ago.
    delay = rng.choice((0.0, 0.002, 0.01, 0.05))
    trap = {"on": rng.choice(("catchup_end", "membership")), "then": {"do": "blackout", **fields}, "delay": delay}
    return Action(a_time(rng), "trap", trap)


def _late(rng: Random, producers: Sequence[str], before: float) -> Action:
    """A message that may be confirmed, and not be on every disk."""
    where = {"who": rng.choice(producers), "to": rng.choice(("main", "fan")), "size": 10}
    return Action(round(max(0.0, before - rng.uniform(0, 0.1)), 4), "publish", where)


def reads(rng: Random, options: Fields, only: Sequence[str]) -> float:
    """In some of those with journals it takes long to read them."""
    if "journal" not in options or ("reads" not in only and (only or rng.random() > 0.3)):
        return 0.0
    return rng.choice((0.05, 0.3, 1.0))


def disks(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
    """In some of those with journals their disks have faults of their own.  Drawn apart, too."""
    rng = Random(f"disks {seed} {mode}")
    if "journal" not in options or ("disks" not in only and (only or rng.random() > 0.3)):
        return []
    return [journal_faults.planned(rng, mode, names, DURATION) for _ in range(rng.choice((1, 1, 2, 4)))]


def pacemaker(seed: int, mode: str, names: str, options: Fields, only: Sequence[str]) -> list[Action]:
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
    return [_pacemaker_fault(rng, names, a_time(rng)) for _ in range(rng.choice((0, 1, 2, 4)))]


def _pacemaker_fault(rng: Random, names: str, at: float) -> Action:
    if rng.random() < 0.2:
        return Action(at, "daemon-down", {"who": rng.choice([*names, "primary"]), "for": rng.choice(SECONDS)})
    if rng.random() < 0.6:
        side = rng.sample(names, rng.randint(1, max(1, len(names) // 2)))
        return Action(at, "ring-cut", {"side": "".join(sorted(side)), "for": rng.choice(SECONDS)})
    return Action(at, "stack-stop", {"who": rng.choice([*names, "primary"]), "for": rng.choice(SECONDS)})
