"""The backup role with its link: what a small mistake in `backup.py` would change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ha.backup.joining import JoinStep
from ha.model.clock_readings import encode
from ha.model.protocol import Kind
from ha.model.status import State
from qpidd_py.errors import LinkError
from tests.unit.ha.backup_lab import BEAT, HELD, LATER, NOTICED, Alone, C


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
        alone.local.cluster.refusals = refusals
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
        told = ("control", "heard", alone.local.cluster.ages())
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
