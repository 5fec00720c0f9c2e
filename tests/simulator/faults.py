"""What goes wrong: a few faults for each seed, at random times, each of which ends by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tests.simulator.scheduler import Call

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

Pairs = set[tuple[str, str]]


def _both_ways(name: str, others: Iterable[str]) -> Pairs:
    return {(name, other) for other in others} | {(other, name) for other in others}


class Faults:
    """Makes faults until `stop`."""

    def __init__(self, simulation: Simulation, duration: float, only: Sequence[str] = ()) -> None:
        """`only`: names of faults; all kinds by default, some of them in each seed."""
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.rng = rng = simulation.scheduler.rng
        self.stopped = False
        self.total = rng.random() < 0.05
        """Is this a seed in which everybody may die at once?"""
        kinds: dict[str, Call] = {
            "crash": self._crash,
            "another crash": self._crash,
            "cut": self._cut,
            "another cut": self._cut,
            "isolate": self._isolate,
            "pause": self._pause,
            "promote": self._promote,
            "slow": self._slow,
            "ambush": self._ambush,
        }
        chosen = [kinds[name] for name in only or rng.sample(list(kinds), rng.randint(2, len(kinds)))]
        for _ in range(rng.randint(1, 9) if rng.random() < 0.8 else rng.randint(10, 30)):
            self.scheduler.at(rng.uniform(0.1, duration), self._unless_stopped(rng.choice(chosen)))

    def _unless_stopped(self, fault: Call) -> Call:
        return lambda: None if self.stopped else fault()

    def stop(self) -> None:
        """No more of them, and what is broken is repaired."""
        self.stopped = True
        simulation = self.simulation
        self.scheduler.log("", "--- faults end: everything is repaired ---")
        simulation.network.heal_all()
        for process in simulation.brokers:
            if not process.alive:
                process.boot()
            process.resume()
        for consumer in simulation.consumers:
            consumer.calm = True

    def _crash(self) -> None:
        primaries = [each for each in self.simulation.brokers if each.is_primary]
        process = self.rng.choice(primaries * 2 + self.simulation.brokers)
        if not process.alive:
            return
        if not self.total and self.simulation.history.survivors() in ([process], []):
            return
        self.simulation.manager.stop(process)

    def _pair(self) -> tuple[str, str]:
        one, other = self.rng.sample([process.name for process in self.simulation.brokers], 2)
        return one, other

    def _cut(self) -> None:
        one, other = self._pair()
        self._cut_for({(one, other)} if self.rng.random() < 0.4 else {(one, other), (other, one)})

    def _isolate(self) -> None:
        """One broker from all others; from the clients as well, sometimes."""
        name = self.rng.choice(self.simulation.brokers).name
        others = [process.name for process in self.simulation.brokers if process.name != name]
        if self.rng.random() < 0.3:
            others += [client.name for client in self.simulation.clients]
        self._cut_for(_both_ways(name, others))

    def _cut_for(self, pairs: Pairs, seconds: float = 0.0) -> None:
        seconds = seconds or self.rng.choice((0.02, 0.2, 0.6, 1.5))
        shown = " ".join(f"{one}>{other}" for one, other in sorted(pairs))
        self.scheduler.log("", f"cut {shown}")
        self.simulation.network.cut(pairs)

        def heal() -> None:
            if not self.stopped:
                self.scheduler.log("", f"healed {shown}")
                self.simulation.network.heal(pairs)

        self.scheduler.at(seconds, heal)

    def _pause(self) -> None:
        process = self.rng.choice(self.simulation.brokers)
        if process.running:
            life = process.life
            process.pause()
            seconds = self.rng.choice((0.02, 0.2, 0.6, 1.5))
            self.scheduler.at(seconds, lambda: process.resume() if process.life == life else None)

    def _promote(self) -> None:
        """The manager errs."""
        self.simulation.manager.promote(self.rng.choice(self.simulation.brokers))

    def _ambush(self) -> None:
        """A backup loses sight of the primary, is promoted, and then loses the others in the middle of that."""
        backups = [process for process in self.simulation.brokers if process.running and not process.is_primary]
        if not backups:
            return
        name = self.rng.choice(backups).name
        hidden = {process.name for process in self.simulation.brokers if process.is_primary} - {name}
        others = {process.name for process in self.simulation.brokers} - hidden - {name}
        seconds = self.rng.uniform(0.2, 1.5)
        self._cut_for(_both_ways(name, hidden), seconds)
        promotion = self.rng.uniform(0.0, 0.5)
        process = next(process for process in self.simulation.brokers if process.name == name)
        self.scheduler.at(promotion, self._unless_stopped(lambda: self.simulation.manager.promote(process)))
        cut = promotion + self.rng.uniform(0.0005, 0.25)
        self.scheduler.at(cut, self._unless_stopped(lambda: self._cut_for(_both_ways(name, others), seconds)))

    def _slow(self) -> None:
        one, other = self._pair()
        delay = self.rng.choice((0.02, 0.1, 0.3))
        self.scheduler.log("", f"slow {one}>{other}: {delay} s")
        self.simulation.network.slow[one, other] = delay

        def end() -> None:
            self.simulation.network.slow.pop((one, other), None)

        self.scheduler.at(self.rng.choice((0.3, 1.0)), end)
