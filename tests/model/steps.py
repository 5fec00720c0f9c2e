"""Every step that may be made in a state, and the state that follows, judged."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.calls import Broken, Cluster, Step, absent, dead, put, spend, tidy
from tests.model.joining import joining
from tests.model.judge import judge
from tests.model.leading import leading
from tests.model.promoting import deliver, promoting
from tests.model.state import EMPTY, Broker, Saved, World


def steps(cluster: Cluster, world: World) -> Iterator[Step]:
    """Raises Broken."""
    for label, after in _possible(cluster, world):
        after = tidy(after)
        seen, fault = judge(world, after)
        if fault:
            raise Broken(fault, label)
        yield label, after if seen is after.seen else after._replace(seen=seen)


def _possible(cluster: Cluster, world: World) -> Iterator[Step]:
    for i, broker in enumerate(world.brokers):
        name = cluster.names[i]
        if broker.state in ("gone", "spare"):
            continue
        if world.left.disks and name != cluster.spare and (after := replaced(cluster, world, i)) is not None:
            yield ("loses its disk", name), spend(after, disks=1)
        if not broker.up:
            yield ("restart", name), put(world, i, started(cluster, i, broker.disk))
            continue
        if world.left.crashes:
            yield ("crash", name), spend(put(world, i, dead(broker)), crashes=1)
        if broker.lead is not None:
            yield from leading(cluster, world, i, broker, broker.lead)
        else:
            yield from promoting(cluster, world, i, broker)
            yield from joining(cluster, world, i, broker)
    for code in world.claims:
        yield from deliver(cluster, world, code)


def started(cluster: Cluster, i: int, disk: Saved) -> Broker:
    blank = "fresh" if disk == EMPTY and cluster.hosts[i].namesakes else ""
    return Broker(True, disk, disk, "joining", False, 0, 0, blank=blank)


def replaced(cluster: Cluster, world: World, i: int) -> World | None:
    """The machine of a voter is lost with its disk.  By the rule it never comes back: another broker, with an identity
    and an address of its own, starts instead, and has to be added.  None: it may not be lost."""
    spare = cluster.names.index(cluster.spare)
    return put(put(world, i, absent("gone")), spare, started(cluster, spare, EMPTY))
