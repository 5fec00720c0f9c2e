"""The cluster under torture: network, brokers, watches and manager in one object that faults act on.  Shell."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qpidd_py.security.users import hash_password
from testkit.power import library
from torture.brokers import Broker, Exit, url
from torture.manager import Manager, rules_for
from torture.network import Host, Network
from torture.paths import Effect
from torture.routes import Routes
from torture.watch import RequestFailed, View, Watch, look, request

RESTART: Final = 1.0
"""Seconds until a dead broker that no fault holds down is started again."""
UNTOUCHED: Final = 3.0
"""Seconds after a fault from which on a broker counts as undisturbed."""

CLIENT: Final = "client/secret"
"""Login of the load, which comes from another host: guest may not."""
MODES: Final = ("quorum", "manager", "availability", "registry")
COMMON_OPTIONS: Final = {
    "link-heartbeat-interval": "0.5", "ha-backup-timeout": "5", "ha-isolation-timeout": "4",
    "log-enable": "info+", "heartbeat": "2", "federation-tag": "near",
}  # fmt: skip


def options_for(mode: str, directory: Path) -> dict[str, str]:
    """What `qpidd` is started with in a mode."""
    if mode == "registry":
        file = str(directory / "registry.json")
        return {**COMMON_OPTIONS, "ha-safety": "manager", "ha-registry": "file", "ha-registry-file": file}
    return {**COMMON_OPTIONS, "ha-safety": mode, **({"ha-registry": "none"} if mode == "manager" else {})}


@dataclass(frozen=True)
class Plan:
    """What a campaign is made of."""

    mode: str
    brokers: int
    seed: int
    directory: Path
    kinds: tuple[str, ...] = ()
    """Only these kinds of faults; empty: all that the mode has."""
    extra: tuple[str, ...] = ()
    """Options of `qpidd` that are different, NAME=VALUE."""
    journals: bool = False
    """The brokers keep journals, so that all of them may die."""
    routes: bool = True
    """A broker outside of the cluster, with a shovel to it and a dynamic route from it."""
    power_cuts: bool = False
    """The same, and their disks forget what was not synced when the power of all is cut."""

    @property
    def journaled(self) -> bool:
        return self.journals or self.power_cuts


class Lab:
    """All of it.  Everything is called from the main thread; the manager has one of its own."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.rng = random.Random(plan.seed)
        self.say = say
        self.exits: list[Exit] = []
        self.owed: list[Broker] = []
        """Members that could not be added again yet."""
        self._refusal = ""
        self.network = Network(plan.brokers + 2 if plan.routes else plan.brokers + 1)
        self.clients: Host = self.network.hosts[-1]
        users = plan.directory / "users.yaml"
        users.write_text(f"{CLIENT.partition('/')[0]}: {hash_password(CLIENT.partition('/')[2])}\n")
        different = {name: value for name, _, value in (text.partition("=") for text in plan.extra)}
        kept = {"journal": "yes"} if plan.journaled else {}
        options = {**options_for(plan.mode, plan.directory), **kept, "user-file": str(users), **different}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        forgetful = library(plan.directory) if plan.power_cuts else None
        self.brokers = [
            Broker(f"node{number}", host, plan.directory, words, self.exits, forgetful)
            for number, host in enumerate(self.network.hosts[: plan.brokers], 1)
        ]
        self.routes: Routes | None = None
        """To a broker outside of the cluster."""
        if plan.routes:
            host = self.network.hosts[plan.brokers]
            self.routes = Routes(host, self.brokers, plan.directory, users, CLIENT, self.exits)
        self.watches = {broker.name: Watch(broker) for broker in self.brokers}
        self.manager = Manager(
            self.brokers, self.watches, self.network.connected, rules_for(plan.mode), random.Random(plan.seed + 1), say
        )

    # ---- the course of things -------------------------------------------------------------------------------------

    def start(self) -> None:
        for broker in self.brokers:
            broker.start(url(self.brokers))
        self._start_routes()
        self.manager.start()

    def tick(self) -> None:
        """Call often: starts dead brokers again."""
        self._add_owed()
        self._start_routes()
        for broker in self.brokers:
            broker.collect()
            dead = broker.member and not broker.running and not broker.held_down
            if dead and time.monotonic() - broker.died > RESTART:
                broker.start(url(self.brokers))

    def _start_routes(self) -> None:
        if self.routes is not None:
            self.routes.start()

    def _add_owed(self) -> None:
        primary = self.primary()
        if primary is None or not self.owed:
            return
        broker = self.owed.pop(0)
        refusal = self.request(primary, "ha.member", 2.0, action="add", address=broker.address)
        if refusal and refusal != self._refusal:
            self.say(f"   member add: {refusal}"[:200])
        self._refusal = refusal
        if refusal:
            self.owed.append(broker)
        else:
            broker.member = True

    def close(self) -> None:
        """Ends everything; running processes get SIGTERM first."""
        self.manager.stop()
        for watch in self.watches.values():
            watch.stop()
        if self.routes is not None:
            self.routes.close()
        for broker in self.brokers:
            broker.terminate()
        for broker in self.brokers:
            broker.ended(5.0)
        self.network.close()

    @property
    def far(self) -> list[Broker]:
        """The broker outside, if there is one."""
        return [] if self.routes is None else [self.routes.far]

    # ---- roles -----------------------------------------------------------------------------------------------

    def broker(self, name: str) -> Broker:
        return next(broker for broker in self.brokers if broker.name == name)

    def view(self, broker: Broker) -> View:
        return self.watches[broker.name].fresh()

    def primaries(self) -> list[Broker]:
        """The brokers that report being primary, the highest epoch first."""
        found = [broker for broker in self.brokers if self.view(broker).is_primary]
        return sorted(found, key=lambda broker: self.view(broker).epoch, reverse=True)

    def primary(self) -> Broker | None:
        return next(iter(self.primaries()), None)

    def backups(self) -> list[Broker]:
        """All that run and are not the primary."""
        primary = self.primary()
        return [broker for broker in self.brokers if broker is not primary and broker.responsive]

    def states(self) -> str:
        return " ".join(f"{broker.name[-1]}:{self._word(broker)}" for broker in self.brokers)

    def _word(self, broker: Broker) -> str:
        if not broker.running:
            return "down"
        return "paused" if broker.paused else self.view(broker).state or "?"

    def settled(self) -> bool:
        """True if all brokers run, one is active and all others are ready."""
        states = sorted(self.view(broker).state for broker in self.brokers)
        return states == sorted(["active", *["ready"] * (len(self.brokers) - 1)])

    # ---- allowed faults -----------------------------------------------------------------------------------------

    def expendable(self, victims: Sequence[Broker]) -> bool:
        """True if these may be killed: a whole member of the newest in-sync set survives that no fault has touched
        recently.  All brokers are asked now, because the set may just have changed.  With journals all may die."""
        if self.plan.journaled:
            return True
        views = {broker.name: look(broker) for broker in self.brokers if broker.responsive}
        newest = max((view for view in views.values() if view.facts), key=lambda view: view.set_key, default=View())
        return any(
            views[broker.name].whole and views[broker.name].id in newest.set_ids and self.undisturbed(broker)
            for broker in self.brokers
            if broker not in victims and broker.responsive
        )

    def undisturbed(self, broker: Broker) -> bool:
        lately = time.monotonic() - broker.touched < UNTOUCHED
        return not lately and not self.network.disturbed(broker.host.address)

    def request(self, broker: Broker, method: str, timeout: float = 8.0, **arguments: object) -> str:
        """The refusal, or "" when it was done."""
        try:
            request(broker, method, timeout, **arguments)
        except RequestFailed as error:
            return str(error)
        return ""

    def knows(self, method: str) -> bool:
        """True if these brokers have the method."""
        refusal = self.request(self.brokers[0], method, 3.0)
        return "unknown method" not in refusal

    # ---- links ----------------------------------------------------------------------------------------------------

    def lay(self, one: Host, other: Host, effect: Effect, both: bool = True) -> None:
        """An effect on the way from one host to another, and back."""
        for path in self._paths(one, other, both):
            self.network.lay(path, effect)
        self._touch(one, other)

    def lift(self, one: Host, other: Host, effect: Effect, both: bool = True) -> None:
        for path in self._paths(one, other, both):
            self.network.lift(path, effect)
        self._touch(one, other)

    @staticmethod
    def _paths(one: Host, other: Host, both: bool) -> list[tuple[str, str]]:
        there = (one.address, other.address)
        return [there, (other.address, one.address)] if both else [there]

    def _touch(self, *hosts: Host) -> None:
        for broker in self.brokers:
            if broker.host in hosts:
                broker.touched = time.monotonic()
