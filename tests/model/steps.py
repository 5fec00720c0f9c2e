"""Every step that may be made in a state, and the state that follows, judged."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.calls import Broken, Cluster, Step, dead, put, spend, tidy
from tests.model.joining import joining
from tests.model.judge import judge
from tests.model.leading import leading
from tests.model.promoting import deliver, promoting
from tests.model.state import Broker, World


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
        if not broker.up:
            restarted = Broker(True, broker.disk, broker.disk, "joining", False, 0, 0)
            yield ("restart", name), put(world, i, restarted)
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
