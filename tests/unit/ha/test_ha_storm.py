"""Random faults on the small world: nothing that was confirmed may be missing at the end.

The manager of this test is a bad one: it promotes at random moments, whichever comes first.  It keeps one promise: it
does not kill the last broker that holds everything.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ha.model.membership import HaState
from ha.model.status import State
from tests.support.slow import mostly_slow
from tests.unit.ha.world import Host, Publisher, World


class Storm:
    """One run with one seed."""

    def __init__(self, seed: int, safety: str, partitions: bool) -> None:
        self.rng = random.Random(seed)
        self.names = "abcde"[: self.rng.choice([3, 3, 5]) if safety == "quorum" else self.rng.choice([2, 3, 3, 4, 5])]
        mode: dict[str, Any] = {"safety": safety}
        if safety == "registry":
            mode = {"safety": "manager", "registry": True, "isolation_wait": 0.0}
        self.world = World(self.names, slice_size=1024, backup_timeout=2.0, **mode)
        self.partitions = partitions
        self.registry = safety == "registry"
        self.clients: list[tuple[Publisher, int, dict[int, bytes]]] = []
        self.confirmed: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.number = 0
        self.world.cluster()
        self.world["a"].configuration.declare("q")
        self.world.run(0.1)

    @property
    def hosts(self) -> list[Host]:
        return list(self.world.hosts.values())

    def primaries(self) -> list[Host]:
        return [host for host in self.hosts if host.alive and host.state.is_primary]

    def step(self) -> None:
        action = self.rng.choice(
            [self.publish] * 6
            + [self.consume] * 2
            + [self.kill, self.boot, self.boot, self.pause, self.resume, self.promote, self.blink]
            + [self.relocate, self.demote]
            + ([self.cut, self.heal] if self.partitions else [])
            + ([self.lose_registry, self.find_registry] if self.registry else [])
        )
        action()
        self.world.run(self.rng.choice([0.0, 0.0003, 0.001, 0.01, 0.2, 1.3]))
        self.collect()
        ballots = [host.disk.ballot for host in self.primaries()]
        assert len(ballots) == len(set(ballots)), "two primaries of one ballot"

    def publish(self) -> None:
        for host in self.primaries():
            if host.paused or "q" not in host.configuration.queues:
                continue
            client = next((item for item in self.clients if item[0].host is host and item[1] == host.life), None)
            if client is None or client[0].connection.engine is not host.engine or host.closed_clients:
                host.closed_clients.clear()
                client = (Publisher(host), host.life, {})
                self.clients = [item for item in self.clients if item[0].host is not host] + [client]
            for _ in range(self.rng.randrange(1, 8)):
                self.number += 1
                body = b"m%d" % self.number
                client[2][client[0].publish("q", body)] = body

    def consume(self) -> None:
        for client, life, _ in self.clients:
            host = client.host
            usable = host.alive and host.life == life and host.state.is_primary and not host.paused
            if usable and not host.closed_clients and "q" in host.configuration.queues:
                for _ in range(self.rng.randrange(1, 6)):
                    body = client.get("q")
                    if body is not None:
                        self.consumed.add(body)

    def collect(self) -> None:
        for client, life, sent in self.clients:
            if client.host.alive and client.host.life == life:
                self.confirmed |= {body for tag, body in sent.items() if tag <= client.confirmed}

    def kill(self) -> None:
        victim = self.rng.choice(self.hosts)
        others = [host for host in self.hosts if host.alive and host is not victim]
        recorded = [HaState.from_json(json.loads(entry)) for entry in self.world.registry.values()]
        states = [*(host.disk for host in self.hosts if host.alive), *recorded]
        newest = max((state.in_sync for state in states), key=lambda i: i.key, default=None)
        if victim.alive and newest and any(host.node.local.whole and host.node.local.id in newest for host in others):
            self.collect()
            victim.kill()

    def boot(self) -> None:
        for host in self.hosts:
            if not host.alive:
                host.boot()
                return

    def pause(self) -> None:
        host = self.rng.choice(self.hosts)
        if host.alive:
            host.paused = True

    def resume(self) -> None:
        for host in self.hosts:
            if host.paused:
                self.world.resume(host.name)

    def blink(self) -> None:
        """A link breaks and nothing else."""
        links = [link for host in self.hosts if host.alive for link in host.links if link.open and link.other]
        if links:
            link = self.rng.choice(links)
            other = link.other
            assert other is not None
            for end in (link, other):
                if end.host.alive and not end.host.paused:
                    end.lost("blink")

    def promote(self) -> None:
        host = self.rng.choice(self.hosts)
        if host.alive and not host.paused:
            host.promote()

    def relocate(self) -> None:
        for host in self.primaries():
            if not host.paused:
                to = self.rng.choice(["", *self.names])
                host.requests.request("ha.relocate", {"to": to}, lambda reply: None, "")

    def demote(self) -> None:
        for host in self.primaries():
            if not host.paused and self.rng.random() < 0.3:
                host.requests.request("ha.demote", {}, lambda reply: None, "")

    def cut(self) -> None:
        one = self.rng.choice(self.names)
        self.world.cut(one, *(name for name in self.names if name != one))

    def heal(self) -> None:
        self.world.heal()

    def lose_registry(self) -> None:
        self.world.registry_lost.add(self.rng.choice(self.names))

    def find_registry(self) -> None:
        self.world.registry_lost.clear()

    def settle(self) -> Host:
        """Everything is repaired; promote until somebody can be."""
        self.world.heal()
        self.find_registry()
        self.resume()
        for _ in self.hosts:
            self.boot()
        self.world.run(5)
        for _ in range(10):
            if self.primaries():
                break
            for host in self.hosts:
                host.promote()
                self.world.run(1.5)
        self.collect()
        (primary,) = self.primaries()
        self.world.until(lambda: all(h.state is State.READY for h in self.hosts if h is not primary), 60)
        self.world.until(lambda: primary.state is State.ACTIVE)
        return primary


@pytest.mark.parametrize(("safety", "partitions"), [("manager", False), ("quorum", True), ("registry", True)])
@pytest.mark.parametrize("seed", mostly_slow(range(40), 15))
def test_storm(seed: int, safety: str, partitions: bool) -> None:
    storm = Storm(seed, safety, partitions)
    for _ in range(60):
        storm.step()
    primary = storm.settle()
    held = primary.contents("q")
    lost = storm.confirmed - storm.consumed - set(held)
    assert not lost, f"lost {sorted(lost)}\n" + "\n".join(storm.world.lines)
    assert len(held) == len(set(held))
    assert held == sorted(held, key=lambda body: int(body[1:]))
    for host in storm.hosts:
        assert host.contents("q") == held
