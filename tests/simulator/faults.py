"""What goes wrong: a few faults for each seed, at random times, each of which ends by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

Pairs = set[tuple[str, str]]


class Faults:
    """Makes faults until `stop`."""

    def __init__(self, simulation: Simulation, duration: float) -> None:
        self.simulation = simulation
        self.scheduler = simulation.scheduler
        self.rng = rng = simulation.scheduler.rng
        self.stopped = False
        self.total = rng.random() < 0.05
        """Is this a seed in which everybody may die at once?"""
        kinds = [self._crash, self._crash, self._cut, self._cut, self._isolate, self._pause, self._promote, self._slow]
        chosen = rng.sample(kinds, rng.randint(2, 5))
        for _ in range(rng.randint(1, 9)):
            fault = rng.choice(chosen)
            self.scheduler.at(rng.uniform(0.1, duration), lambda fault=fault: None if self.stopped else fault())

    def stop(self) -> None:
        """No more of them, and what is broken is repaired."""
        self.stopped = True
        simulation = self.simulation
        self.scheduler.log("", "--- faults end: everything is repaired ---")
        for process in simulation.brokers:
            if not process.alive:
                process.boot()
            process.resume()
        simulation.network.heal_all()
        for consumer in simulation.consumers:
            consumer.calm = True

    def _crash(self) -> None:
        process = self.rng.choice([each for each in self.simulation.brokers if each.is_primary] * 2 + self.simulation.brokers)
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
        self._cut_for({(name, other) for other in others} | {(other, name) for other in others})

    def _cut_for(self, pairs: Pairs) -> None:
        seconds = self.rng.choice((0.02, 0.2, 0.6, 1.5))
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

    def _slow(self) -> None:
        one, other = self._pair()
        delay = self.rng.choice((0.02, 0.1, 0.3))
        self.scheduler.log("", f"slow {one}>{other}: {delay} s")
        self.simulation.network.slow[one, other] = delay
        self.scheduler.at(
            self.rng.choice((0.3, 1.0)), lambda: self.simulation.network.slow.pop((one, other), None) and None
        )
