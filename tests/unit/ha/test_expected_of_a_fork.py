"""What a new primary believes of the backups that it expects."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.model.difference import Origin
from ha.model.membership import InSync, Member
from ha.model.position import make
from ha.primary.roster import Roster
from ha.promotion.claims import Claim


@pytest.mark.parametrize(
    ("position", "writer", "acked"),
    [
        (make(1, 0x36), "id-b", make(1, 0x36)),
        (make(1, 0x50), "id-b", make(1, 0x3C)),
        (make(3, 0x37), "id-b", 0),
        (make(1, 0x36), "id-a", 0),
    ],
    ids=["behind", "ahead", "of an epoch that is not ours", "of another leader of that epoch"],
)
def test_a_position_counts_only_in_our_own_log(position: int, writer: str, acked: int) -> None:
    """The third was primary of epoch 3 over 1.0x36, while we hold 1.0x3C: its position is the higher one, and it lacks
    what we have between the two."""
    node: Any = SimpleNamespace(
        env=SimpleNamespace(now=lambda: 0.0), lineage={1: Origin("id-b"), 4: Origin("id-b", make(1, 0x3C))}
    )
    roster = Roster.__new__(Roster)
    roster._local, roster.counting = node, []
    roster.expected = {"id-c": Member("id-c", "c", "c:5672")}
    roster.record = SimpleNamespace(want=lambda change: None)  # type: ignore[assignment]
    roster.begin(Claim(2, InSync(), (), positions={"id-c": (position, writer)}), make(1, 0x3C))
    assert [peer.acked for peer in roster.counting] == [acked]
