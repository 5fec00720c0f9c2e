"""Fail-overs one after the other, of random kinds, under the load of many senders and receivers, and of a program that
sends what cannot be sent.

    python -m tests.faults.soak [--failovers N] [--seed N] [--style threaded|asyncio|pika|transacted]

Everything random comes from the seed; how it falls together with the brokers' and the clients' time does not.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final

from testkit.judge import longest_pause, quantile
from tests.faults.hostile import Hostile
from tests.faults.judge import Report
from tests.faults.load import Group, Load, read_all
from tests.faults.other_styles import Asyncio, PikaStyle
from tests.faults.scene import QpiddScene, addresses, qpidd_scene
from tests.faults.styles import Style, Threaded, Transacted
from tests.support.fault_proxy import Entrance, FaultProxy, Way
from tests.support.wait import wait_for

GROUPS: Final = (
    Group("single", drop_duplicates=True),
    Group("plain"),
    Group("crowd", senders=3, receivers=3),
    Group("filtered", senders=2, receivers=1, drop_duplicates=True),
)
RATE: Final = 150.0
WEIGHTS: Final = {"kill": 5, "pause": 2, "switch": 2, "cut": 3, "end": 1, "snap": 3, "vanish": 2, "drop": 1, "all": 1}
"""How often which kind."""
STYLES: Final[dict[str, Callable[[], AbstractContextManager[Style]]]] = {
    "threaded": lambda: nullcontext(Threaded()),
    "asyncio": Asyncio,
    "pika": lambda: nullcontext(PikaStyle()),
    "transacted": lambda: nullcontext(Transacted()),
}


class Soak:
    """`say` gets a line about each fail-over."""

    def __init__(self, scene: QpiddScene, load: Load, rng: random.Random, say: Callable[[str], None]) -> None:
        self.scene, self.load, self.rng, self.say = scene, load, rng, say
        self.outages: dict[str, list[float]] = defaultdict(list)
        """Kind → the longest pause of each sender, in seconds, fail-over by fail-over."""

    def run(self, failovers: int) -> Report:
        """AssertionError when something was not kept."""
        self.scene.whole()
        self.load.run_on(30)
        for number in range(failovers):
            [kind] = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
            if kind in ("kill", "pause", "switch"):
                self.scene.whole()
            self.load.run_on(self.rng.randrange(5, 150))
            began = time.monotonic_ns() // 1000
            getattr(self, f"_{kind}")(self.scene.proxies[self.scene.active()])
            self.load.run_on(5)
            self._measure(kind, began, f"{number + 1}/{failovers}")
        self.scene.whole()
        self.load.run_on(30)
        return self.load.verdict()

    def _measure(self, kind: str, began: int, number: str) -> None:
        now = time.monotonic_ns() // 1000
        found = [longest_pause(sender.confirms, began, now) for sender in self.load.senders]
        self.outages[kind] += found
        self.say(f"{number} {kind}: senders stood still for {min(found) * 1000:.0f} to {max(found) * 1000:.0f} ms")

    def table(self) -> str:
        """Outages of senders in ms: median, 95th percentile, maximum."""
        lines = [f"{'kind':8} {'n':>5} {'median':>7} {'p95':>7} {'max':>7}"]
        for kind, found in [*sorted(self.outages.items()), ("all", list(chain(*self.outages.values())))]:
            values = [value * 1000 for value in (median(found), quantile(found, 0.95), max(found))]
            lines.append(f"{kind:8} {len(found):5} " + " ".join(f"{value:7.0f}" for value in values))
        return "\n".join(lines)

    # ---- kinds; what each does ends when its fault is over ----------------------------------------------------------

    def _kill(self, _proxy: FaultProxy) -> None:
        old = self.scene.active()
        self.scene.kill(old)
        self.scene.relocated(old)

    def _pause(self, _proxy: FaultProxy) -> None:
        old = self.scene.active()
        self.scene.pause(old)
        self.scene.relocated(old)
        if self.rng.random() < 0.5:
            self.load.run_on(5)
        self.scene.resume(old)

    def _switch(self, _proxy: FaultProxy) -> None:
        old = self.scene.active()
        self.scene.cluster.command("promote", self.rng.choice(self.scene.cluster.backups()), timeout=20.0)
        self.scene.relocated(old)

    def _cut(self, proxy: FaultProxy) -> None:
        proxy.cut()

    def _end(self, proxy: FaultProxy) -> None:
        proxy.cut(reset=False)

    def _snap(self, proxy: FaultProxy) -> None:
        way = self.rng.choice((Way.TO_SERVER, Way.TO_CLIENT))
        frame, octets = self.rng.randrange(1, 40), self.rng.choice((1, 3, 7, 8, 30, 1000))
        snap = proxy.snap(way, frame, octets, reset=self.rng.random() < 0.5)
        assert snap.done.wait(30)

    def _vanish(self, proxy: FaultProxy) -> None:
        losses = self.load.losses()
        proxy.vanish(self.rng.choice((Way.TO_SERVER, Way.TO_CLIENT, Way.BOTH)))
        wait_for(lambda: self.load.losses() >= losses + len(self.load.clients), 60, "losses that were noticed")

    def _drop(self, proxy: FaultProxy) -> None:
        proxy.let(Entrance.DROP)
        proxy.cut()
        attempts = self.load.attempts()
        wait_for(lambda: self.load.attempts() > attempts + len(self.load.clients), 60, "attempts in vain")
        proxy.let(Entrance.OPEN)

    def _all(self, _proxy: FaultProxy) -> None:
        for proxy in self.scene.proxies.values():
            proxy.let(Entrance.REFUSE)
            proxy.cut()
        attempts = self.load.attempts()
        wait_for(lambda: self.load.attempts() > attempts + len(self.load.clients), 60, "attempts in vain")
        for proxy in self.scene.proxies.values():
            proxy.let(Entrance.OPEN)


def soak(
    scene: QpiddScene, failovers: int, seed: int, say: Callable[[str], None], style: Style | None = None
) -> Report:
    """Prints the seed first, figures last.  AssertionError when something was not kept."""
    say(f"seed {seed}, {failovers} fail-overs")
    place, name = addresses(scene), style.name if style else "threaded"
    with (
        Load(place, f"soak.{seed}", GROUPS, style, rate=RATE) as load,
        Hostile(place, f"soak.{seed}", seed, name) as hostile,
    ):
        course = Soak(scene, load, random.Random(seed), say)
        report = course.run(failovers)
        hostile.finish()
    kept = {str(copy.body, "ascii", "replace").partition(" ")[0] for copy in read_all(place, hostile.queue)}
    assert not (problems := hostile.tally.problems(kept)), "\n".join([*problems, hostile.tally.line()])
    say(f"{failovers} fail-overs: {report.line()}")
    say(hostile.tally.line())
    say(course.table())
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description="Random fail-overs under load.")
    parser.add_argument("--failovers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--style", choices=sorted(STYLES), default="threaded", help="which interface of the library")
    options = parser.parse_args()
    for name in ("client_lib", "pika"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a soak is made of what they would complain about
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))
        scene = stack.enter_context(qpidd_scene(Path(directory)))
        style = stack.enter_context(STYLES[options.style]())
        soak(scene, options.failovers, options.seed, lambda line: print(line, flush=True), style)
    return 0


if __name__ == "__main__":
    sys.exit(main())
