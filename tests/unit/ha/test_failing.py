"""Backups whose links break again and again (`ha/primary/failing.py`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.local_member import LocalMember
from ha.model.membership import Member
from ha.model.pulse import Pulse
from ha.primary.failing import PROVED, FailingLinks
from ha.primary.peer import Peer, Phase

HEARTBEAT, TIMEOUT = 0.5, 10.0


def links(may_shrink: bool = True) -> FailingLinks:
    settings = SimpleNamespace(heartbeat=HEARTBEAT, backup_timeout=TIMEOUT)
    local: Any = SimpleNamespace(settings=settings, may_shrink=lambda ids: may_shrink)
    return FailingLinks(cast(LocalMember, local))


def peer(phase: Phase, heard: float = 0.0) -> Peer:
    """Complete at 0, if it is; last heard at that time."""
    return Peer(Member("id-b"), Pulse(heard, heard), phase=phase)


@pytest.mark.parametrize(
    ("phase", "heard", "fails"),
    [
        (Phase.HELLO, 0.0, False),
        (Phase.HELD, 0.0, True),
        (Phase.COPYING, 9.0, True),
        (Phase.CLOSING, 9.0, True),
        (Phase.COMPLETE, 0.9 * PROVED * HEARTBEAT, True),
        (Phase.COMPLETE, PROVED * HEARTBEAT, False),
    ],
)
def test_a_backup_fails_whose_link_breaks_before_it_is_proved(phase: Phase, heard: float, fails: bool) -> None:
    failing = links()
    failing.broke(peer(phase, heard), 10.0)
    assert failing.fails("id-b") is fails


def test_it_fails_until_a_link_is_proved() -> None:
    failing = links()
    failing.broke(peer(Phase.COPYING), 1.0)
    failing.look(peer(Phase.COMPLETE, 0.9 * PROVED * HEARTBEAT))
    assert failing.fails("id-b")
    failing.look(peer(Phase.COMPLETE, PROVED * HEARTBEAT))
    assert not failing.fails("id-b")


def test_it_is_dropped_when_it_has_failed_for_too_long_and_the_rest_is_enough() -> None:
    for enough in (True, False):
        failing, backup = links(enough), peer(Phase.COMPLETE)
        failing.broke(backup, 1.0)
        failing.broke(backup, 6.0)
        assert not failing.is_due(backup, 0.9 + TIMEOUT)
        assert failing.is_due(backup, 1.0 + TIMEOUT) is enough
        assert bool(failing.refusal("id-b", 1.1 + TIMEOUT)) is enough
        assert not failing.refusal("id-b", 1.0 + TIMEOUT + 5 * HEARTBEAT)


def test_the_wait_of_a_new_primary_counts_for_one_that_fails() -> None:
    failing, backup = links(), peer(Phase.COPYING)
    failing.has_waited("id-b")
    failing.broke(backup, 9.9)
    assert not failing.is_due(backup, 10.0), "it had not failed by then"
    failing.has_waited("id-b")
    assert failing.is_due(backup, 10.1)
