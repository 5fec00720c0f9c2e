"""Claims, stepping down and what is shown: what a small mistake in `node.py` would change."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.model.membership import InSync, Member
from ha.model.status import State
from ha.node import Node
from qpidd_py.errors import LinkError, ReplyCode
from tests.simulator.mistakes_safety import patched
from tests.unit.ha.node_lab import Call, Noting, alone, fresh, noting, request, role
from tests.unit.ha.world import Host, World


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
        position, safe = host.engine.position, host.engine.safe
        host.node.depose((8, "id-c"), "heard of it", "c:1")
        role: Any = host.node.role
        assert (old.stopped, type(role), role.doubt, role._end) == (True, Backup, True, host.node.end)
        assert (host.disk.ballot, host.node.local.state) == ((8, "id-c"), State.JOINING)
        assert [call[0] for call in calls] == ["on_deposed", "close clients"]
        assert calls[1][1] is ReplyCode.CONNECTION_FORCED
        assert role.position == position
        assert [kind for kind, _ in host.events][:2] == ["demote", "state"]
        said = {"reason": "heard of it", "last_pos": position, "attrs": {"confirmed": str(safe)}}
        assert host.events[0][1] == said
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
