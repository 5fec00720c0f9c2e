"""A claim that arrives late, at a broker that has heard of its ballot in another way and granted nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ha.model.environment import Answer, Json
from ha.model.status import State
from tests.unit.ha.world import Host, Publisher, World

Way = tuple[str, str, str]


class SlowHost(Host):
    """Requests on these ways wait until they are let go."""

    world: SlowWorld

    def request(
        self, address: str, method: str, arguments: Json, timeout: float, done: Callable[[Answer], None]
    ) -> None:
        send = functools.partial(super().request, address, method, arguments, timeout, done)
        held = self.world.held.get((self.name, address[0], method))
        if held is None:
            send()
        else:
            held.append(send)


class SlowWorld(World):
    host_type = SlowHost

    def __init__(self, names: str = "abc", **settings: Any) -> None:
        self.held: dict[Way, list[Callable[[], None]]] = {}
        super().__init__(names, **settings)

    def hold(self, *ways: Way) -> None:
        self.held.update({way: [] for way in ways})

    def let_go(self, way: Way) -> None:
        for send in self.held.pop(way):
            send()


def test_a_ballot_that_was_only_heard_of_is_no_grant() -> None:
    world = SlowWorld(safety="quorum")
    world["a"].configuration.declare("q")
    world.cluster()
    a, b, c = world["a"], world["b"], world["c"]
    # b does not reach a and claims epoch 2; its claim is on its way to c when a hears of it and steps down.
    world.hold(("b", "a", "ha.ask"), ("b", "a", "ha.claim"), ("b", "c", "ha.claim"))
    b_promoted = b.promote()
    world.until(lambda: bool(world.held["b", "c", "ha.claim"]) and a.state is State.JOINING)
    # a asks as well: b answers and is no primary yet, c stays silent.
    world.hold(("a", "b", "ha.claim"), ("a", "c", "ha.claim"), ("a", "c", "ha.ask"))
    a_promoted = a.promote()
    world.run(0.01)
    world.let_go(("b", "c", "ha.claim"))
    world.until(lambda: bool(b_promoted))
    assert b_promoted[0]["ok"]
    publisher = Publisher(b)
    publisher.publish("q", b"kept")
    world.until(lambda: publisher.confirmed == 1)
    # a claims epoch 3.  c dies; b looks around and hears of a's ballot; only then does a's claim arrive at b.
    world.until(lambda: bool(world.held["a", "b", "ha.claim"]))
    world.held.pop(("b", "a", "ha.ask"))
    c.kill()
    world.until(lambda: b.state is State.JOINING)
    assert b.node.local.persisted.ballot == a.node.local.persisted.ballot == (3, "id-a")
    world.let_go(("a", "b", "ha.claim"))
    world.until(lambda: bool(a_promoted))
    assert not a_promoted[0]["ok"], "a is primary and lacks what b has confirmed"
    assert "knows in-sync set" in a_promoted[0]["error"]
    world.held.clear()
    world.promote("b")
    assert b.contents("q") == [b"kept"]
