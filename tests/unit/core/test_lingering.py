"""Acknowledgements of clients wait for a batch that comes anyway, at most a millisecond; see turn.pyx."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Channel, Engine, Queue
from qpidd_py.core.reactor import Reactor
from tests.support.memory import MemoryClient, deliveries, method_octets
from tests.support.wait import wait_for
from tests.unit.core.test_returns import World, promoted

PING = bytes([8, 0, 0, 0, 0, 0, 0, 0xCE])
"""A heartbeat of a client."""


class Lingering(World):
    """The client has got the first of two messages."""

    def __init__(self) -> None:
        super().__init__()
        self.client.publish(b"a", "q")
        self.client.turn()
        self.client.channel.cancel("c")
        self.client.publish(b"b", "q")
        self.client.turn()

    def counting(self, engine: Engine) -> Queue:
        return engine.create_queue(1, "q", True)

    def acknowledge(self) -> None:
        self.client.send(Basic.Ack(1))
        assert self.ended() == [] and self.engine.unlogged and self.queue.unacked == 0

    def ended(self, linger: bool = True) -> list[str]:
        """The operations that the end of the turn has logged."""
        self.operations.clear()
        self.engine.end_turn(linger)
        return list(self.operations)

    def left(self) -> list[tuple[bytes, bool]]:
        """What a new primary hands out: (body, redelivered)."""
        return [(body, again) for body, again, _ in promoted(self.backup)]


def test_an_acknowledgement_alone_makes_no_batch_until_the_end_of_a_turn_that_does_not_linger() -> None:
    world = Lingering()
    world.acknowledge()
    assert world.ended(linger=False) == ["dequeue"] and not world.engine.unlogged
    assert world.left() == [(b"b", False)]


def test_until_then_a_new_primary_hands_it_out_again_marked() -> None:
    world = Lingering()
    world.acknowledge()
    assert world.left() == [(b"a", True), (b"b", False)]


def test_the_next_publish_takes_it_along() -> None:
    world = Lingering()
    world.acknowledge()
    world.client.publish(b"c", "q")
    assert world.ended() == ["enqueue", "dequeue"]
    assert world.left() == [(b"b", False), (b"c", False)]


def commit_nothing(channel: Channel) -> None:
    channel.tx_select()
    channel.tx_commit()


OTHERS: dict[str, Callable[[Lingering], object]] = {
    "purge": lambda world: world.engine.purge(world.queue),
    "get": lambda world: world.client.channel.get(world.queue, False),
    "mark": lambda world: world.engine.witness(),
    "configuration": lambda world: world.engine.log_config(b"x"),
    "transaction": lambda world: commit_nothing(world.client.channel),
    "joining": lambda world: world.engine.flush(),
    "tick": lambda world: world.engine.tick(),
}


@pytest.mark.parametrize("other", OTHERS)
def test_everything_for_which_somebody_may_wait_takes_it_along(other: str) -> None:
    world = Lingering()
    world.acknowledge()
    OTHERS[other](world)
    world.engine.end_turn(True)
    assert "dequeue" in world.operations and not world.engine.unlogged


@pytest.mark.parametrize("again", ["purge", "acknowledge"])
def test_a_deposed_primary_forgets_it_and_logs_what_leaves_later(again: str) -> None:
    world = Lingering()
    world.acknowledge()
    world.client.connection.close()
    world.engine.demote()
    assert not world.engine.unlogged
    world.engine.begin_epoch(2)
    if again == "purge":
        assert world.engine.purge(world.queue) == 1
        assert world.ended() == ["dequeue"]
    else:
        world.client = world.connected()
        assert [tag for tag, _, _ in deliveries(world.client.turn())] == [1]
        world.acknowledge()
        assert world.ended(linger=False) == ["dequeue"]


def test_an_engine_alone_has_nobody_to_wait_for() -> None:
    world = Lingering()
    world.engine.on_batch = None
    world.client.send(Basic.Ack(1))
    world.engine.end_turn(True)
    assert not world.engine.unlogged


class Served(MemoryClient):
    """Its octets come through a reactor; the first batch ends the reactor's wait."""

    def __init__(self) -> None:
        super().__init__(engine := Engine())
        self.queue = engine.create_queue(1, "q", True)
        self.owner.routes[b"q"] = [self.queue]
        self.publish(b"a", "q")
        self.turn()
        engine.on_batch = self._sealed
        assert self.channel.get(self.queue, False)
        self.turn()
        self.batches = 0
        self.reactor = Reactor(engine)
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        self.reactor.add(self.connection, ours)

    def _sealed(self, batch: Batch) -> None:
        self.batches = 1
        if hasattr(self, "reactor"):
            self.reactor.leave = True


@pytest.mark.parametrize("seconds", [-1.0, 20.0], ids=["for ever", "for long"])
def test_the_reactor_logs_it_though_nothing_else_comes(seconds: float) -> None:
    served = Served()
    served.peer.sendall(method_octets(Basic.Ack(1)))
    served.reactor.wait(seconds)
    assert (served.batches, served.reactor.turns) == (1, 2), "one turn for the acknowledgement, and one for the batch"


def test_turns_that_bring_no_batch_do_not_put_it_off() -> None:
    served = Served()
    served.peer.sendall(method_octets(Basic.Ack(1)))
    served.reactor.wait(0.0)
    assert served.batches == 0 and served.engine.unlogged

    def another_turn() -> bool:
        served.peer.sendall(PING)
        served.reactor.wait(0.0)
        return bool(served.batches)

    wait_for(another_turn)


def test_waits_that_end_at_once_do_not_put_it_off() -> None:
    served = Served()
    served.peer.sendall(method_octets(Basic.Ack(1)))

    def waited() -> bool:
        served.reactor.wait(0.0)
        return bool(served.batches)

    wait_for(waited)


def test_a_reactor_under_another_loop_does_not_wait() -> None:
    served = Served()
    served.peer.sendall(method_octets(Basic.Ack(1)))
    served.reactor.poll()
    assert served.batches == 1
