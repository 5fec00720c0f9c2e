"""A backup that lacks memory leaves: it holds no half of a batch as if it were whole, and comes back by difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qpidd_py.core.memory import plan_failures
from tests.unit.ha.broker_world import BrokerWorld
from tests.unit.ha.world import LATENCY, FakeLink


@pytest.fixture(autouse=True)
def links_may_fail(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def failed(link: FakeLink, channel: int, code: int, text: str, *method: Any) -> None:
        if link.open:
            link.close()
            link.host.node.link_closed(link, text)

    monkeypatch.setattr(FakeLink, "failed", failed)
    yield
    plan_failures(0)


def world_with_a_batch() -> BrokerWorld:
    """One batch with messages for two queues, and what was taken from them, is on its way to the backups."""
    world = BrokerWorld("abc", heartbeat=0.2)
    world.cluster()
    client = world["a"].client()
    for queue in ("one", "two"):
        client.queue(queue)
    world.run(0.1)
    for i in range(40):
        for queue in ("one", "two"):
            client.publish(b"%d" % i, queue)
    world["a"].engine.end_turn()
    return world


def test_a_backup_that_lacks_memory_for_a_batch_leaves_and_comes_back() -> None:
    torn = 0
    for first in range(1, 20):
        world = world_with_a_batch()
        plan_failures(first)
        world.run(2.5 * LATENCY)
        plan_failures(0)
        for name in "bc":
            host = world[name]
            part = 0 < len(host.contents("one")) + len(host.contents("two")) < 80
            torn += part
            assert not (part and host.node.local.whole), (name, first)
        world.agree()
    assert torn > 3


def test_half_a_batch_is_no_reason_to_be_promoted() -> None:
    """The primary dies right after the batch; the one that has all of it is promoted, not the other."""
    world = world_with_a_batch()
    plan_failures(4)
    world.run(2.5 * LATENCY)
    plan_failures(0)
    (torn,) = [name for name in "bc" if not world[name].node.local.whole]
    world["a"].kill()
    world.run(0.01)
    assert world[torn].node.local.whole is False
    answer = world.promote("c" if torn == "b" else "b")
    world.run(1.0)
    world.agree()
    assert len(world[torn].contents("one")) == 40, answer
