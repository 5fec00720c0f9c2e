"""`python -m tests.pacemaker.figures`: how long clients are without service, in the lab, against targets.      Shell.

Each event happens several times to a cluster with clients at work through the address list and the virtual address;
the median of the repetitions counts.  The toy agent's figures are those of `tests.pacemaker.lab.toy_figures`.
Exit codes: 0 nothing was lost; 1 something was; 2 there can be no lab here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.pacemaker.cluster import Cluster, Setup, boot
from tests.pacemaker.disasters import DISASTERS
from tests.pacemaker.judge import Effect, Report
from tests.pacemaker.lab import toy_figures
from tests.pacemaker.lab.files import toy_cib
from tests.pacemaker.lab.lab import Lab
from tests.pacemaker.lab.requirements import problem
from tests.pacemaker.phases import medians
from tests.pacemaker.trial import Trial

REPETITIONS: Final = 5
RATE: Final = 200.0
"""Messages a second of a group of clients: each producer has a message confirmed every 20 to 33 ms."""
EVENTS: Final = {
    "kill9": ("broker process kill -9", 0.7),
    "sigstop": ("broker SIGSTOP", 2.0),
    "node": ("node kill, fencing on", 3.0),
    "move": ("planned switch-over", 0.3),
    "cut-traffic": ("brokers' network dies", 4.0),
    "parameter": ("parameter changed", 0.5),
    "rolling-restart": ("rolling restart", 0.5),
}
"""Disaster → its name in the table, and the target in seconds; that of SIGSTOP is the heartbeat (1 s) and 1 s."""

TOY_EVENTS: Final = {"kill9": "process kill -9", "node": "node kill", "move": "planned switch-over"}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    reason = problem()
    if reason:
        print(f"no lab here: {reason}", file=sys.stderr)
        return 2
    say: Callable[[str], None] = (lambda text: None) if arguments.json else _tell
    names = arguments.event or list(EVENTS)
    found = _ours(names, arguments.times, say)
    if not arguments.no_toy:
        say("the toy agent, in the same lab")
        for name, values in _toys(names, arguments.times, say).items():
            if name in found["events"]:
                found["events"][name]["toy"] = values
    found["load"] = [round(value, 1) for value in os.getloadavg()]
    print(json.dumps(found, indent=2) if arguments.json else table(found))
    return 1 if found["failures"] else 0


def _ours(names: Sequence[str], times: int, say: Callable[[str], None]) -> dict[str, Any]:
    reports: dict[str, list[Report]] = {name: [] for name in names}
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="figures-") as directory:
        setup = Setup(fencing=True)
        lab, cib = boot(setup, Path(directory))
        with lab:
            cluster = Cluster(lab, setup)
            cluster.start(cib)
            for name in names:
                for number in range(times):
                    try:
                        reports[name].append(_one(cluster, name, Path(directory) / f"{name}{number}"))
                        say(reports[name][-1].effects[0].line())
                    except AssertionError as error:  # the other runs are worth something nevertheless
                        broken.append(f"{name}, run {number + 1}: {error!s:.500}")
                        say(f"FAILED: {broken[-1]}")
                        cluster.hurt = True
                        cluster.ready()
    found = summary({name: found for name, found in reports.items() if found})
    return found | {"failures": found["failures"] + broken}


def _one(cluster: Cluster, name: str, directory: Path) -> Report:
    cluster.calm()
    cluster.mark_logs()
    trial = Trial(cluster, directory.name, directory, RATE)
    with trial:
        DISASTERS[name](cluster, trial)
    assert trial.report is not None
    return trial.report


def _toys(names: Sequence[str], times: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """What an agent gets that does nothing special; it does not notice a stopped process."""
    found: dict[str, list[float]] = {}
    with Lab(3, fencing=True) as lab:
        lab.cib_load(toy_cib([node.name for node in lab.nodes], True))
        for name in (name for name in names if name in TOY_EVENTS):
            event = toy_figures.EVENTS[TOY_EVENTS[name]]
            for _ in range(times):
                toy_figures.repair(lab)
                found.setdefault(name, []).append(toy_figures.outage(lab, event))
            say(f"{TOY_EVENTS[name]}: {' '.join(f'{value:.2f}' for value in found[name])} s")
    return found


def summary(reports: Mapping[str, Sequence[Report]]) -> dict[str, Any]:
    """Medians over the repetitions, seconds.  Pure."""
    everything = [report for found in reports.values() for report in found]
    return {
        "events": {name: _event(name, [report.effects[0] for report in found]) for name, found in reports.items()},
        "confirmed": sum(report.messages.confirmed for report in everything),
        "lost": sum(report.messages.lost for report in everything),
        "two_confirming": sum(len(report.two_confirming) for report in everything),
        "two_promoted": sum(len(report.two_promoted) for report in everything),
        "failures": [failure for report in everything for failure in report.failures()],
    }


def _event(name: str, effects: Sequence[Effect]) -> dict[str, Any]:
    ways = sorted({way for effect in effects for way in effect.outages})
    return {
        "text": EVENTS[name][0],
        "target": EVENTS[name][1],
        "times": len(effects),
        "ways": {way: _way([effect.outages[way] for effect in effects]) for way in ways},
        "dc": sum(effect.happening.text.endswith("the DC") for effect in effects),
        "throttled": sum(bool(effect.throttled) for effect in effects),
        "phases": medians([effect.phases for effect in effects]),
        "toy": [],
    }


def _way(outages: Sequence[Any]) -> dict[str, float]:
    return {
        "first": median(outage.first for outage in outages),
        "median": median(outage.median for outage in outages),
        "worst": max(outage.worst for outage in outages),
    }


def table(found: Mapping[str, Any]) -> str:
    """At most 80 columns.  Pure."""
    head = f"{'outage of clients, s':<23}{'n':>3}{'target':>8}{'list':>14}{'virtual':>14}{'toy agent':>16}"
    lines = ["", head, f"{'':<34}{'median worst':>14}{'median worst':>14}{'median worst':>16}"]
    for event in found["events"].values():
        ways = "".join(_cells(event["ways"].get(way)) for way in ("list", "vip"))
        lines.append(f"{event['text']:<23}{event['times']:>3}{event['target']:>8.1f}{ways}{_toy(event['toy'])}")
    lines += ["", "from the event to ..., median, ms"]
    names = [name for name, event in found["events"].items() if event["phases"]]
    lines.append(f"{'':<17}" + "".join(f"{name[:8]:>9}" for name in names))
    phases = {phase: None for event in found["events"].values() for phase in event["phases"]}
    for phase in phases:
        cells = (found["events"][name]["phases"].get(phase) for name in names)
        lines.append(f"{phase:<17}" + "".join(f"{'-' if cell is None else f'{cell * 1000:.0f}':>9}" for cell in cells))
    lines += ["", f"{found['confirmed']} messages confirmed, {found['lost']} lost"]
    twice = f"two confirming primaries {found['two_confirming']} times, two promoted {found['two_promoted']} times"
    lines.append(twice)
    if controllers := sum(event["dc"] for event in found["events"].values()):
        lines.append(f"{controllers} of the killed nodes were Pacemaker's DC: a new one was elected first")
    if busy := sum(event["throttled"] for event in found["events"].values()):
        lines.append(f"Pacemaker had throttled itself, for the machine was busy, in {busy} of the runs")
    lines += [f"FAILED: {failure}" for failure in found["failures"]]
    return "\n".join(lines)


def _cells(way: Mapping[str, float] | None) -> str:
    return f"{'-':>14}" if way is None else f"{way['median']:>8.2f}{way['worst']:>6.2f}"


def _toy(values: Sequence[float]) -> str:
    return f"{'-':>16}" if not values else f"{median(values):>10.2f}{max(values):>6.2f}"


def _tell(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="figures", description="Outages of clients in the Pacemaker lab.")
    parser.add_argument("--times", type=int, default=REPETITIONS, help="repetitions of each event (%(default)d)")
    parser.add_argument("--event", action="append", choices=sorted(EVENTS), help="only these; may be repeated")
    parser.add_argument("--no-toy", action="store_true", help="without the toy agent")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
