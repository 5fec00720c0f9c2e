"""The backup role at the edges: what a small mistake in `backup.py` would change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.backup.finder import Stage
from ha.backup.joining import JoinStep
from ha.model.clock_readings import encode
from ha.model.environment import Outcome, StateNotStored
from ha.model.logins import DIGEST, encode_logins
from ha.model.membership import InSync, Member, Membership
from ha.model.protocol import Kind, decode_control, encode_control
from ha.model.status import State
from ha.model.view import Survey
from qpidd_py.errors import LinkError
from tests.unit.ha.backup_lab import HELD, LATER, NEW, SET, A, Alone, Call


class TestBeginAndEnd:
    def test_it_is_as_it_was_made(self) -> None:
        local = Alone().local
        end: Any = None
        backup: Any = Backup(local, end)
        assert (backup.leader, backup.link, backup.step, backup.doubt, backup.stood) == (None, None, None, False, False)
        assert (backup.position, backup.hushed, backup.primary_address, backup.survey) == (HELD, frozenset(), "", None)
        assert Backup(local, end, doubt=True).doubt
        assert not Backup(local, end, doubt=True).stood
        assert Backup(local, end, stood=True).stood

    def test_it_stops_and_is_not_resumed(self) -> None:
        alone = Alone()
        alone.backup.stop()
        assert alone.done() == [("close",), ("pause",)]
        alone.backup.resume()
        assert (alone.backup.stopped, alone.backup.link, alone.done()) == (True, None, [])

    def test_a_promotion_that_fails_resumes_the_search(self) -> None:
        alone = Alone(linked=False)
        alone.backup.pause()
        alone.backup.resume()
        assert alone.done() == [("pause",), ("resume",)]
        assert not alone.backup.stopped

    def test_a_claim_that_was_granted_is_followed_in_doubt(self) -> None:
        alone = Alone()
        alone.backup.follow("c:1")
        assert alone.done() == [("close",), ("follow", "c:1")]
        assert (alone.backup.doubt, alone.backup.stood, alone.backup.link) == (True, False, None)

    def test_start_expect_and_search_again_reach_the_finder(self) -> None:
        alone = Alone(linked=False)
        alone.backup.start()
        alone.backup.search_again()
        alone.backup.expect("c:1")
        assert alone.done() == [("search",), ("search",), ("expect", "c:1")]

    @pytest.mark.parametrize(("heard", "searches"), [(None, []), (True, []), (False, [("search",)])])
    def test_a_broker_that_asks_and_was_silent_is_surveyed(self, heard: bool | None, searches: list[Call]) -> None:
        alone = Alone(linked=False)
        views: Any = (SimpleNamespace(id="id-c"),) if heard else ()
        alone.finder.survey = None if heard is None else Survey(views, {})
        alone.backup.asked_by("id-c")
        assert alone.done() == searches


class TestWhatOthersSee:
    @pytest.mark.parametrize(
        ("hint", "leader", "stage", "address"),
        [
            ("c:1", A, Stage.FOUND, "c:1"),
            ("", A, Stage.FOUND, "a:1"),
            ("", A, Stage.CONNECTING, "a:1"),
            ("", A, Stage.SEARCHING, ""),
            ("", None, Stage.FOUND, ""),
            ("", None, Stage.SEARCHING, ""),
        ],
    )
    def test_the_address_of_the_primary(self, hint: str, leader: Member | None, stage: Stage, address: str) -> None:
        alone = Alone()
        alone.finder.hint, alone.finder.stage, alone.backup.leader = hint, stage, leader
        assert alone.backup.primary_address == address

    def test_who_was_silent_is_hushed(self) -> None:
        alone = Alone()
        alone.finder.survey = Survey((), {"b:1": Outcome.ANSWERED, "c:1": Outcome.SILENT, "d:1": Outcome.REFUSED})
        assert alone.backup.hushed == {"c:1"}
        alone.backup.lost("silent", silent=True)
        assert alone.backup.hushed == {"c:1", "a:1"}
        alone.finder.survey = None
        assert alone.backup.hushed == {"a:1"}
        alone.backup.lost("closed")
        assert alone.backup.hushed == frozenset()

    @pytest.mark.parametrize(("stage", "settled"), [(Stage.SEARCHING, False), (Stage.CONNECTING, True)])
    def test_its_outlook(self, stage: Stage, settled: bool) -> None:
        alone = Alone()
        alone.finder.stage, alone.finder.survey, alone.finder.heard = stage, Survey((), {}), ["c"]
        outlook = alone.backup.outlook
        assert (next(iter(vars(outlook).values())), outlook.survey, outlook.heard) == (settled, Survey((), {}), ("c",))

    def test_another_broker_that_connects_is_refused(self) -> None:
        alone = Alone()
        alone.backup.accepted(alone.link, {})
        (_, kind, position, body), closed = alone.done()
        op, fields = decode_control(body)
        assert (kind, position, op, closed) == (Kind.CONTROL, 0, "refused", ("close",))
        assert "the primary is a:1" in fields["reason"]

    def test_its_link_and_step(self) -> None:
        alone = Alone()
        assert (alone.backup.link, alone.backup.step) == (alone.link, JoinStep.FOLLOWING)


class TestFrames:
    def test_frames_of_an_earlier_link_are_dropped(self) -> None:
        alone = Alone()
        other: Any = SimpleNamespace()
        alone.backup.frame(other, Kind.CONTROL, 0, encode_control("alive", number=3))
        alone.backup.batches(other, LATER)
        alone.backup.closed(other, "late")
        assert alone.done() == []
        alone.backup._joining = None
        alone.backup.frame(alone.link, Kind.CONTROL, 0, encode_control("alive", number=3))
        alone.backup.batches(alone.link, LATER)
        assert (alone.done(), alone.backup.position) == ([], HELD)

    def test_who_asks_whether_it_lives_is_answered_with_the_number(self) -> None:
        alone = Alone()
        alone.control("alive", number=3)
        assert alone.done() == [("control", "alive", 3)]

    def test_other_frames_and_controls_reach_the_conversation(self) -> None:
        alone = Alone()
        alone.backup.frame(alone.link, Kind.DROP, 9, b"x")
        alone.control("cut", position=1)
        assert alone.done() == [("on_frame", Kind.DROP, 9, b"x"), ("on_control", "cut", {"position": 1})]

    def test_digests_of_logins_are_learned_by_who_keeps_them(self) -> None:
        alone = Alone()
        digests = {"guest": b"1" * DIGEST}
        alone.backup.frame(alone.link, Kind.LOGINS, 0, encode_logins(digests))
        assert alone.done() == [("on_frame", Kind.LOGINS, 0, encode_logins(digests))]
        alone.local.logins = alone._double("learn")
        alone.backup.frame(alone.link, Kind.LOGINS, 0, encode_logins(digests))
        alone.backup.frame(alone.link, Kind.DROP, 0, b"")
        assert alone.done() == [("learn", digests), ("on_frame", Kind.DROP, 0, b"")]

    @pytest.mark.parametrize(
        ("step", "position", "gap"),
        [
            (JoinStep.FOLLOWING, HELD, False),
            (JoinStep.FOLLOWING, HELD + 1, True),
            (JoinStep.FOLLOWING, HELD - 1, False),
            (JoinStep.SYNCING, HELD + 1, False),
        ],
    )
    def test_a_gap_in_the_log_is_seen(self, step: JoinStep, position: int, gap: bool) -> None:
        alone = Alone()
        alone.joining.step = step
        if gap:
            with pytest.raises(LinkError, match="the log has a gap"):
                alone.backup.frame(alone.link, Kind.HEARTBEAT, position, b"")
        else:
            alone.backup.frame(alone.link, Kind.HEARTBEAT, position, b"")

    @pytest.mark.parametrize(("primary", "events"), [("a", [("event", "clock")]), ("", [])])
    def test_the_clock_of_a_primary_that_has_admitted_us_is_noted(self, primary: str, events: list[Call]) -> None:
        alone = Alone()
        alone.joining.primary = primary
        alone.backup.frame(alone.link, Kind.HEARTBEAT, HELD, encode(5_000))
        assert alone.done() == events

    @pytest.mark.parametrize(
        ("twin", "whole", "ends"), [(True, False, True), (True, True, False), (False, False, False)]
    )
    def test_only_a_fresh_copy_ends_when_it_is_refused(self, twin: bool, whole: bool, ends: bool) -> None:
        alone = Alone()
        alone.local.whole = whole
        if ends:
            alone.control("refused", reason="a copy", twin=twin)
            assert alone.done() == [("end the process", "a copy")]
            return
        with pytest.raises(LinkError, match="refused: a copy"):
            alone.control("refused", reason="a copy", twin=twin)
        assert alone.done() == [("refused", "a copy")]
        assert alone.backup.trouble == ("a copy" if twin else "")


class TestBatches:
    @pytest.mark.parametrize(("step", "position"), [(JoinStep.FOLLOWING, LATER), (JoinStep.SYNCING, HELD)])
    def test_it_holds_what_it_has_applied_when_it_follows(self, step: JoinStep, position: int) -> None:
        alone = Alone()
        alone.joining.step = step
        alone.backup.batches(alone.link, LATER)
        assert alone.done() == [("on_batches", LATER), ("acknowledge",)]
        assert alone.backup.position == position
        assert alone.local.acknowledged == (LATER if position == LATER else 0)

    def test_what_is_durable_is_acknowledged_on_a_link(self) -> None:
        alone = Alone()
        alone.backup.durable()
        assert alone.done() == [("acknowledge",)]
        alone.backup._joining = None
        alone.backup.durable()
        assert alone.done() == []

    def test_what_it_held_as_primary_it_holds(self) -> None:
        alone = Alone()
        alone.backup.holds_all(LATER)
        assert (alone.backup.position, alone.local.acknowledged) == (LATER, 0)


class TestASetThatIsNotOnDisk:
    """What follows it in the log must not be acknowledged."""

    def test_nothing_is_acknowledged(self) -> None:
        alone = Alone()
        alone.cannot_store()
        with pytest.raises(StateNotStored, match="an in-sync set that was received is not stored: full"):
            alone.backup.batches(alone.link, LATER)
        with pytest.raises(StateNotStored):
            alone.backup.joined(LATER)
        alone.backup.durable()
        assert (alone.done(), alone.backup.position) == ([], HELD)

    def test_it_is_not_ready_by_it(self) -> None:
        alone = Alone()
        alone.local.state, alone.local.whole = State.CATCHUP, False
        alone.cannot_store("id-b")
        assert (alone.local.state, alone.local.whole) == (State.CATCHUP, False)

    def test_what_came_with_it_is_held_when_it_is_stored(self) -> None:
        alone = Alone()
        alone.cannot_store()
        alone.engine.position = LATER
        alone.backup.lost("why")
        assert (alone.backup.position, alone.local.acknowledged) == (HELD, 0)
        alone.fails = False
        alone.time += 60.0
        alone.local.can_store()
        assert (alone.backup.position, alone.local.acknowledged) == (LATER, 0)
        alone.backup.tick()
        assert alone.local.acknowledged == LATER


class TestALinkIsFound:
    def test_it_greets_with_all_that_it_holds(self) -> None:
        alone = Alone()
        alone.backup._applied = LATER
        alone.backup._hushed = "a:1"
        alone.backup._joining = None
        alone.time += 1.0
        alone.backup._found(alone.link)
        ((_, kind, _, body),) = alone.done()
        op, fields = decode_control(body)
        assert (kind, op, fields["position"]) == (Kind.CONTROL, "hello", LATER)
        assert (alone.backup.link, alone.backup.step, alone.backup.position) == (alone.link, JoinStep.GREETING, LATER)
        assert (alone.backup.hushed, alone.backup._pulse.heard) == (frozenset(), alone.time)


class TestSets:
    @pytest.mark.parametrize(
        ("in_sync", "added", "stored", "state"),
        [
            (NEW, "", NEW, State.READY),
            (InSync(2, "id-a", 4, (A,)), "", InSync(2, "id-a", 4, (A,)), State.CATCHUP),
            (InSync(2, "id-a", 2, (A,)), "", SET, State.READY),
            (InSync(2, "id-a", 3, (A,)), "", SET, State.READY),
        ],
    )
    def test_of_a_ready_broker(self, in_sync: InSync, added: str, stored: InSync, state: State) -> None:
        alone = Alone()
        alone.backup.membership(LATER, Membership(in_sync, added))
        assert alone.local.persisted.in_sync == stored
        assert (alone.local.state, alone.local.whole) == (state, state is State.READY)

    @pytest.mark.parametrize(
        ("in_sync", "added", "listed"),
        [(SET, "id-b", True), (SET, "id-c", False), (NEW, "id-b", True), (NEW, "id-c", False)],
    )
    def test_who_was_added_is_ready(self, in_sync: InSync, added: str, listed: bool) -> None:
        alone = Alone()
        alone.local.state, alone.local.whole = State.CATCHUP, False
        alone.backup.membership(LATER, Membership(in_sync, added))
        assert (alone.local.state is State.READY, alone.local.whole) == (listed, listed)

    def test_a_set_without_a_link_is_late(self) -> None:
        alone = Alone(linked=False)
        alone.backup.membership(LATER, Membership(NEW, "id-b"))
        assert alone.local.persisted.in_sync == SET

    def test_a_ready_broker_that_is_added_again_changes_no_state(self) -> None:
        alone = Alone()
        alone.backup.membership(LATER, Membership(NEW, "id-b"))
        assert alone.done() == []

    def test_who_has_joined_is_in_no_doubt(self) -> None:
        alone = Alone(doubt=True, stood=True)
        alone.backup.joined(LATER)
        assert (alone.backup.doubt, alone.backup.stood) == (False, False)
        assert (alone.backup.position, alone.local.acknowledged) == (LATER, LATER)

    def test_who_is_not_listed_and_was_not_ready_keeps_its_state(self) -> None:
        alone = Alone()
        alone.local.state = State.JOINING
        alone.backup.not_listed()
        assert (alone.local.state, alone.local.whole) == (State.JOINING, False)
