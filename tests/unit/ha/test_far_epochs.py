"""One message of a faulty broker must not use up the epochs: one that is too far ahead is not believed."""

from __future__ import annotations

from typing import Any

import pytest

from ha.model.environment import Answer, Outcome
from ha.model.membership import InSync
from ha.model.position import FARTHEST, LAST_EPOCH, far_ahead
from ha.primary.arrivals import Arrivals
from ha.primary.peer import Peer
from ha.promotion.claims import ClaimRequest
from tests.unit.ha.world import Host, Publisher, World


def disbelieves(host: Host) -> int:
    return sum(f" {host.name} error" in line and "is not believed" in line for line in host.world.lines)


def test_what_is_believed() -> None:
    assert far_ahead(7 + FARTHEST, 7) == far_ahead(3, 7) == far_ahead(LAST_EPOCH, 0) == ""
    assert far_ahead(7 + FARTHEST + 1, 7)
    assert LAST_EPOCH // FARTHEST >= 15, "it takes many such messages"


def test_a_broker_with_a_huge_epoch_deposes_nobody_and_prevents_no_promotion() -> None:
    world = World("abcde", safety="quorum")
    world["a"].configuration.declare("q")
    world.cluster()
    a, b, c = world["a"], world["b"], world["c"]
    b.node.local.persist(epoch=60000, leader="id-b")
    b.break_links()
    world.run(3.0)
    assert a.state.is_primary and a.node.local.epoch == c.node.local.epoch == 1
    assert disbelieves(a) == 1, "it comes back again and again, and is one line"
    publisher = Publisher(a)
    publisher.publish("q", b"kept")
    world.until(lambda: publisher.confirmed == 1)
    a.kill()
    world.promote("c")
    assert c.node.local.epoch == 2 and c.contents("q") == [b"kept"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("base", [0, 60000])
def test_a_claim_of_a_huge_epoch_is_denied(force: bool, base: int) -> None:
    world = World(safety="quorum")
    world.cluster()
    b, c = world["b"], world["c"]
    answers: list[Answer] = []
    claim = ClaimRequest(60000 if not base else 2, b.node.local.member, 1 << 60, InSync(base, "id-b"), force)
    b.request("c:1", "ha.claim", claim.to_json(), 1.0, answers.append)
    world.until(lambda: bool(answers))
    assert answers[0].outcome is Outcome.ANSWERED and not answers[0].result["granted"]
    assert "is not believed" in str(answers[0].result["reason"])
    assert c.node.local.epoch == 1


def test_a_primary_with_a_huge_epoch_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(safety="quorum")
    world.cluster()
    said = Arrivals.control

    def control(self: Arrivals, peer: Peer, op: str, **fields: Any) -> None:
        said(self, peer, op, **(fields | ({"epoch": 60000} if op == "welcome" else {})))

    monkeypatch.setattr(Arrivals, "control", control)
    b = world["b"]
    b.break_links()
    world.until(lambda: disbelieves(b) > 0)
    assert b.node.local.epoch == 1
