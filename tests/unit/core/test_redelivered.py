"""What a client got and gave back is marked on the next primary, too, in queues that count nothing."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue
from tests.unit.core.test_returns import World, promoted


class Plain(World):
    """The queue counts no returns, and the client has no consumer."""

    def __init__(self, levels: int = 0) -> None:
        super().__init__(levels=levels)
        self.client.channel.cancel("c")

    def counting(self, engine: Engine) -> Queue:
        queue = engine.create_queue(1, "q", True)
        if self.levels:
            queue.add_levels(self.levels)
        return queue

    def publish(self, *bodies: bytes) -> None:
        """The digit is the priority."""
        for body in bodies:
            self.client.publish(body, "q", priority=int(body[-1:]))
        self.client.turn()

    def get(self, *after: Basic.Reject | Basic.Ack) -> None:
        """Takes the next message, and says this in the same turn."""
        assert self.client.channel.get(self.queue, False)
        for method in after:
            self.client.send(method)
        self.client.turn()


@pytest.mark.parametrize("levels", [0, 3])
def test_what_came_back_in_the_turn_in_which_it_was_got_is_marked(levels: int) -> None:
    world = Plain(levels)
    world.publish(b"a1", b"b1", b"c0")
    world.get(Basic.Reject(1, requeue=True))
    assert promoted(world.backup) == [(b"a1", True, None), (b"b1", False, None), (b"c0", False, None)]


def test_a_level_is_marked_though_a_higher_one_was_handed_out_further() -> None:
    world = Plain(3)
    world.publish(b"a0", b"b2")
    world.get(Basic.Ack(1))
    world.get(Basic.Reject(2, requeue=True))
    assert promoted(world.backup) == [(b"a0", True, None)]


def test_what_is_gone_when_the_turn_ends_is_not_logged() -> None:
    """An acknowledgement in the same turn costs no record, though others wait."""
    world = Plain()
    world.publish(b"a0", b"b0")
    world.operations.clear()
    world.get(Basic.Ack(1))
    assert world.operations == ["dequeue"]
