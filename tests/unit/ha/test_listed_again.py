"""A backup comes back while its removal is being written into the registry."""

from __future__ import annotations

from collections.abc import Callable

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.model.status import State
from ha.primary.peer import Phase
from ha.primary.primary import Primary
from tests.unit.ha.world import Host, Publisher, World


class HeldHost(Host):
    """While `held` is a list, what the registry answers waits in it."""

    held: list[Callable[[], None]] | None = None

    def exchange(self, state: HaState | None, timeout: float, done: Callable[[Exchanged], None]) -> None:
        def answered(end: Exchanged) -> None:
            if self.held is None:
                done(end)
            else:
                self.held.append(lambda: done(end))

        super().exchange(state, timeout, answered)


class HeldWorld(World):
    host_type = HeldHost


def test_a_backup_that_does_not_know_of_its_removal_is_not_listed_again() -> None:
    world = HeldWorld("ab", registry=True, isolation_wait=0.0)
    world["a"].configuration.declare("q")
    world.cluster()
    a, b = world["a"], world["b"]
    assert isinstance(a, HeldHost)
    # a loses b: the smaller set is written, and the answer of the registry is on its way.
    a.held = []
    world.cut("a", "b")
    world.until(lambda: '"version": 3' in world.registry["a"])
    world.heal()
    primary = a.node.role
    assert isinstance(primary, Primary)
    world.until(lambda: any(peer.phase is Phase.COMPLETE for peer in primary.roster.counting))
    # What is published now does not reach b, and is confirmed without it.
    world.cut("a", "b")
    publisher = Publisher(a)
    publisher.publish("q", b"kept")
    for answer in a.held:
        answer()
    a.held = None
    world.run(0.01)
    assert publisher.confirmed == 1
    assert b.node.local.whole
    assert "cannot be promoted" in world.refused("b")
    # It is listed as soon as it has heard of its removal, and holds everything then.
    world.heal()
    world.until(lambda: b.state is State.READY and b.node.local.id in a.node.local.persisted.in_sync)
    assert b.contents("q") == [b"kept"]
