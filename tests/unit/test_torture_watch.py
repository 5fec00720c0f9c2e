"""What torture makes of a broker's answer to `ha.query`."""

from __future__ import annotations

from ha.shell.recovering import Recovering
from torture.manager import Seen, decide
from torture.watch import View


class Reading:
    def __str__(self) -> str:
        return "half of it"

    def shown(self) -> dict[str, float]:
        return {"read": 0.5}


def test_a_broker_that_reads_its_journal_is_alive_and_the_last_to_be_promoted() -> None:
    """Its answer lacks most of what a member's has: the manager ended with it."""
    facts = Recovering("node1", Reading, "")._query({}, "")
    reads = View(1.0, facts)
    assert (reads.whole, reads.id, reads.position, reads.epoch) == (False, "", 0, 0)
    assert reads.set_key == (0, "", 0) and reads.set_ids == frozenset() and not reads.is_primary
    member = View(1.0, {"status": "joining", "whole": True, "position": 7})
    hears = frozenset(("node1", "node2"))
    seen = [Seen("node1", True, reads, True, hears), Seen("node2", True, member, True, hears)]
    plan = decide(seen, fences=True)
    assert plan.candidates == ("node2", "node1") and not plan.kill
