"""What brokers say of themselves and to each other, octet by octet, and what is made of a question to many."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model import disk, protocol
from ha.model.disk import DiskWatch
from ha.model.environment import Answer, Outcome, StateNotStored
from ha.model.membership import HaState, InSync, Member, Membership
from ha.model.position import make
from ha.model.protocol import Kind
from ha.model.pulse import Pulse
from ha.model.status import TRANSITIONS, State, check_transition
from ha.model.view import Survey, View
from ha.primary.peer import Peer, Phase
from qpidd_py.broker.snapshot import decode_snapshot, encode_snapshot
from qpidd_py.errors import InvariantError, LinkError

A, B, C = (Member(f"id-{name}", name, f"{name}:1", f"life-{name}") for name in "abc")
SET = InSync(1, "id-a", 3, (A, B, C))
SILENT, REFUSED, ANSWERED = Outcome.SILENT, Outcome.REFUSED, Outcome.ANSWERED


def view(member: Member = B, **fields: Any) -> View:
    values: dict[str, Any] = {"state": State.READY, "epoch": 1, "leader": "id-a", "position": make(1, 9)}
    values |= {"id": member.id, "name": member.name, "address": member.address, "instance": member.instance}
    return View(**{**values, "whole": True, "in_sync": SET, **fields})


# ---- a view ------------------------------------------------------------------------------------------------------


def test_a_view_has_doubts_only_where_it_says_so() -> None:
    plain = View("x", "", "", State.READY, 1, "", 0, True)
    assert (plain.in_sync, plain.doubt, plain.stood, plain.isolated) == (InSync(), False, False, False)
    assert (
        view().member.instance == "life-b" and str(view()) == "b (ready, position 1.9)" and view().ballot == (1, "id-a")
    )


@pytest.mark.parametrize(
    ("state", "isolated", "leads"),
    [(State.ACTIVE, False, True), (State.ACTIVE, True, False), (State.READY, False, False), (State.READY, True, False)],
)
def test_a_primary_leads_unless_it_is_isolated(state: State, isolated: bool, leads: bool) -> None:
    assert view(state=state, isolated=isolated).leads is leads


@pytest.mark.parametrize(
    "changes", [{}, {"doubt": True}, {"stood": True}, {"isolated": True}, {"primary": "a:1"}, {"instance": ""}]
)
def test_a_view_survives_the_wire(changes: dict[str, Any]) -> None:
    found = View.from_json(json.loads(json.dumps(view(**changes).to_json())))
    assert found == view(**changes) and found.to_json() == view(**changes).to_json()


@pytest.mark.parametrize("missing", ["name", "address", "leader", "primary", "instance"])
def test_what_a_view_does_not_say_is_empty(missing: str) -> None:
    value = view(primary="a:1").to_json()
    del value[missing]
    assert getattr(View.from_json(value), missing) == ""


@pytest.mark.parametrize(
    "changes",
    [{"state": "asleep"}, {"state": None}, {"id": 3}, {"epoch": "1"}, {"position": None}, {"whole": 1}, {"in_sync": 3}],
)
def test_what_is_no_view_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LinkError):
        View.from_json({**view().to_json(), **changes})


# ---- a survey ----------------------------------------------------------------------------------------------------


def said(*views: View, **outcomes: Outcome) -> dict[str, Answer]:
    answers = {f"{each.name}:1": Answer(ANSWERED, each.to_json()) for each in views}
    return answers | {f"{name}:1": Answer(outcome) for name, outcome in outcomes.items()}


def test_a_survey_says_who_answered_where_and_what_became_of_the_others() -> None:
    found = Survey.of("id-b", said(view(A), c=SILENT, d=REFUSED), "life-b")
    assert found.views == (view(A),) and found.ids == {"a:1": "id-a"} and found.twins == ()
    assert found.outcomes == {"a:1": ANSWERED, "c:1": SILENT, "d:1": REFUSED}
    assert Survey((), {}).ids == {}


def test_nonsense_is_silence() -> None:
    answers = {"a:1": Answer(ANSWERED, {"id": 3}), "c:1": Answer(ANSWERED, view(C).to_json())}
    found = Survey.of("id-b", answers)
    assert found.outcomes == {"a:1": SILENT, "c:1": ANSWERED} and [each.id for each in found.views] == ["id-c"]
    assert found.ids == {"c:1": "id-c"}


def test_our_own_answer_does_not_count() -> None:
    found = Survey.of("id-b", said(view(B), view(A)), "life-b")
    assert found.outcomes == {"a:1": ANSWERED} and found.views == (view(A),) and found.twins == ()


def test_another_life_with_our_id_is_a_twin_and_no_witness() -> None:
    twin = view(B, instance="other", name="x")
    found = Survey.of("id-b", said(twin, view(A)), "life-b")
    assert found.twins == (twin,) and found.views == (view(A),) and found.ids == {"a:1": "id-a"}
    assert found.outcomes == {"x:1": ANSWERED, "a:1": ANSWERED}


def test_a_broker_at_two_addresses_counts_once_and_two_lives_of_it_twice() -> None:
    found = Survey.of("id-b", said(view(A), view(A, name="x")), "life-b")
    assert len(found.views) == 1 and found.ids == {"a:1": "id-a", "x:1": "id-a"}
    found = Survey.of("id-b", said(view(A), view(A, name="x", instance="other")), "life-b")
    assert [each.instance for each in found.views] == ["life-a", "other"]


def test_one_that_does_not_know_its_address_has_the_one_where_it_was_asked() -> None:
    found = Survey.of("id-b", said(view(A, address=""), view(C, address="public:9")))
    assert [each.address for each in found.views] == ["a:1", "public:9"]


def seen(*views: View, **outcomes: Outcome) -> Survey:
    return Survey(tuple(views), {f"{name}:1": outcome for name, outcome in outcomes.items()})


def test_a_broker_is_found_by_its_id() -> None:
    assert seen(view(A), view(C)).view("id-c") == view(C) and seen(view(A)).view("id-x") is None


@pytest.mark.parametrize(
    ("views", "member", "instance"),
    [
        (("1@a:1", "2@a:1"), "2@a:1", "2"),
        (("1@a:1", "2@x:1"), "2@a:1", "2"),  # the same process, wherever it is
        (("1@x:1", "3@a:1"), "2@a:1", "3"),  # started in its place
        (("1@x:1",), "2@a:1", None),  # a copy elsewhere
        (("1@x:1",), "2@", None),  # its place is not known: it may be the copy
        (("1@x:1",), "@a:1", "1"),  # its life is not known
        ((), "1@a:1", None),
    ],
)
def test_a_member_is_its_process_or_the_one_in_its_place(
    views: tuple[str, ...], member: str, instance: str | None
) -> None:
    def named(text: str) -> Member:
        life, _, address = text.partition("@")
        return Member("id-a", "a", address, life)

    found = seen(view(C), *(view(named(text)) for text in views)).of_member(named(member))
    assert (None if found is None else found.instance) == instance


@pytest.mark.parametrize(
    ("survey", "outcome"),
    [
        (seen(view(A), a=ANSWERED), ANSWERED),
        (seen(view(C), a=SILENT), SILENT),
        (seen(view(C), a=REFUSED), REFUSED),
        (seen(view(C)), SILENT),
        (seen(view(C), a=ANSWERED), SILENT),  # another broker answers there
    ],
)
def test_the_outcome_of_a_member(survey: Survey, outcome: Outcome) -> None:
    assert survey.outcome(A) is outcome


@pytest.mark.parametrize(
    ("survey", "id", "outcome"),
    [
        (seen(view(A), a=REFUSED), "id-a", ANSWERED),
        (seen(a=REFUSED, c=SILENT), "id-a", REFUSED),
        (seen(a=SILENT, c=REFUSED), "id-a", SILENT),
        (seen(a=SILENT, c=REFUSED), "id-x", SILENT),
        (seen(a=REFUSED, c=REFUSED), "id-x", REFUSED),
        (seen(), "id-x", REFUSED),
    ],
)
def test_the_fate_of_a_broker_whose_address_may_not_be_known(survey: Survey, id: str, outcome: Outcome) -> None:
    assert survey.fate(id, SET) is outcome


# ---- operations and frames ---------------------------------------------------------------------------------------


def test_a_membership_survives_the_log() -> None:
    assert Membership.decode(Membership(SET, "id-c").encode()) == Membership(SET, "id-c")
    assert b" " not in Membership(SET, "id-c").encode()
    assert Membership.decode(json.dumps({"op": "membership", "in_sync": SET.to_json()}).encode()).added == ""


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"3", b"{}", b'{"op": "x"}', b'{"op": "membership"}'])
def test_what_is_no_membership_is_refused(payload: bytes) -> None:
    with pytest.raises(LinkError):
        Membership.decode(payload)


def test_another_operation_with_a_set_is_no_membership() -> None:
    with pytest.raises(LinkError, match="not a membership operation"):
        Membership.decode(json.dumps({"op": "x", "in_sync": SET.to_json()}).encode())


def test_the_kinds_of_frames_are_what_other_versions_take_them_for() -> None:
    assert {kind.name: int(kind) for kind in Kind} == {
        "BATCH": 1, "CONTROL": 2, "ACK": 3, "SLICE": 4, "SNAPSHOT": 5, "HELD": 6,
        "DROP": 7, "MERGE": 8, "HEARTBEAT": 9, "CREDIT": 10, "LACK": 11, "LOGINS": 12,
    }  # fmt: skip


def test_frames_survive_the_wire() -> None:
    assert protocol.decode_control(protocol.encode_control("cut", cut=3)) == ("cut", {"cut": 3})
    assert protocol.encode_control("cut", cut=3) == b'{"op":"cut","cut":3}'
    for ids in (b"", b"x", b"ids"):
        assert protocol.decode_held(protocol.encode_held(7, 1 << 60, ids)) == (7, 1 << 60, ids)
        assert protocol.decode_drop(protocol.encode_drop(7, ids)) == (7, ids)
    assert protocol.decode_merge(protocol.encode_merge(7)) == 7
    for records in ([], [(1 << 60, b"")], [(1, b"one"), (2, b""), (3, b"three")]):
        assert decode_snapshot(encode_snapshot(records)) == records


@pytest.mark.parametrize(
    ("decode", "octets"),
    [
        (protocol.decode_control, b"{"),
        (protocol.decode_control, b"[]"),
        (protocol.decode_control, b"3"),
        (protocol.decode_control, b"{}"),
        (protocol.decode_control, b'{"op": 3}'),
        (protocol.decode_held, b"x" * 11),
        (protocol.decode_drop, b"xxx"),
        (protocol.decode_merge, b"xxx"),
        (protocol.decode_merge, b"xxxxx"),
        (decode_snapshot, b"x" * 11),
        (decode_snapshot, encode_snapshot([(1, b"one")])[:-1]),
        (decode_snapshot, encode_snapshot([(1, b"one")]) + b"x"),
    ],
)
def test_a_frame_that_is_cut_off_or_something_else_is_refused(decode: Callable[[bytes], Any], octets: bytes) -> None:
    with pytest.raises(LinkError):
        decode(octets)


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [(3, int, True), (True, int, False), ("3", int, False), (True, bool, True), (1, bool, False), ("", str, True)],
)
def test_a_needed_field_has_its_type(value: Any, kind: type, fits: bool) -> None:
    if fits:
        assert protocol.need({"x": value}, "x", kind) == value
    else:
        with pytest.raises(LinkError, match="field x"):
            protocol.need({"x": value}, "x", kind)
    with pytest.raises(LinkError, match="field y"):
        protocol.need({"x": value}, "y", kind)


# ---- states ------------------------------------------------------------------------------------------------------


def test_primaries_and_backups() -> None:
    assert [state.value for state in State if state.is_primary] == ["recovering", "active"]
    assert [state.value for state in State if state.is_backup] == ["joining", "catchup", "ready"]


def test_each_step_has_a_reason_or_is_refused() -> None:
    for old in State:
        for new in State:
            if (old, new) in TRANSITIONS:
                assert check_transition(old, new) == TRANSITIONS[old, new] != ""
            else:
                with pytest.raises(InvariantError, match=f"{old.value} to {new.value}"):
                    check_transition(old, new)


# ---- a backup as its primary sees it -----------------------------------------------------------------------------


def test_a_new_peer_has_said_nothing_and_counts_for_nothing() -> None:
    one, other = Peer(A, Pulse(1.0, 2.0)), Peer(B, Pulse(1.0, 2.0))
    assert (one.id, one.phase, one.link, one.state) == ("id-a", Phase.HELLO, None, "")
    assert (one.whole, one.reported, one.dropped) == (False, False, False)
    assert (one.acked, one.received, one.target, one.removal) == (0, 0, 0, 0)
    assert (one.lost_at, one.started, one.slow_since) == (0.0, 0.0, None)
    assert one.held == {} and one.held is not other.held and one.readings is not other.readings


@pytest.mark.parametrize(
    ("linked", "phase", "shown"),
    [
        (False, Phase.COMPLETE, "away"),
        (False, Phase.AWAY, "away"),
        (True, Phase.COMPLETE, "ready"),
        (True, Phase.CLOSING, "catchup"),
        (True, Phase.HELLO, "catchup"),
    ],
)
def test_a_peer_is_shown_as_what_it_is(linked: bool, phase: Phase, shown: str) -> None:
    link = cast(Any, object()) if linked else None
    assert Peer(A, Pulse(0.0, 0.0), link=link, phase=phase).shown == shown


def test_silence_counts_from_the_last_octet_that_came() -> None:
    link: Any = SimpleNamespace(received=0, sent=0)
    pulse = Pulse(10.0, 10.0)
    assert (pulse.received, pulse.sent) == (0, 0)
    assert pulse.look(link, 11.0) == 1.0
    link.received = 5
    assert (pulse.look(link, 12.0), pulse.look(link, 12.5)) == (0.0, 0.5)
    pulse.forgive(20.0)
    assert pulse.look(link, 20.25) == 0.25


def test_we_speak_when_nothing_was_sent_for_an_interval() -> None:
    link: Any = SimpleNamespace(received=0, sent=0)
    pulse = Pulse(10.0, 10.0)
    assert [pulse.must_speak(link, now, 1.0) for now in (10.5, 11.0, 11.5)] == [False, True, True]
    link.sent = 3
    assert [pulse.must_speak(link, now, 1.0) for now in (12.0, 12.5, 13.0)] == [False, False, True]


# ---- the disk ----------------------------------------------------------------------------------------------------


class Disk:
    """Of one node: it fails or works as told, and takes its time."""

    def __init__(self) -> None:
        self.time = 0.5
        self.error = ""
        self.seconds = 0.0
        self.tried = 0
        self.events: list[str] = []
        self.lines: list[str] = []
        self.looks = 0
        env = SimpleNamespace(now=lambda: self.time, persist=self._persist, log=self._log, event=self._event)
        self.watch = DiskWatch(cast(Any, env), 2.0, self._look)

    def _persist(self, state: HaState) -> None:
        self.tried += 1
        self.time += self.seconds
        if self.error:
            raise StateNotStored(self.error)

    def _log(self, level: str, text: str) -> None:
        self.lines.append(text)

    def _event(self, kind: str, result: str, reason: str = "") -> None:
        self.events.append(f"{result} {reason}".strip())

    def _look(self) -> None:
        self.looks += 1

    def fail(self, error: str = "full") -> None:
        self.error = error
        with pytest.raises(StateNotStored, match=error):
            self.watch.store(HaState("y"))


def test_a_disk_that_works_is_not_tried_for_nothing() -> None:
    found = Disk()
    assert found.watch.error == "" and not found.watch.due
    found.watch.store(HaState("y"))
    assert (found.tried, found.events, found.lines, found.looks) == (1, [], [], 0)


def test_a_failure_is_said_once_and_its_end_too() -> None:
    found = Disk()
    found.fail()
    found.fail("broken")
    assert found.watch.error == "broken"
    assert (found.events, found.looks, len(found.lines)) == (["failed full"], 1, 1)
    found.error = ""
    found.watch.store(HaState("x"))
    assert found.watch.error == ""
    assert (found.events, found.looks, len(found.lines)) == (["failed full", "ended"], 2, 2)
    found.fail()
    assert found.events[-1] == "failed full" and found.looks == 3


@pytest.mark.parametrize(
    ("writes", "seconds", "wait"),
    [(1, 0.0, disk.RETRY), (5, 0.0, disk.RETRY), (1, 2.0, 2.0), (2, 2.0, 4.0), (4, 2.0, 16.0), (5, 2.0, 20.0)],
)
def test_a_disk_that_fails_is_tried_again_and_not_for_most_of_the_time(
    writes: int, seconds: float, wait: float
) -> None:
    """A tenth of the time in the end; before that the wait is no longer than the fault has lasted."""
    found = Disk()
    found.seconds = seconds
    for _ in range(writes):
        found.fail()
    found.seconds, failed = 0.0, found.time
    for after, due in ((0.0, False), (wait - 0.125, False), (wait, True)):
        found.time = failed + after
        assert found.watch.due == due
    found.fail()
    assert not found.watch.due


def test_a_disk_is_slow_after_two_slow_writes_in_a_row_and_until_a_quick_one() -> None:
    found = Disk()
    quick = [(seconds, "") for seconds in (2.5, 0.5, 3.0, 2.0, 3.0)]
    for seconds, slow in (*quick, (4.0, "4.0 s"), (3.0, "3.0 s"), (5.0, "5.0 s")):
        found.seconds = seconds
        found.watch.store(HaState("y"))
        assert bool(found.watch.slow) == bool(slow) and slow in found.watch.slow
    assert found.looks == 1 and found.watch.error == ""
    found.seconds = 0.0
    found.watch.store(HaState("y"))
    assert found.watch.slow == "" and not found.watch.due
    assert found.events == ["slow its disk takes 4.0 s for a write", "fast"]
    assert found.looks == len(found.lines) == 2


@pytest.mark.parametrize(
    ("writes", "wait"), [(2, 3.0), (3, 6.0), (4, 12.0), (8, 192.0), (9, 300.0), (20, 300.0), (2000, 300.0)]
)
def test_a_slow_disk_is_tried_again_soon_and_in_the_end_for_a_hundredth_of_the_time(writes: int, wait: float) -> None:
    """A hiccup of two writes is over before a primary is isolated for it."""
    found = Disk()
    found.seconds = 3.0
    for _ in range(writes):
        found.watch.store(HaState("y"))
    slow = found.time
    for after, due in ((wait - 0.5, False), (wait, True)):
        found.time = slow + after
        assert found.watch.due == due


def test_slow_writes_that_fail_are_slow_too() -> None:
    found = Disk()
    found.seconds = 3.0
    found.fail()
    assert (found.watch.error, found.watch.slow, found.looks) == ("full", "", 1)
    found.fail()
    assert found.watch.slow and found.looks == 2
    found.error, found.seconds = "", 0.0
    found.watch.store(HaState("y"))
    assert (found.watch.error, found.watch.slow, found.looks) == ("", "", 3)
