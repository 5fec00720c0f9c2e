"""A new primary has part of the log of the one before; of its transactions no client sees what may still vanish."""

from __future__ import annotations

import pytest

from ha.model.status import State
from tests.support.memory import MemoryClient, deliveries
from tests.unit.ha.world import Host, World


def reader(host: Host) -> MemoryClient:
    client = MemoryClient(host.engine)
    client.channel.consume(host.configuration.queues["q"][0], "c", False)
    return client


def commit(host: Host, *bodies: bytes) -> None:
    client = MemoryClient(host.engine, q=host.configuration.queues["q"][0])
    client.channel.tx_select()
    for body in bodies:
        client.publish(body, "q")
    client.channel.tx_commit()
    host.engine.end_turn()


def received(client: MemoryClient) -> list[bytes]:
    return [body for _, body, _ in deliveries(client.turn())]


@pytest.mark.parametrize("refuses", [False, True], ids=["silent", "refuses"])
def test_a_member_that_is_not_heard_may_lack_them(refuses: bool) -> None:
    """e has not got the transaction and is not heard, or its host refuses, which proves no death; b, c and d have it.
    Until the new set is known to a majority a manager may promote e, though it is behind, and the transaction has never
    happened."""
    world = World("abcde", safety="quorum")
    world.cluster()
    world["a"].configuration.declare("q")
    world.run(0.1)
    world.cut("e", *"abcd")
    commit(world["a"], b"one", b"two")
    world.until(lambda: all(world[name].engine.position == world["a"].engine.position for name in "bcd"), 5)
    world["a"].kill()
    if refuses:
        world.heal()
        world["e"].kill()
    world["b"].promote()
    world.until(lambda: world["b"].state is State.RECOVERING, 5)
    client = reader(world["b"])
    assert received(client) == []
    world.until(lambda: world["b"].engine.safe == world["b"].engine.position, 30)
    assert received(client) == [b"one", b"two"]
