"""What a primary may do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ha.model.environment import Exchanged, Outcome
from ha.model.protocol import Kind, encode_control
from ha.model.view import Survey, View
from ha.primary.brokers import Brokers
from qpidd_py.errors import LinkError
from tests.model.calls import Cluster, Label, Step, put, spend
from tests.model.host import Host
from tests.model.state import Broker, Exchange, Lead, PeerState, World, states_of


def leading(cluster: Cluster, world: World, i: int, broker: Broker, lead: Lead) -> Iterator[Step]:
    name = cluster.names[i]
    if world.left.publishes:
        yield ("publish at", name), _publish(cluster, world, i)
    for peer in lead.peers:
        if peer.linked and peer.sent and (peer.phase == "closing" or peer.sent > peer.received):
            yield ("hears", name, peer.id), _receive(cluster, world, i, peer)
        if peer.counts and not peer.removal and world.left.losses:
            after, _, _ = cluster.run(i, broker, ("lose", peer), lambda host, peer=peer: _lose(host, peer))  # type: ignore[misc]
            yield ("gives up", name, peer.id), spend(put(world, i, after), losses=1)
    for j, other in enumerate(world.brokers):
        if other.up and other.saved[:2] > broker.saved[:2]:
            view = view_of(cluster, j, other)
            after, _, _ = cluster.run(i, broker, ("learn", view), lambda host, view=view: _learn(host, view))  # type: ignore[misc]
            yield ("learns of", name, cluster.names[j]), put(world, i, after)
    if world.left.demotes:
        after, _, _ = cluster.run(i, broker, "demote", lambda host: host.node.demote("asked for"))
        yield ("steps down", name), spend(put(world, i, after), demotes=1)
    if world.left.members and lead.active:
        yield from _change_members(cluster, world, i)
    if lead.exchange is not None:
        yield from _recording(cluster, world, i, lead.exchange)
    elif world.left.looks and lead.change is None and (entry := world.registry[i]) is not None and entry[3]:
        # As one step: neither a ballot nor a set changes.
        registry = (*world.registry[:i], (*entry[:3], ""), *world.registry[i + 1 :])
        yield ("records that its set is in force", name), spend(world._replace(registry=registry), looks=1)


def _publish(cluster: Cluster, world: World, i: int) -> World:
    number = len(world.seen.published)

    def publish(host: Host) -> None:
        host.engine.append("message", number)
        host.engine.flush()

    after, _, _ = cluster.run(i, world.brokers[i], ("publish", number), publish)
    published = (*world.seen.published, (after.position, cluster.names[i]))
    world = put(world, i, after._replace(holds=after.holds | 1 << number))
    return spend(world._replace(seen=world.seen._replace(published=published)), publishes=1)


def _receive(cluster: Cluster, world: World, i: int, peer: PeerState) -> World:
    kind, position, body = (
        (Kind.CONTROL, 0, encode_control("complete")) if peer.phase == "closing" else (Kind.ACK, peer.sent, b"")
    )
    after, _, _ = cluster.run(
        i, world.brokers[i], ("hears", peer), lambda host: host.frame(peer.id, kind, position, body) and None
    )
    return put(world, i, after)


def _lose(host: Host, peer: PeerState) -> None:
    """As `Losses` does it after a survey."""
    node, role = host.node, host.node.role
    if peer.linked:
        role.closed(host.links[peer.id], "silent")  # type: ignore[arg-type]
    if node.local.safety.may_shrink(node.local.persisted.in_sync, [peer.id]):
        roster: Any = role.roster  # type: ignore[attr-defined]
        roster.remove([found for found in roster.counting if found.id == peer.id and not found.removal])


def _learn(host: Host, view: View) -> None:
    role: Any = host.node.role
    role.learn(Survey((view,), {view.address: Outcome.ANSWERED}, {view.address: view.id}))


def view_of(cluster: Cluster, j: int, broker: Broker) -> View:
    """What it says of itself."""
    key = "view", j, shown(broker)
    if key not in cluster.memory:
        cluster.hosts[j].load(broker)
        cluster.memory[key] = cluster.hosts[j].node.view()
    return cluster.memory[key]  # type: ignore[no-any-return]


def shown(broker: Broker) -> tuple[object, ...]:
    """All that a view depends on."""
    former = broker.lead.former if broker.lead is not None else None
    return broker.up, broker.saved, broker.state, broker.whole, broker.position, broker.blank, former


def _change_members(cluster: Cluster, world: World, i: int) -> Iterator[Step]:
    for other in cluster.addresses:
        for action in ("add", "remove"):

            def change(host: Host, action: str = action, other: str = other) -> None:
                try:
                    Brokers(host.node.local, lambda: host.node.role)._change(action, other, lambda answer: None)
                except LinkError:
                    pass

            after, _, _ = cluster.run(i, world.brokers[i], (action, other), change)
            if after != world.brokers[i]:
                yield (action, other, "at", cluster.names[i]), spend(put(world, i, after), members=1)


def _recording(cluster: Cluster, world: World, i: int, exchange: Exchange) -> Iterator[Step]:
    """The registry, as the primary calls it."""
    name, broker = cluster.names[i], world.brokers[i]
    lead = broker.lead
    assert lead is not None
    for label, after, found in registry_steps(world, i, name, exchange):
        yield label, put(after, i, broker._replace(lead=lead._replace(exchange=found)))
    if exchange.step == "read":
        states = states_of(exchange.states)
        answered, changing = broker._replace(lead=lead._replace(exchange=None)), lead.change is not None

        def answer(host: Host) -> None:
            recorder = host.node.role.roster.record  # type: ignore[attr-defined]
            (recorder._exchanged if changing else recorder._watched)(Exchanged(states))

        after_it, _, _ = cluster.run(i, answered, ("answer", exchange), answer)
        yield ("the registry answers", name), put(world, i, after_it)
    if exchange.step != "asked":
        again = lead._replace(exchange=Exchange(exchange.entry, "asked"))
        yield ("the registry's answer is lost to", name), put(world, i, broker._replace(lead=again))


def registry_steps(world: World, i: int, name: str, exchange: Exchange) -> Iterator[tuple[Label, World, Exchange]]:
    """First our entry is written, then all are read: `Environment.exchange`."""
    if exchange.step == "asked":
        registry = (*world.registry[:i], exchange.entry, *world.registry[i + 1 :])
        yield (
            ("the registry takes the entry of", name),
            world._replace(registry=registry),
            exchange._replace(step="written"),
        )
    elif exchange.step == "written":
        yield ("the registry is read for", name), world, Exchange(exchange.entry, "read", world.registry)
