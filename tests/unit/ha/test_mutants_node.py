"""A broker's changes of role at the edges: what a small mistake in `node.py` would change."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.model.difference import Origin
from ha.model.environment import EXIT_TWIN
from ha.model.membership import InSync, Member
from ha.model.operations import Membership
from ha.model.position import make
from ha.model.protocol import Kind
from ha.model.status import State
from ha.node import Node
from ha.primary.primary import Primary
from ha.promotion.claims import Claim, ClaimRequest
from ha.promotion.promoter import Wish
from qpidd_py.errors import EXIT_DISK, InvariantError, LinkError, ReplyCode
from tests.simulator.mistakes_safety import patched
from tests.unit.ha.world import Host, World

Call = tuple[Any, ...]


def noting(calls: list[Call], name: str) -> Callable[..., None]:
    return lambda *given, **named: calls.append((name, *given, *named.values()))


def role(calls: list[Call], names: str, **values: Any) -> Any:
    """A role that notes what it is told; neither primary nor backup."""
    return SimpleNamespace(**{name: noting(calls, name) for name in names.split()}, **values)


class Noting:
    """An object, some of whose methods only note that they were called."""

    def __init__(self, inner: Any, calls: list[Call], names: str) -> None:
        self._inner = inner
        for name in names.split():
            setattr(self, name, noting(calls, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def alone(**settings: Any) -> Host:
    """Broker a; the others do not run.  Nothing has happened."""
    world = World(**settings)
    for name in "bc":
        world[name].kill()
    return world["a"]


def fresh(**settings: Any) -> tuple[Node, Host, list[tuple[float, Callable[[], None]]]]:
    """A node that was not started, its host and the calls that were put off."""
    host = alone(**settings)
    later: list[tuple[float, Callable[[], None]]] = []
    host.after = lambda *it: later.append(it)  # type: ignore[method-assign]
    host.events.clear()
    host.world.lines.clear()
    node = Node(host.node.local)
    node.local.state = State.STANDALONE
    return node, host, later


def request(host: Host, epoch: int = 5, claimant: str = "b", **values: Any) -> ClaimRequest:
    member = Member(f"id-{claimant}", claimant, f"{claimant}:1", "first")
    return ClaimRequest(epoch, values.pop("member", member), make(9, 0), InSync(4, "id-a", 9), **values)


class TestLife:
    def test_nothing_is_under_way_at_first(self) -> None:
        node, _, _ = fresh()
        assert (node.promoter, node.takeover, node.relocation) == (None, None, None)
        assert (type(node.role), node.role.doubt, node.local.changed) == (Backup, False, node.candidacy.look)

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
            ("begin_epoch", 3),
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


class TestClaims:
    def test_its_own_claim_is_granted(self) -> None:
        node = alone().node
        answer = node.claimed(request(alone(), member=node.local.member))
        assert answer == {"granted": True, "reason": "", "id": "id-a", "epoch": 0}
        assert node.local.persisted.ballot == (0, "")

    def test_that_of_a_twin_is_denied(self) -> None:
        host = alone()
        seen: list[Call] = []
        sightings: Any = SimpleNamespace(seen=lambda *it: seen.append(it))
        host.node.local.sightings = sightings
        twin = replace(host.node.local.member, instance="another")
        answer = host.node.claimed(request(host, member=twin))
        assert (answer["granted"], answer["abstains"]) == (False, False)
        assert "has the claimant's identity" in answer["reason"]
        assert seen == [(twin, host.node.local.member, "its claim is denied")]

    def test_one_of_the_same_instance_and_another_identity_is_another_broker(self) -> None:
        host = alone()
        other = replace(host.node.local.member, id="id-b", address="b:1")
        assert host.node.claimed(request(host, member=other))["granted"]
        assert host.node.local.persisted.ballot == (5, "id-b")

    def test_a_vote_is_on_disk_and_the_claimant_followed(self) -> None:
        host = alone()
        backup: Any = host.node.role
        calls: list[Call] = []
        backup.follow = noting(calls, "follow")
        answer = host.node.claimed(request(host))
        assert answer == {"granted": True, "reason": "", "abstains": False, "id": "id-a", "epoch": 5}
        assert (host.disk.ballot, calls) == ((5, "id-b"), [("follow", "b:1")])
        assert host.events[-1] == ("claim", {"peer": "b", "result": "granted", "reason": ""})

    def test_a_denial_has_no_effect(self) -> None:
        host = alone()
        host.node.local.persist(epoch=7, leader="id-c")
        backup: Any = host.node.role
        calls: list[Call] = []
        backup.follow = noting(calls, "follow")
        answer = host.node.claimed(request(host))
        assert (answer["granted"], answer["abstains"], answer["epoch"]) == (False, False, 7)
        assert "has seen epoch 7" in answer["reason"]
        assert (host.disk.ballot, calls) == ((7, "id-c"), [])
        assert host.events[-1][1]["result"] == "denied"

    @pytest.mark.parametrize(("force", "granted"), [(False, False), (True, True)])
    def test_who_has_lost_its_identity_abstains(self, force: bool, granted: bool) -> None:
        host = alone()
        host.node.local.lost = "lost"
        answer = host.node.claimed(request(host, force=force))
        assert (answer["granted"], answer["abstains"], answer["lost"]) == (granted, not granted, True)
        assert host.node.local.persisted.epoch == (5 if granted else 0)

    def test_it_learns_that_from_the_claim(self) -> None:
        host = alone()
        base = InSync(4, "id-c", 9, (Member("id-old", "old", "a:1"),))
        answer = host.node.claimed(replace(request(host), base=base))
        assert (answer["granted"], answer["abstains"], answer["lost"]) == (False, True, True)
        assert "its identity and its votes are lost" in answer["reason"]

    @pytest.mark.parametrize("force", [True, False])
    def test_who_cannot_store_its_vote_abstains(self, force: bool) -> None:
        host = alone()
        host.disk_error = "full"
        answer = host.node.claimed(request(host, force=force))
        assert (answer["granted"], answer["abstains"]) == (False, True)
        assert answer["reason"].endswith("a cannot store its vote: full")

    def test_a_primary_that_grants_is_deposed(self) -> None:
        world = World()
        world.cluster()
        host = world["a"]
        old = host.node.role
        newest = host.node.local.persisted.in_sync
        answer = host.node.claimed(replace(request(host), base=replace(newest, version=newest.version + 9)))
        assert answer["granted"], answer
        assert (old.stopped, host.node.role.primary_address, host.node.role.doubt) == (True, "b:1", True)
        assert any("deposed: b claims epoch 5" in line for line in world.lines)


class TestSteppingDown:
    def active(self, **settings: Any) -> Host:
        world = World(**settings)
        world.cluster()
        return world["a"]

    def test_it_is_deposed(self) -> None:
        host = self.active()
        old, calls = host.node.role, list[Call]()
        host.close_clients = noting(calls, "close clients")  # type: ignore[method-assign]
        host.configuration.on_deposed = noting(calls, "on_deposed")
        host.events.clear()
        position = host.engine.position
        host.node.depose((8, "id-c"), "heard of it", "c:1")
        role: Any = host.node.role
        assert (old.stopped, type(role), role.doubt, role._end) == (True, Backup, True, host.node.end)
        assert (host.disk.ballot, host.node.local.state) == ((8, "id-c"), State.JOINING)
        assert [call[0] for call in calls] == ["on_deposed", "close clients"]
        assert calls[1][1] is ReplyCode.CONNECTION_FORCED
        assert role.position == position
        assert [kind for kind, _ in host.events][:2] == ["demote", "state"]
        host.world.run(0.0)
        assert role.primary_address == "c:1"

    def test_it_is_deposed_though_its_disk_fails(self) -> None:
        host = self.active()
        host.disk_error = "full"
        host.node.depose((8, "id-c"), "heard of it", "c:1")
        assert isinstance(host.node.role, Backup)

    def test_it_steps_down_and_stays_whole(self) -> None:
        host = self.active()
        old = host.node.role
        host.node.demote("asked for", "b:1")
        assert (old.stopped, host.node.role.doubt, host.node.local.whole) == (True, False, True)
        assert host.node.role.primary_address == "b:1"
        assert "the primary is b:1" in host.closed_clients[-1]
        assert host.disk.ballot == (1, "id-a")

    def test_clients_are_told_the_public_address(self) -> None:
        host = self.active(public_url="x:5,y:6,z:7")
        host.node.demote("asked for", "b:1")
        assert "the primary is y:6" in host.closed_clients[-1]

    def test_its_backups_have_the_rest_before_its_links_close(self) -> None:
        host = self.active()
        old, flushed = host.node.role, list[bool]()
        engine: Any = Noting(host.engine, [], "")

        def flush() -> int:
            flushed.append(old.stopped)
            return host.engine.flush()

        engine.flush = flush
        host.node.local.engine = engine
        host.node.demote("asked for")
        assert flushed == [False, True]

    def test_what_closing_clients_changes_is_held(self) -> None:
        host = self.active()
        calls: list[Call] = []
        before = host.engine.position
        host.close_clients = lambda *it: host.configuration.declare("q")  # type: ignore[method-assign]
        engine: Any = Noting(host.engine, calls, "demote")
        host.node.local.engine = engine
        host.node.demote("asked for")
        assert host.node.role.position == host.engine.position > before
        assert calls == [("demote",)]

    def test_a_backup_has_nothing_to_step_down_from(self) -> None:
        host = alone()
        old = host.node.role
        host.node.demote("asked for")
        assert host.node.role is old

    @pytest.mark.parametrize(
        ("address", "own", "call"),
        [("c:1", "a:1", ("follow", "c:1")), ("a:1", "a:1", ("start",)), ("", "a:1", ("start",)), ("", "", ("start",))],
    )
    def test_it_begins_again(self, address: str, own: str, call: Call) -> None:
        node: Any
        node, _, _ = fresh()
        node.local.settings = replace(node.local.settings, address=own)
        calls: list[Call] = []
        node.role = role(calls, "follow start", stopped=False)
        node._begin_again(node.role, address)
        assert calls == [call]

    @pytest.mark.parametrize("end", ["another role", "stopped", "the process"])
    def test_unless_something_came_between(self, end: str) -> None:
        node: Any
        node, _, _ = fresh()
        calls: list[Call] = []
        ours = node.role = role(calls, "follow start", stopped=end == "stopped")
        if end == "another role":
            node.role = role(calls, "follow start", stopped=False)
        node.local.stopped = end == "the process"
        node._begin_again(ours, "c:1")
        assert calls == []

    def test_a_relocation_at_a_time(self) -> None:
        host = self.active()
        replies: list[Any] = []
        with pytest.raises(LinkError, match="cannot relocate: "):
            host.node.relocate("nobody", replies.append)
        assert host.node.relocation is None
        host.node.relocate("b", replies.append)
        assert host.node.relocation is not None
        with pytest.raises(LinkError, match="is being relocated already"):
            host.node.relocate("c", replies.append)
        host.world.until(lambda: bool(replies))
        assert replies[0]["ok"]
        assert (host.node.relocation, host.world["b"].state.is_primary) == (None, True)


class TestWhatAnAdministratorReads:
    @pytest.mark.parametrize(
        ("error", "slow", "vote"),
        [
            ("full", "slow", "vote: it cannot be stored: full"),
            ("full", "", "vote: it cannot be stored: full"),
            ("", "slow", "vote: slow"),
            ("", "", None),
        ],
    )
    def test_alarms(self, error: str, slow: str, vote: str | None) -> None:
        node: Any
        node, _, _ = fresh()
        node.local.disk = SimpleNamespace(error=error, slow=slow)
        node.local.alarms = {"memory": "full", "over": ""}
        assert node.alarms() == {"memory": "full", **({"vote": vote} if vote else {})}

    @pytest.mark.parametrize("first", range(8))
    def test_the_first_of_all_reasons_is_the_advice(self, first: int) -> None:
        node: Any
        node, _, _ = fresh()
        texts = ["error", "slow", "limited", "trouble", "closed", "lost", "copied"]
        values = [text if number >= first else "" for number, text in enumerate(texts)]
        error, slow, limited, trouble, closed, lost, copied = values
        node.local.disk = SimpleNamespace(error=error, slow=slow)
        node.local.limited, node.local.closed = limited, lambda: closed
        node.local.lost, node.local.copied = lost, copied
        node.role = SimpleNamespace(trouble=trouble, survey=None)
        wanted = ["its vote and in-sync set cannot be stored: error", *texts[1:], ""][first]
        assert node.advice() == wanted

    @pytest.mark.parametrize("only", ["slow", "limited", "trouble", "closed", "lost", "copied"])
    def test_each_reason_alone(self, only: str) -> None:
        node: Any
        node, _, _ = fresh()
        local = node.local
        local.disk = SimpleNamespace(error="", slow="slow" * (only == "slow"))
        local.limited, local.closed = "limited" * (only == "limited"), lambda: "closed" * (only == "closed")
        local.lost, local.copied = "lost" * (only == "lost"), "copied" * (only == "copied")
        node.role = SimpleNamespace(trouble="trouble" * (only == "trouble"), survey=None)
        assert node.advice() == only

    @pytest.mark.parametrize("keeps", [True, False])
    def test_else_what_the_survey_says(self, keeps: bool) -> None:
        host = alone()
        host.world.until(lambda: host.node.role.survey is not None)
        host.node.local.keeps = keeps
        given: list[Call] = []

        def advise(*it: Any) -> str:
            given.append(it)
            return "advice"

        with patched(sys.modules[Node.__module__], advise=advise):
            assert host.node.advice() == "advice"
        assert [call[1:] for call in given] == [(host.node.role.survey, keeps)]
