"""The backup role at the edges: what a small mistake in `backup.py` would change.  The finder, the conversation on a
link and the environment are doubles that note what they are told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ha.backup.backup import Backup
from ha.backup.finder import Stage
from ha.backup.joining import JoinStep
from ha.model.clock_readings import encode
from ha.model.environment import Outcome, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.logins import DIGEST, encode_logins
from ha.model.membership import HaState, InSync, Member
from ha.model.operations import Membership
from ha.model.position import make
from ha.model.protocol import Kind, decode_control, encode_control
from ha.model.settings import NodeSettings
from ha.model.status import State
from ha.model.view import Survey
from qpidd_py.errors import LinkError

A, B, C = (Member(f"id-{name}", name, f"{name}:1", "first") for name in "abc")
SET, NEW = InSync(2, "id-a", 3, (A, B)), InSync(2, "id-a", 4, (A, B, C))
HELD, LATER = make(2, 50), make(2, 60)
BEAT = 1.0
NOTICED = 1.25
"""Heartbeats after which a pause is noticed."""
Call = tuple[Any, ...]


class Alone:
    """Broker b, ready in epoch 2, with a link to a or without."""

    def __init__(self, linked: bool = True, **options: bool) -> None:
        self.calls: list[Call] = []
        self.logs: list[str] = []
        self.time = 100.0
        self.fails = False
        env: Any = SimpleNamespace(now=lambda: self.time, wall=lambda: 7_000)
        env.log = lambda level, text: self.logs.append(text)
        env.after = lambda *it: None
        env.persist = self._persist
        env.event = lambda kind, **fields: self.calls.append(("event", kind))
        engine: Any = SimpleNamespace(position=HELD, torn=False)
        self.engine = engine
        settings = NodeSettings(name="b", address="b:1", safety="quorum", brokers=("a:1", "b:1", "c:1"), heartbeat=BEAT)
        anything: Any = SimpleNamespace()
        self.local = LocalMember(settings, self.engine, anything, env, HaState("id-b", 2, "id-a", SET), "first")
        self.local.state, self.local.whole = State.READY, True
        journal: Any = SimpleNamespace(note=lambda note: None, leave=self._noting("leave"))
        self.local.journal = journal
        self.backup: Any = Backup(self.local, self._noting("end the process"), **options)
        self.finder = self.backup._finder = self._double(
            "search pause resume follow expect welcomed refused admitted lost",
            hint="",
            stage=Stage.FOUND,
            survey=None,
            heard=[],
        )
        self.link: Any = SimpleNamespace(close=self._noting("close"), received=0, sent=0)
        self.link.send_frame = lambda kind, position, body: self.calls.append(("frame", kind, position, body))
        self.backup.leader = A
        self.joining = self._double(
            "on_frame on_control on_batches acknowledge send control start",
            link=self.link,
            step=JoinStep.FOLLOWING,
            live=HELD,
            primary="a",
            holds_all=True,
            end=lambda: False,
        )
        if linked:
            self.backup._joining = self.joining

    def _persist(self, state: HaState) -> None:
        if self.fails:
            raise StateNotStored("full")

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.calls.append((name, *given, *named.values()))

    def _double(self, names: str, **values: Any) -> Any:
        return SimpleNamespace(**{name: self._noting(name) for name in names.split()}, **values)

    def done(self) -> list[Call]:
        found, self.calls = self.calls, []
        return found

    def control(self, op: str, **fields: Any) -> None:
        self.backup.frame(self.link, Kind.CONTROL, 0, encode_control(op, **fields))

    def cannot_store(self, added: str = "") -> None:
        """A set was received that is not on disk."""
        self.fails = True
        self.backup.membership(LATER, Membership(NEW, added))
        self.done()


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


class TestJoining:
    @pytest.mark.parametrize(("before", "after"), [(State.JOINING, State.CATCHUP), (State.READY, State.READY)])
    def test_it_is_welcomed(self, before: State, after: State) -> None:
        alone = Alone()
        alone.local.state, alone.backup.leader = before, None
        alone.backup.welcomed(C)
        assert (alone.backup.leader, alone.local.state) == (C, after)
        assert [call for call in alone.done() if call[0] != "event"] == [
            ("welcomed",),
            ("send", Kind.HEARTBEAT, encode(7_000)),
        ]

    def test_without_a_link_any_more_nothing_is_sent(self) -> None:
        alone = Alone(linked=False)
        alone.backup.welcomed(C)
        assert alone.done() == [("welcomed",)]

    def test_one_that_is_full_says_so_when_it_is_welcomed(self) -> None:
        alone = Alone()
        alone.local.limited = "no memory"
        alone.backup.welcomed(C)
        assert alone.done()[-1] == ("control", "limited", "no memory")

    @pytest.mark.parametrize(("linked", "primary"), [(True, ""), (False, "a")])
    def test_only_a_primary_that_has_admitted_us_hears_that(self, linked: bool, primary: str) -> None:
        alone = Alone(linked)
        alone.joining.primary = primary
        alone.backup.limited()
        assert alone.done() == []

    def test_what_cannot_be_salvaged_keeps_it_outside(self) -> None:
        alone = Alone()
        alone.backup.not_salvaged(LinkError("full"))
        assert alone.done() == [("event", "salvage"), ("close",), ("lost",)]
        assert "cannot be written to a salvage file (full)" in alone.backup.trouble
        alone.backup.not_salvaged(LinkError("full"))
        assert alone.done() == [("lost",)]
        alone.backup.not_salvaged(LinkError("worse"))
        assert ("event", "salvage") in alone.done()
        alone.backup.salvaged()
        assert alone.backup.trouble == ""

    def test_who_is_admitted_tells_the_finder(self) -> None:
        alone = Alone()
        alone.backup.admitted()
        assert alone.done() == [("admitted",)]


class TestLosingTheLink:
    @pytest.mark.parametrize(("silent", "doubts"), [(True, False), (False, True)])
    def test_it_doubts_when_the_primary_has_closed_the_link(self, silent: bool, doubts: bool) -> None:
        alone = Alone()
        alone.backup.lost("why", silent)
        assert alone.backup.doubt is doubts
        assert alone.done() == [("event", "primary_lost"), ("lost",)]
        assert alone.backup.link is None

    def test_a_doubt_stays_when_the_next_link_is_silent(self) -> None:
        alone = Alone(doubt=True)
        alone.backup.lost("why", True)
        assert alone.backup.doubt

    @pytest.mark.parametrize(("linked", "primary"), [(True, ""), (False, "a")])
    def test_a_link_that_was_never_admitted_is_not_missed(self, linked: bool, primary: str) -> None:
        alone = Alone(linked)
        alone.joining.primary = primary
        alone.backup.lost("why")
        assert alone.done() == [("lost",)]

    def test_without_a_leader_nobody_is_hushed(self) -> None:
        alone = Alone()
        alone.backup.leader = None
        alone.backup.lost("why", True)
        assert alone.backup.hushed == frozenset()

    def test_its_own_link_is_lost_when_it_is_closed(self) -> None:
        alone = Alone()
        alone.backup.closed(alone.link, "reset")
        assert alone.done() == [("event", "primary_lost"), ("lost",)]

    def test_the_primary_was_alive_until_it_was_last_heard(self) -> None:
        alone = Alone()
        seen: list[tuple[str, float]] = []
        refusals: Any = SimpleNamespace(alive=lambda *it: seen.append(it))
        alone.local.refusals = refusals
        alone.backup.lost("why")
        alone.backup._joining, alone.backup.leader = alone.joining, None
        alone.backup.lost("why")
        assert seen == [("a:1", 100.0), ("", 100.0)]

    @pytest.mark.parametrize(
        ("ended", "holds_all", "position"),
        [(False, False, HELD), (True, False, LATER), (False, True, LATER)],
    )
    def test_what_one_read_has_applied_it_holds(self, ended: bool, holds_all: bool, position: int) -> None:
        alone = Alone()
        alone.joining.end, alone.joining.holds_all = lambda: ended, holds_all
        alone.engine.position = LATER
        alone.backup.lost("why")
        assert (alone.backup.position, alone.local.acknowledged) == (position, LATER if position == LATER else 0)
        alone.engine.position = LATER + 5
        alone.backup.tick()
        assert alone.backup.position == position

    def test_a_batch_that_was_applied_in_part_is_copied_again(self) -> None:
        alone = Alone()
        alone.engine.torn = True
        alone.backup.lost("why")
        assert ("leave",) in alone.done()
        assert (alone.engine.torn, alone.local.whole, alone.local.state) == (False, False, State.CATCHUP)


class TestSilenceAndPauses:
    @pytest.mark.parametrize(("pause", "stood"), [(NOTICED, False), (NOTICED + 0.01, True)])
    def test_a_pause_is_noticed(self, pause: float, stood: bool) -> None:
        alone = Alone()
        alone.time += pause
        assert (alone.backup.stood, alone.backup.doubt) == (stood, stood)
        alone.backup.tick()
        assert alone.logs == ["this process did not run for 1.260 s"] * stood
        asked = [call for call in alone.done() if call[:2] == ("control", "still-there")]
        assert asked == [("control", "still-there", 1)] * stood
        assert (alone.backup.stood, alone.backup.doubt) == (stood, stood)

    def test_after_a_pause_the_silence_counts_from_now(self) -> None:
        alone = Alone()
        alone.time += 10.0
        alone.backup.tick()
        assert alone.backup.link is alone.link

    @pytest.mark.parametrize(
        ("step", "number", "cleared"),
        [(JoinStep.FOLLOWING, 2, True), (JoinStep.FOLLOWING, 1, False), (JoinStep.SYNCING, 2, False)],
    )
    def test_the_answer_to_the_last_question_ends_the_doubt(self, step: JoinStep, number: int, cleared: bool) -> None:
        alone = Alone()
        for _ in range(2):
            alone.time += 2.0
            alone.backup.tick()
        alone.joining.step = step
        alone.control("still-there", number=number)
        assert (alone.backup.doubt, alone.backup.stood) == (not cleared, not cleared)

    def test_a_pause_without_a_link(self) -> None:
        alone = Alone(linked=False)
        alone.time += 2.0
        alone.backup.tick()
        assert (alone.done(), alone.backup.stood) == ([], True)

    def test_a_silent_primary_is_left(self) -> None:
        alone = Alone()
        limit = alone.local.settings.dead_after
        began = alone.time
        while alone.time < began + limit:
            alone.backup.tick()
            alone.time = min(alone.time + BEAT / 4, began + limit)
        alone.backup.tick()
        assert alone.backup.link is alone.link
        alone.done()
        alone.time += 0.01
        alone.backup.tick()
        assert alone.done() == [("close",), ("event", "primary_lost"), ("lost",)]
        assert (alone.backup.hushed, alone.backup.doubt) == ({"a:1"}, False)

    def test_it_speaks_when_nothing_was_sent_for_half_a_heartbeat(self) -> None:
        alone = Alone()
        said = []
        for _ in range(5):
            said.append(len([call for call in alone.done() if call[0] == "send"]))
            alone.backup.tick()
            alone.link.sent += len([call for call in alone.calls if call[0] == "send"])
            alone.time += BEAT / 4
        assert said == [0, 1, 0, 0, 1]

    @pytest.mark.parametrize(("seconds", "spoken"), [(0.49, 0), (0.5, 1)])
    def test_it_speaks_at_half_a_heartbeat(self, seconds: float, spoken: int) -> None:
        alone = Alone()
        alone.backup.tick()
        alone.done()
        alone.time += seconds
        alone.backup.tick()
        assert len(alone.done()) == spoken

    def test_who_has_asked_is_told_when_the_primary_has_answered(self) -> None:
        alone = Alone()
        alone.backup.asked_by("id-c")
        told = ("control", "heard", alone.local.ages())
        alone.joining.primary = ""
        alone.backup.tick()
        assert told not in alone.done()
        alone.joining.primary = "a"
        alone.backup.tick()
        assert told in alone.done()
        alone.backup.tick()
        assert told not in alone.done(), "once"

    def test_frames_that_were_sent_spare_a_heartbeat(self) -> None:
        alone = Alone()
        alone.backup.tick()
        alone.done()
        for sent in range(4):
            assert alone.done() == []
            alone.time += BEAT / 4
            alone.link.sent = sent + 100
            alone.backup.tick()
        assert alone.done() == [("send", Kind.HEARTBEAT, encode(7_000))]  # a reading of the clock is due

    def test_what_waited_for_the_disk_is_held_at_the_next_tick(self) -> None:
        alone = Alone()
        alone.backup._applied = LATER
        alone.backup.tick()
        assert (alone.backup._position, alone.backup._applied) == (LATER, 0)
