"""What torture makes of a broker's answer to `ha.query`."""

from __future__ import annotations

import time
from random import Random
from types import SimpleNamespace
from typing import Any

from ha.shell.recovering import Recovering
from torture.manager import Manager, Seen, decide, rules_for
from torture.watch import View


class Reading:
    def __str__(self) -> str:
        return "half of it"

    def shown(self) -> dict[str, float]:
        return {"read": 0.5}


def test_a_broker_that_reads_its_journal_is_alive_and_is_not_asked_to_become_primary() -> None:
    """Its answer lacks most of what a member's has: the manager ended with it."""
    facts = Recovering("node1", Reading, "")._query({}, "")
    reads = View(1.0, facts)
    assert (reads.whole, reads.id, reads.position, reads.epoch) == (False, "", 0, 0)
    assert reads.set_key == (0, "", 0) and reads.set_ids == frozenset() and not reads.is_primary
    member = View(1.0, {"status": "joining", "whole": True, "position": 7})
    hears = frozenset(("node1", "node2"))
    seen = [Seen("node1", True, reads, True, hears), Seen("node2", True, member, True, hears)]
    plan = decide(seen, fences=True)
    assert plan.candidates == ("node2",) and not plan.kill


def test_one_that_reads_its_journal_and_is_slow_to_answer_is_not_killed_for_a_promotion() -> None:
    """It would begin again, and again be too slow.  One that was asked to become primary may be primary."""
    clock = time.monotonic()
    broker: Any = SimpleNamespace(
        name="node1", started=clock - 60, responsive=True, member=True, host=SimpleNamespace(address="1")
    )
    facts = Recovering("node1", Reading, "")._query({}, "")
    watch: Any = SimpleNamespace(view=View(clock - 30, facts), fresh=View)
    manager = Manager([broker], {"node1": watch}, lambda one, other: True, rules_for("manager"), Random(1), print)
    (seen,) = manager.seen()
    assert not seen.alive and not seen.known
    manager._asked["node1"] = clock - 40
    assert manager.seen()[0].known
    manager._asked["node1"] = clock - 70
    assert not manager.seen()[0].known, "that was in its life before"
    watch.view = View(clock - 30, {"status": "joining"})
    assert manager.seen()[0].known
