"""A broker's changes of role at the edges: what a small mistake in `node.py` would change."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from ha.backup.backup import Backup
from ha.model.difference import Origin
from ha.model.environment import EXIT_TWIN
from ha.model.membership import InSync, Membership
from ha.model.position import make
from ha.model.protocol import Kind
from ha.model.status import State
from ha.primary.primary import Primary
from ha.promotion.claims import Claim
from ha.promotion.promoter import Wish
from qpidd_py.errors import EXIT_DISK, InvariantError, LinkError
from tests.unit.ha.node_lab import Call, Noting, alone, fresh, noting, role
from tests.unit.ha.world import Host, World


class TestLife:
    def test_nothing_is_under_way_at_first(self) -> None:
        node, _, _ = fresh()
        assert (node.promoter, node.takeover, node.relocation) == (None, None, None)
        assert (type(node.role), node.role.doubt) == (Backup, False)

    def test_a_change_is_told_to_the_candidacy_and_to_who_waits_for_one(self) -> None:
        node, _, _ = fresh()
        calls: list[str] = []
        node.noticed = lambda: calls.append("noticed")
        with patch.object(node.candidacy, "look", lambda: calls.append("look")):
            for told in (node.local.changed, node.promotion_ended, node.takeover_ended):
                told()
        assert calls == ["look", "noticed", "noticed", "noticed"]

    def test_it_starts(self) -> None:
        node, host, later = fresh(heartbeat=0.5)
        node.start()
        assert node.local.state is State.JOINING
        assert (0.125, node._tick) in later
        assert not any("wanted 3 or more" in line for line in host.world.lines)

    def test_a_fragile_cluster_is_warned_of(self) -> None:
        node, host, _ = fresh(brokers=("a:1", "b:1"), safety="quorum")
        node.start()
        assert any("quorum with 2 brokers" in line for line in host.world.lines)

    @pytest.mark.parametrize("whole", [True, False])
    def test_what_a_journal_brought_back_is_in_doubt_if_it_counts(self, whole: bool) -> None:
        node, _, _ = fresh()
        local: Any = node.local
        restored: list[Call] = []

        def restore(*given: Any) -> None:
            restored.append(given)
            local.whole = whole

        local.restore = restore
        content: Any = "content"
        node.restore(content, 7)
        assert restored == [("content", 7)]
        assert isinstance(node.role, Backup)
        assert (node.role._doubt, node.role._stood) == (whole, whole)
        node.role._end("gone")
        assert node.local.stopped

    def test_it_ends_with_the_reason(self) -> None:
        node, host, _ = fresh()
        calls: list[Call] = []
        host.end = noting(calls, "end")  # type: ignore[method-assign]
        node.role = role(calls, "stop")
        node.end("a copy")
        assert (calls, node.local.stopped) == ([("stop",), ("end", "a copy", EXIT_TWIN)], True)


class TestTicks:
    def ticking(self, hangs: float = 0.0) -> tuple[Any, Host, list[Call], list[tuple[float, Callable[[], None]]]]:
        node: Any
        node, host, later = fresh(heartbeat=0.5)
        calls: list[Call] = []
        node.role = role(calls, "tick stop", patience=1.0, position=make(1, 5))
        node.candidacy = role(calls, "tick look")
        watch = SimpleNamespace(look=lambda: hangs, hangs="its disk hangs")
        node.local.journal_watch = watch
        host.end = noting(calls, "end")  # type: ignore[method-assign]
        return node, host, calls, later

    @pytest.mark.parametrize("hangs", [0.0, 1.0])
    def test_role_and_candidacy_are_told(self, hangs: float) -> None:
        node, host, calls, later = self.ticking(hangs)
        node._tick()
        assert [call[0] for call in calls] == ["tick", "tick"]
        assert [kind for kind, _ in host.events] == ["repl_recv"]
        assert later == [(0.125, node._tick)]

    def test_none_after_the_end(self) -> None:
        node, _, calls, later = self.ticking()
        node.local.stopped = True
        node._tick()
        assert (calls, later) == ([], [])

    def test_a_disk_that_hangs_for_too_long_ends_it(self) -> None:
        node, _, calls, later = self.ticking(1.1)
        node._tick()
        assert calls == [("stop",), ("end", "its disk hangs; others can do without this broker", EXIT_DISK)]
        assert later == []

    @pytest.mark.parametrize("due", [True, False])
    def test_the_disk_is_tried_when_it_is_due(self, due: bool) -> None:
        node, _, _, _ = self.ticking()
        tried: list[Call] = []
        node.local.disk = SimpleNamespace(due=due, slow="")
        node.local.can_store = noting(tried, "try")
        node._tick()
        assert tried == [("try",)] * due

    def test_positions_are_noted_once_a_second_if_they_have_changed(self) -> None:
        node, host, _, _ = self.ticking()
        seen = []
        for moment, sequence in ((0.0, 5), (0.5, 6), (0.99, 6), (1.0, 6), (2.5, 6), (2.6, 7)):
            host.world.clock, node.role.position = moment, make(1, sequence)
            host.events.clear()
            node._sample()
            seen.append([(kind, fields["last_pos"]) for kind, fields in host.events])
        assert seen == [
            [("repl_recv", make(1, 5))],
            [],
            [],
            [("repl_recv", make(1, 6))],
            [],
            [("repl_recv", make(1, 7))],
        ]

    @pytest.mark.parametrize(("position", "safe"), [(0, 1), (1, 0)])
    def test_the_first_positions_are_noted(self, position: int, safe: int) -> None:
        node, host, _, _ = self.ticking()
        node.role.position = position
        node.local.engine = SimpleNamespace(safe=safe)
        node._sample()
        assert [kind for kind, _ in host.events] == ["repl_recv"]

    def test_at_the_beginning_there_is_nothing_to_note(self) -> None:
        node, host, _, _ = self.ticking()
        node.role.position = 0
        node.local.engine = SimpleNamespace(safe=0)
        node._sample()
        assert host.events == []

    def test_a_primary_notes_what_it_sent_and_confirmed(self) -> None:
        node, host, _, _ = self.ticking()
        node.local.state = State.ACTIVE
        node.local.engine = SimpleNamespace(safe=make(1, 3))
        node._sample()
        found = [(kind, fields["last_pos"]) for kind, fields in host.events]
        assert found == [("repl_send", make(1, 5)), ("confirm_sent", make(1, 3))]


class TestPassedOn:
    def test_to_the_role(self) -> None:
        node: Any
        node, _, _ = fresh()
        calls: list[Call] = []
        node.role = role(calls, "accepted frame batches closed batch durable limited")
        node.local.journal = role(calls, "batch")
        node.link_accepted("link", {})
        node.link_frame("link", Kind.ACK, 4, b"x")
        node.link_batches("link", 5)
        node.link_closed("link", "reset")
        node.batch("batch")
        node.durable(6)
        node.limited("no memory")
        assert calls == [
            ("accepted", "link", {}),
            ("frame", "link", Kind.ACK, 4, b"x"),
            ("batches", "link", 5),
            ("closed", "link", "reset"),
            ("batch", "batch"),
            ("batch", "batch"),
            ("durable",),
            ("limited",),
        ]
        assert node.local.limited == "no memory"

    def test_a_fault_of_the_peer_breaks_the_link(self) -> None:
        node: Any
        node, _, _ = fresh()
        calls: list[Call] = []
        error = LinkError("gap")

        def fails(*given: Any) -> None:
            raise error

        node.role = role(calls, "break_link", frame=fails, batches=fails)
        node.link_frame("link", Kind.ACK, 4, b"x")
        node.link_batches("link", 4)
        assert calls == [("break_link", "link", error)] * 2

    def test_what_is_for_a_backup_only(self) -> None:
        node: Any
        node, _, _ = fresh()
        calls: list[Call] = []
        names = "membership pause resume search_again"
        backup: Any = node.role
        for name in names.split():
            setattr(backup, name, noting(calls, name))
        node.membership(7, Membership(InSync(1, "id-a", 2), "id-b").encode())
        node.pause_backup()
        node.resume_backup()
        node.search_again()
        assert [call[0] for call in calls] == names.split()
        assert (calls[0][1], calls[0][2].added) == (7, "id-b")
        node.role = role(calls, names)
        calls.clear()
        node.membership(7, b"")
        node.pause_backup()
        node.resume_backup()
        node.search_again()
        assert calls == []

    def test_alarms_begin_and_end(self) -> None:
        node, host, _ = fresh()
        node.alarm("memory", "full")
        assert node.local.alarms == {"memory": "full"}
        node.alarm("memory", "")
        node.alarm("memory", "")
        assert node.local.alarms == {}
        assert [fields["result"] for _, fields in host.events] == ["begun", "ended", "ended"]


class TestPromotion:
    @pytest.mark.parametrize("state", [State.ACTIVE, State.RECOVERING, State.STANDALONE])
    def test_of_a_primary_changes_nothing(self, state: State) -> None:
        node, _, _ = fresh()
        node.local.state = state
        replies: list[Any] = []
        node.promote(replies.append)
        assert (replies, node.promoter) == ([{"ok": True, "result": {}}], None)

    def test_who_asks_while_one_is_under_way_gets_its_answer(self) -> None:
        host = alone()
        node = host.node
        one, two = host.promote(), host.promote()
        promoter = node.promoter
        assert promoter is not None
        assert len(promoter.replies) == 2
        host.world.until(lambda: bool(one and two))
        assert (one, node.promoter) == (two, None)

    @pytest.mark.parametrize(("takeover", "waits"), [(True, ["takeover"]), (False, ["promoter"])])
    def test_a_takeover_under_way_takes_in_only_takeovers(self, takeover: bool, waits: list[str]) -> None:
        host = alone()
        node: Any = host.node
        node.takeover, node.promoter = SimpleNamespace(replies=[]), SimpleNamespace(replies=[])
        host.promote(takeover=takeover)
        assert [name for name in ("takeover", "promoter") if getattr(node, name).replies] == waits

    def test_without_one_a_takeover_is_a_promotion(self) -> None:
        host = alone()
        host.promote(takeover=True)
        assert host.node.promoter is not None
        assert host.node.promoter._wish == Wish(takeover=True)

    @pytest.mark.parametrize(
        ("promoting", "follows", "may"), [(False, False, False), (True, False, True), (False, True, True)]
    )
    def test_it_may_follow(self, promoting: bool, follows: bool, may: bool) -> None:
        node: Any
        node, _, _ = fresh()
        node.promoter = SimpleNamespace() if promoting else None
        node.role = SimpleNamespace(outlook=SimpleNamespace(follows=follows))
        assert node.may_follow is may
        node.promotion_ended()
        node.takeover = node.relocation = "under way"
        node.takeover_ended()
        node.relocation_ended()
        assert (node.promoter, node.takeover, node.relocation) == (None, None, None)

    def test_another_primary_is_asked_to_hand_over(self) -> None:
        host = World()["a"]
        calls: list[Call] = []
        host.request = noting(calls, "request")  # type: ignore[method-assign]
        replies: list[Any] = [calls.append]
        wish = Wish(takeover=True)
        host.node.take_over(host.world["b"].node.view(), wish, replies)
        takeover: Any = host.node.takeover
        assert takeover.replies is replies
        assert [call[:2] for call in calls] == [("request", "b:1")]

    def promoted(self, host: Host, claim: Claim, forced: bool = False) -> str:
        host.node.local.persist(epoch=claim.epoch, leader=host.node.local.id)
        host.events.clear()
        return host.node.become_primary(claim, forced)

    def test_only_with_its_own_vote(self) -> None:
        host = alone()
        with pytest.raises(InvariantError, match=r"claimed epoch 3, voted \(0, ''\)"):
            host.node.become_primary(Claim(3, InSync(), (host.node.local.member,)))

    def test_it_becomes_primary(self) -> None:
        host = alone()
        local: Any = host.node.local
        backup, calls = host.node.role, list[Call]()
        local.journal = role(
            calls, "begin_again note batch flush", complete=False, position=0, waiting=0, hangs="", keeps=False
        )
        local.configuration.on_promoted = noting(calls, "on_promoted")
        local.engine = Noting(host.engine, calls, "merge begin_epoch")
        base = InSync(1, "id-b", 4, (local.member,))
        assert "total failure" in self.promoted(host, Claim(3, base, (local.member,), whole=False))
        assert backup.stopped
        assert isinstance(host.node.role, Primary)
        assert (local.whole, local.led, local.lineage) == (True, {3}, {3: Origin("id-a", 0)})
        assert local.persisted.in_sync == base.succeed(3, "id-a", (local.member,))
        names = "merge", "begin_epoch", "begin_again", "on_promoted"
        assert [call for call in calls if call[0] in names] == [
            ("begin_epoch", 3, 3),
            ("begin_again",),
            ("on_promoted",),
        ]

    def test_a_whole_one_continues_the_log(self) -> None:
        host = alone()
        local: Any = host.node.local
        calls: list[Call] = []
        local.journal = role(calls, "begin_again note batch", complete=True, position=0, waiting=0)
        local.whole = True
        backup: Any = host.node.role
        backup.holds_all(make(1, 40))
        assert self.promoted(host, Claim(3, InSync(1, "id-b", 4, (local.member,)), (local.member,))) == ""
        assert local.lineage == {3: Origin("id-a", make(1, 40))}
        assert ("begin_again",) not in calls
        assert [fields["attrs"] for kind, fields in host.events if kind == "promoted"] == [
            {"members": 1, "base": make(1, 40)}
        ]

    @pytest.mark.parametrize(
        ("forced", "whole", "version", "safety", "warning", "attrs"),
        [
            (True, False, 4, "quorum", "promoted by force", {"forced": "true"}),
            (False, False, 4, "quorum", "promoted after a total failure", {"total_failure": "true"}),
            (False, False, 4, "availability", "promoted without holding everything", {}),
            (False, False, 0, "quorum", "", {}),
            (False, False, 0, "availability", "", {}),
            (False, True, 4, "quorum", "", {}),
            (False, True, 4, "availability", "", {}),
            (False, True, 0, "quorum", "", {}),
        ],
    )
    def test_what_may_be_lost_is_said(
        self, forced: bool, whole: bool, version: int, safety: str, warning: str, attrs: dict[str, str]
    ) -> None:
        host = alone(safety=safety)
        claim = Claim(3, InSync(1, "id-b", version), (host.node.local.member,), whole)
        said = host.node._say_promoted(claim, forced, 0)
        assert said.startswith(warning)
        assert bool(said) is bool(warning)
        assert host.events[-1][1]["attrs"] == {"members": 1, **attrs}
        assert any("warning: promoted" in line for line in host.world.lines) is bool(warning)
