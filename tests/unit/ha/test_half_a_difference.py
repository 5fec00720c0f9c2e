"""A whole member that is promoted while it takes over a difference has all of it or nothing.

The primary dies after each single event of the difference in turn.  The difference is a transaction: one message of
`work` is consumed, and some are published to `out1` and `out2`, more than travel at once.
"""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Tx

from ha.backup.backup import Backup
from ha.backup.staging import Staging
from tests.unit.ha.broker_world import BrokerWorld

Held = tuple[int, int, int]
"""Messages in work, out1, out2."""
NOTHING: Held = (1, 0, 0)
ALL: Held = (0, 6, 6)
BIG = b"x" * 3000


def with_a_difference() -> BrokerWorld:
    """b has lost its link for a moment and is about to come back; a has committed, but not safely, without it."""
    world = BrokerWorld("ab", heartbeat=1.0, slice_size=1024)
    world.cluster()
    client = world["a"].client()
    for queue in ("out1", "out2"):
        client.queue(queue)
    client.queue("work", BIG)
    world.run(0.1)
    world.cut("a", "b")
    backup = world["b"].node
    assert isinstance(backup.role, Backup)
    link = backup.role.link
    assert link is not None
    link.close()
    backup.link_closed(link, "broken")
    client.do(Tx.Select(), Basic.Get(queue="work"))
    client.send(1, Basic.Ack(1))
    for queue in ("out1", "out2") * 6:
        client.publish(BIG, queue)
    client.send(1, Tx.Commit())
    world["a"].engine.end_turn()
    world.heal()
    return world


def held(world: BrokerWorld, name: str) -> Held:
    work, one, two = (len(world[name].contents(queue)) for queue in ("work", "out1", "out2"))
    return work, one, two


def held_after(events: int) -> Held:
    """What b has when a dies after so many events, and b is promoted."""
    world = with_a_difference()
    assert held(world, "a") == ALL and held(world, "b") == NOTHING
    for _ in range(events):
        world.step()
    world["a"].kill()
    world.promote("b")
    return held(world, "b")


def all_outcomes() -> set[Held]:
    outcomes = [held_after(events) for events in range(90)]
    assert outcomes[0] == NOTHING and outcomes[-1] == ALL
    return set(outcomes)


def test_a_promotion_finds_all_of_a_difference_or_nothing() -> None:
    assert all_outcomes() == {NOTHING, ALL}


def test_without_staging_it_would_find_half_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Staging, "keep", lambda self: None)
    assert all_outcomes() > {NOTHING, ALL}
