"""Calls of the real code, remembered: a broker's state and the call decide what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ha.model.position import epoch_of
from qpidd_py.errors import InvariantError
from tests.model.host import Died, Host
from tests.model.state import EMPTY, Broker, Left, Link, Saved, Seen, World, address_of, saved_code

Label = tuple[str, ...]
Step = tuple[Label, World]


class Broken(Exception):
    """The code contradicts itself, or a property does not hold; with the step that has shown it."""

    def __init__(self, fault: str, label: Label) -> None:
        super().__init__(fault)
        self.label = label


class Cluster:
    """The brokers `a`, `b`, ...; the first `listed` of them are in ha-brokers-url."""

    def __init__(
        self, brokers: int, mode: str = "quorum", listed: int = 0, spare: bool = False, isolated: bool = False
    ) -> None:
        """`mode`: quorum or registry.  `spare`, `isolated`: as in `Bounds`."""
        self.names = "abcdefgh"[:brokers]
        self.registry = mode == "registry"
        self.spare = self.names[-1] if spare else ""
        self.addresses = tuple(dict.fromkeys(map(address_of, self.names)))
        addresses = self.addresses[: listed or brokers]
        settings: dict[str, Any] = {"brokers": addresses, "registry": self.registry}
        settings["safety"] = "manager" if self.registry else mode
        namesakes = len(self.addresses) < brokers
        self.hosts = [Host(name, settings, namesakes, isolated) for name in self.names]
        self.memory: dict[object, Any] = {}
        self.groups: tuple[str, ...] = ()
        """Brokers that are interchangeable (`symmetry.py`)."""

    def fresh(self, left: Left) -> World:
        """No broker has ever run."""
        count = len(self.names)
        brokers = (Broker(True, EMPTY, EMPTY, "joining", False, 0, 0),) * count
        if self.spare:
            brokers = (*brokers[:-1], absent("spare"))
        entries: tuple[Saved | None, ...] = (None,) * (count if self.registry else 0)
        return World(brokers, (), entries, Seen(), left)

    def run(
        self, i: int, broker: Broker, key: object, call: Callable[[Host], object], die_after: int = 0
    ) -> tuple[Broker, Any, int]:
        """Call broker `i`: its state afterwards, what the call has returned, how often it has written to its disk.
        `key` has all that `call` depends on in addition.  Raises Broken."""
        place = i, broker, key, die_after
        found = self.memory.get(place)
        if found is None:
            found = self.memory[place] = self._run(i, broker, call, die_after)
        return found

    def _run(self, i: int, broker: Broker, call: Callable[[Host], object], die_after: int) -> tuple[Broker, Any, int]:
        host = self.hosts[i]
        host.load(broker, die_after)
        try:
            result = call(host)
        except Died:
            return dead(broker._replace(disk=saved_code(host.env.disk))), None, die_after
        except InvariantError as error:
            raise Broken(f"one: {host.id} contradicts itself: {error}", ("step of", host.id)) from error
        return host.save(broker), result, host.env.writes

    def dying(
        self, world: World, i: int, label: Label, key: object, call: Callable[[Host], object], writes: int
    ) -> Iterator[Step]:
        """The same call, when the process ends between two of its writes."""
        for write in range(1, writes if world.left.crashes else 0):
            after, _, _ = self.run(i, world.brokers[i], key, call, write)
            yield (*label, f"and dies after write {write}"), spend(put(world, i, after), crashes=1)


def put(world: World, i: int, broker: Broker) -> World:
    brokers = world.brokers
    return world._replace(brokers=(*brokers[:i], broker, *brokers[i + 1 :]))


def spend(world: World, **counts: int) -> World:
    left = world.left
    return world._replace(left=left._replace(**{name: getattr(left, name) - count for name, count in counts.items()}))


def absent(state: str) -> Broker:
    """`gone`: its disk is lost, and it never starts again; `spare`: it has not been started yet."""
    return Broker(False, EMPTY, EMPTY, state, False, 0, 0)


def dead(broker: Broker) -> Broker:
    return Broker(False, broker.disk, broker.disk, "joining", False, 0, 0)


def tidy(world: World) -> World:
    """Links that one end has left are closed, and operations that every linked backup has applied are forgotten."""
    brokers = list(world.brokers)
    applied: dict[str, int] = {}
    for i, broker in enumerate(brokers):
        link = broker.link
        if link is None:
            continue
        if not _open(brokers, chr(97 + i), link):
            brokers[i] = broker._replace(link=None)
        elif link.step != "greeting":
            applied[link.primary] = min(link.applied, applied.get(link.primary, link.applied))
    for i, broker in enumerate(brokers):
        if broker.lead is not None and broker.lead.log:
            low = applied.get(chr(97 + i))
            log = tuple(entry for entry in broker.lead.log if low is not None and entry[0] > low)
            brokers[i] = broker._replace(lead=broker.lead._replace(log=log))
    return world._replace(brokers=tuple(brokers))


def _open(brokers: list[Broker], id: str, link: Link) -> bool:
    primary = brokers[ord(link.primary) - 97]
    if not primary.up or primary.lead is None or epoch_of(primary.position) != link.epoch:
        return False
    return any(peer.id == id and peer.linked for peer in primary.lead.peers)
