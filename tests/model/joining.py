"""How a backup joins a primary and follows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ha.backup.joining import Joining
from ha.model.environment import Answer, Outcome
from ha.model.membership import Membership
from ha.model.position import epoch_of
from ha.model.protocol import VERSION, Kind, encode_control
from ha.model.view import View
from tests.model.calls import Cluster, Step, put
from tests.model.host import Host, ModelLink
from tests.model.leading import view_of
from tests.model.state import Broker, Link, World, in_sync


def joining(cluster: Cluster, world: World, i: int, broker: Broker) -> Iterator[Step]:
    """It has no promotion under way."""
    name, link = cluster.names[i], broker.link
    if broker.blank == "fresh":
        yield from _hear_of_sets(cluster, world, i, broker)
    if link is None:
        for j, other in enumerate(world.brokers):
            if other.up and other.lead is not None and broker.attempt is None:
                after = _hello(cluster, world, i, j)
                if after is not world:
                    yield ("connects to", name, cluster.names[j]), after
        return
    j = cluster.names.index(link.primary)
    lead = world.brokers[j].lead
    assert lead is not None
    if link.step == "greeting":
        yield from _cut(cluster, world, i, j, link)
    elif link.step == "syncing":
        yield ("has copied all", name, "of", link.primary), _joined(cluster, world, i, j, link)
    else:
        entry = next((entry for entry in lead.log if entry[0] > link.applied), None)
        if entry is not None:
            yield ("applies", name, f"{entry[1]} {entry[2]}"), _apply(cluster, world, i, j, link, entry)


def _hear_of_sets(cluster: Cluster, world: World, i: int, broker: Broker) -> Iterator[Step]:
    """It asks another broker, and may learn that another identity had its address."""
    for j, other in enumerate(world.brokers):
        if other.up and j != i:
            view = view_of(cluster, j, other)

            def note(host: Host, view: View = view) -> None:
                host.node.local.cluster._note({view.address: Answer(Outcome.ANSWERED, view.to_json())})

            after, _, _ = cluster.run(i, broker, ("asks", view), note)
            if after != broker:
                yield ("has lost its identity", cluster.names[i], "says", cluster.names[j]), put(world, i, after)


def _hello(cluster: Cluster, world: World, i: int, j: int) -> World:
    backup, primary = world.brokers[i], world.brokers[j]
    key = "hello", i, backup, j, primary
    found = cluster.memory.get(key)
    if found is None:
        node, ours, theirs = cluster.hosts[i].load(backup), ModelLink(), ModelLink()
        Joining(node.local, ours, node.role, node.role.position, {}).start()  # type: ignore[arg-type]

        def greeted(host: Host) -> None:
            host.node.link_accepted(theirs, {})  # type: ignore[arg-type]
            host.node.link_frame(theirs, *ours.frames[0])  # type: ignore[arg-type]

        led, _, _ = cluster.run(j, primary, key, greeted)
        if led.lead is not None and any(
            peer.id == cluster.names[i] and peer.phase == "held" for peer in led.lead.peers
        ):
            backup = backup._replace(link=Link(cluster.names[j], epoch_of(led.position), "greeting"))
        found = cluster.memory[key] = backup, led
    if found == (world.brokers[i], primary):
        return world
    return put(put(world, i, found[0]), j, found[1])


def _cut(cluster: Cluster, world: World, i: int, j: int, link: Link) -> Iterator[Step]:
    """Welcome, the list of what it holds, the cut."""
    name, leader = cluster.names[i], cluster.hosts[j].node.local.member.to_json()
    welcome = encode_control("welcome", **leader, epoch=link.epoch, version=VERSION, lineage=[])

    def listed(host: Host) -> tuple[int, int, bytes]:
        frames = host.frame(name, Kind.CONTROL, 0, encode_control("held-end")).frames
        return next(frame for frame in frames if frame[0] == Kind.CONTROL)

    led, cut, _ = cluster.run(j, world.brokers[j], ("held", name), listed)

    def join(host: Host) -> None:
        role: Any = host.node.role
        end: Any = ModelLink()
        role._joining = Joining(host.node.local, end, role, role.position, {})
        role._joining.start()
        host.node.link_frame(end, Kind.CONTROL, 0, welcome)
        if role._joining is not None:
            host.node.link_frame(end, *cut)

    label, key = ("is welcomed", name, "by", link.primary), ("cut", welcome, cut)
    after, _, writes = cluster.run(i, world.brokers[i], key, join)
    if after.link is None:
        yield label, put(world, i, after)
    else:
        after = after._replace(link=Link(link.primary, link.epoch, "syncing", led.position, led.holds))
        yield label, put(put(world, j, led), i, after)
    yield from cluster.dying(world, i, label, key, join, writes)


def _joined(cluster: Cluster, world: World, i: int, j: int, link: Link) -> World:
    after, _, _ = cluster.run(i, world.brokers[i], "joined", lambda host: host.node.role.joined(link.applied))  # type: ignore[attr-defined]
    backup = after._replace(holds=link.mask, link=link._replace(step="following", mask=0))
    return _sent(cluster, put(world, i, backup), i, j, link.applied)


def _apply(cluster: Cluster, world: World, i: int, j: int, link: Link, entry: tuple[int, str, Any]) -> World:
    position, kind, content = entry

    def apply(host: Host) -> None:
        role: Any = host.node.role
        if kind == "set":
            role.membership(position, Membership(in_sync(content[0]), content[1]))
        host.node.link_batches(role.link, position)

    after, _, _ = cluster.run(i, world.brokers[i], entry, apply)
    holds = after.holds | 1 << content if kind == "message" else after.holds
    backup = after._replace(holds=holds, link=link._replace(applied=position))
    return _sent(cluster, put(world, i, backup), i, j, position)


def _sent(cluster: Cluster, world: World, i: int, j: int, position: int) -> World:
    """The backup's word is on the wire."""
    lead, name = world.brokers[j].lead, cluster.names[i]
    assert lead is not None
    peers = tuple(peer._replace(sent=position) if peer.linked and peer.id == name else peer for peer in lead.peers)
    return put(world, j, world.brokers[j]._replace(lead=lead._replace(peers=peers)))
