"""The backup's side of joining, frame by frame: what it sends, applies and refuses, and in which order.

Engine, journal, link and backup are doubles that write what they are told into one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.backup.joining import OBJECTS, PAUSE, UNWRITTEN, Joining, JoinStep
from ha.backup.staging import BITE
from ha.model.difference import Lineage, Origin, intersect, lineage_to_json
from ha.model.environment import Json, StateNotStored
from ha.model.local_member import LocalMember
from ha.model.membership import HaState, InSync, Member
from ha.model.position import make
from ha.model.protocol import KEYS, VERSION, Kind, decode_control, encode_drop, encode_held, encode_merge
from ha.model.settings import NodeSettings
from qpidd_py.broker.snapshot import encode_snapshot
from qpidd_py.core import decode_ids, encode_ids
from qpidd_py.errors import LinkError

A, B, C = (Member(f"id-{name}", name, f"{name}:1", "first") for name in "abc")
MINE: Lineage = {1: Origin("id-a", 0), 2: Origin("id-a", make(1, 90))}
PRIMARYS: Lineage = {2: MINE[2], 3: Origin("id-c", make(2, 60))}
SET, NEW = InSync(2, "id-a", 3, (A, B)), InSync(3, "id-c", 4, (B, C))
WELCOME = {**C.to_json(), "epoch": 3, "leader": "id-c", "lineage": lineage_to_json(PRIMARYS), "whole": True}
CUT, LIVE = make(3, 100), make(3, 110)
Call = tuple[Any, ...]


class Queue:
    """Number 7, uid 70."""

    number = 7
    window: object = None

    def __init__(self, *ids: tuple[int, int]) -> None:
        self.ids = list(ids)

    def held(self, low: int = 0, high: int = make(9, 0)) -> bytes:
        return encode_ids(intersect(self.ids, [(low, high)]))


class Backup:
    """Broker b; it was ready in epoch 2, and c leads epoch 3."""

    def __init__(self, whole: bool = True, *ids: tuple[int, int]) -> None:
        self.calls: list[Call] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.fails: dict[str, Exception] = {}
        self.time = 4.0
        self.objects = 0  # that a snapshot changes
        self.noted: set[int] = set()
        note = self._note
        env: Any = SimpleNamespace(now=lambda: self.time, after=lambda *it: self.later.append(it), log=lambda *it: None)
        env.persist = lambda state: note("persist", state.ballot, state.in_sync.key)
        env.event = lambda kind, **fields: note(kind, fields)
        engine: Any = SimpleNamespace(safe=0, position=make(2, 50))
        for name in ("merge", "drop", "apply_slice", "apply_held", "set_position"):
            setattr(engine, name, self._noting(name))
        self.journal: Any = SimpleNamespace(position=make(2, 50), complete=True, waiting=0, note=lambda note: None)
        for name in ("part", "differ", "leave", "begin_again"):
            setattr(self.journal, name, self._noting(name))
        configuration: Any = SimpleNamespace(replicated=lambda: [(Queue(*ids), 70)], adopting=self._adopting)
        settings = NodeSettings(name="b", address="b:1", safety="quorum", brokers=("a:1", "b:1", "c:1"))
        state = HaState("id-b", 2, "id-a", SET)
        self.local = LocalMember(settings, engine, configuration, env, state, "first", self.journal)
        self.local.whole, self.local.lineage = whole, MINE
        link: Any = SimpleNamespace(hold_batches=self._noting("hold"), close=self._noting("close"))
        link.send_frame = lambda kind, position, body: note("send", Kind(kind), position, body)
        self.joining = Joining(self.local, link, cast(Any, self), make(2, 50), {})

    def _adopting(self, records: list[tuple[int, bytes]]) -> Iterator[None]:
        self._note("adopt", records)
        for number in range(self.objects):
            yield
            if number + 1 in self.noted:
                self._note(f"object {number + 1}")

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self.fails:
            raise self.fails[call[0]]

    def _noting(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self._note(name, *arguments)

    def view(self) -> Any:
        role = SimpleNamespace(position=make(2, 50), primary_address="", doubt=True, stood=False, isolation="")
        return self.local.view(cast(Any, role))

    def __getattr__(self, name: str) -> Any:
        """The calls of `Joiner`."""
        if name in ("welcomed", "salvaged", "not_salvaged", "admitted", "not_listed", "joined", "lost"):
            return self._noting(name)
        raise AttributeError(name)

    # ---- what the test does

    def done(self) -> list[Call]:
        """The calls since the last time; controls are decoded."""
        found, self.calls = self.calls, []
        return [(*call[:2], *decode_control(call[3])) if call[:2] == CONTROL else call for call in found]

    def names(self) -> list[str]:
        """Of `done`, with the kinds of frames and words of controls."""
        return [
            str(call[2] if call[:2] == CONTROL else call[1].name) if call[0] == "send" else call[0]
            for call in self.done()
        ]

    def run_later(self) -> list[float]:
        """Makes the calls that were put off; after how long."""
        found, self.later = self.later, []
        for _, call in found:
            call()
        return [delay for delay, _ in found]

    def welcome(self, **fields: Any) -> None:
        self.joining.on_control("welcome", {**WELCOME, **fields})

    def cut(self, in_sync: InSync = NEW) -> None:
        self.joining.on_control("cut", {"cut": CUT, "in_sync": in_sync.to_json()})

    def frame(self, kind: int, body: bytes = b"", position: int = 0) -> None:
        self.joining.on_frame(kind, position, body)


CONTROL = ("send", Kind.CONTROL)


def greeted(whole: bool = True, in_sync: InSync = NEW, *ids: tuple[int, int]) -> Backup:
    """After the cut."""
    backup = Backup(whole, *ids)
    backup.welcome()
    backup.cut(in_sync)
    backup.done()
    return backup


def caught_up(complete: bool = True) -> Backup:
    """After a difference of two slices, that is applied; `complete`: the journal has it."""
    backup = greeted()
    backup.journal.complete = complete
    backup.joining.on_control("caught-up", {})
    return backup


# ---- the order of the conversation ------------------------------------------------------------------------------


def test_hello_says_who_we_are_and_not_whom_we_take_for_primary() -> None:
    backup = Backup()
    backup.joining.start()
    ((_, _, op, said),) = backup.done()
    view = backup.view().to_json()
    assert op == "hello" and said.keys() == view.keys() - {"in_sync", "primary"} | {"version", "replicate"}
    assert said == {key: view.get(key) for key in said} | {"version": VERSION, "replicate": "all"}


@pytest.mark.parametrize("step", list(JoinStep))
@pytest.mark.parametrize(
    ("op", "wanted"),
    [("welcome", "GREETING"), ("cut", "GREETING"), ("caught-up", "SYNCING"), ("complete", ""), ("hello", "")],
)
def test_each_word_has_its_step(op: str, wanted: str, step: JoinStep) -> None:
    backup = Backup()
    backup.joining.step = step
    backup.joining.primary = "c" if op == "cut" else ""  # the step alone decides
    if step.name == wanted:
        return
    with pytest.raises(LinkError, match=f"control {op} in step {step.value}"):
        backup.joining.on_control(op, {**WELCOME, "cut": CUT, "in_sync": NEW.to_json()})
    assert backup.done() == [] and backup.joining.step is step


def test_no_cut_counts_before_the_vote_was_compared() -> None:
    """It was taken: from a primary below our vote, too."""
    backup = Backup()
    with pytest.raises(LinkError, match="control cut in step greeting"):
        backup.cut()
    backup.welcome()
    backup.done()
    with pytest.raises(LinkError, match="control welcome in step greeting"):
        backup.welcome()
    assert backup.done() == []


def test_nor_one_before_possible_only_copies_are_put_aside() -> None:
    """The primary has not said whether it lacks messages that this broker alone may have."""
    ids = encode_ids([(make(2, 70), make(2, 80))])
    backup = Backup(True, (make(2, 70), make(2, 80)))
    backup.local.acknowledged = make(2, 80)
    backup.welcome()
    found = backup.done()
    assert found[-1] == ("send", Kind.LACK, 0, encode_held(7, 70, ids))
    with pytest.raises(LinkError, match="control cut in step greeting"):
        backup.cut()
    assert backup.done() == []
    backup.frame(Kind.LACK, encode_held(7, 70, b""))
    assert backup.names() == ["salvaged", "hold", "merge", "part", "HELD", "held-end"]


def test_a_link_may_end_before_the_welcome() -> None:
    backup = Backup()
    with pytest.raises(LinkError, match="in step greeting that was not requested"):
        backup.frame(Kind.LACK, encode_held(7, 70, b""))
    assert backup.joining.end() is False and backup.done() == []


def test_nothing_is_put_aside_after_the_end() -> None:
    backup = Backup(True, (make(2, 70), make(2, 80)))
    backup.local.acknowledged = make(2, 80)
    backup.welcome()
    backup.done()
    salvager = backup.joining._salvager
    assert salvager is not None and backup.joining.end() is False
    salvager.answer(7, 70, b"")
    assert backup.done() == []


DIFFERENCE = {
    Kind.SNAPSHOT: encode_snapshot([]),
    Kind.SLICE: b"slice",
    Kind.DROP: encode_drop(7, b"ids"),
    Kind.MERGE: encode_merge(7),
}


@pytest.mark.parametrize("step", list(JoinStep))
@pytest.mark.parametrize("kind", [*DIFFERENCE, Kind.BATCH])
def test_each_frame_has_its_step(kind: Kind, step: JoinStep) -> None:
    backup = Backup()
    backup.joining.step = step
    if step is JoinStep.SYNCING or (kind == Kind.BATCH and step is JoinStep.APPLYING):
        backup.frame(kind, DIFFERENCE.get(kind, b"batch"), LIVE)
        assert backup.done() != []
        return
    with pytest.raises(LinkError, match=f"(catch-up frame|batch) in step {step.value}"):
        backup.frame(kind, DIFFERENCE.get(kind, b"batch"), LIVE)
    assert backup.done() == [] and backup.joining.live == 0


@pytest.mark.parametrize("step", list(JoinStep))
def test_live_batches_come_after_the_cut_and_not_while_they_are_kept(step: JoinStep) -> None:
    backup = Backup()
    backup.joining.step = step
    if step in (JoinStep.GREETING, JoinStep.APPLYING):
        with pytest.raises(LinkError, match=f"batch in step {step.value}"):
            backup.joining.on_batches(LIVE)
        assert backup.joining.live == 0
    else:
        backup.joining.on_batches(LIVE)
        assert backup.joining.live == LIVE


@pytest.mark.parametrize("kind", [Kind.ACK, Kind.HELD, Kind.CREDIT, 12])
def test_a_frame_that_no_primary_sends_is_refused(kind: int) -> None:
    with pytest.raises(LinkError, match=f"frame of kind {kind} from a primary"):
        greeted().frame(kind)


def test_an_answer_about_messages_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(LinkError, match="in step syncing that was not requested"):
        greeted().frame(Kind.LACK, encode_held(7, 70, b""))


# ---- welcome ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epoch", "leader"), [(1, "id-z"), (2, "id-9")])
def test_a_primary_below_our_vote_is_not_answered(epoch: int, leader: str) -> None:
    backup = Backup()
    with pytest.raises(LinkError, match=f"has epoch {epoch}, we have granted 2"):
        backup.welcome(id=leader, epoch=epoch)
    assert backup.done() == [] and backup.local.persisted.ballot == (2, "id-a")


def test_a_primary_of_our_vote_is_followed() -> None:
    backup = Backup()
    backup.welcome(**A.to_json(), epoch=2, lineage=lineage_to_json(MINE))
    assert backup.names()[:2] == ["welcomed", "salvaged"] and backup.joining.primary == str(A)


def test_the_vote_is_on_disk_before_anything_is_sent_and_copies_are_put_aside_before_anything_is_dropped() -> None:
    backup = Backup(True, (make(2, 10), make(2, 20)))
    backup.welcome()
    found = backup.done()
    assert found[0] == ("persist", (3, "id-c"), SET.key) and found[1][0] == "welcomed"
    assert found[2:4] == [("salvaged",), ("hold", True)]
    held = encode_held(7, 70, encode_ids([(make(2, 10), make(2, 20))]))
    assert found[4:6] == [("merge", 7), ("part", Kind.MERGE, encode_merge(7))], "remains of an earlier attempt"
    assert found[6:] == [("send", Kind.HELD, 0, held), (*CONTROL, "held-end", {})]


def test_a_vote_that_is_not_stored_costs_the_link_before_anything_is_sent() -> None:
    backup = Backup()
    backup.fails["persist"] = StateNotStored("full")
    with pytest.raises(StateNotStored):
        backup.welcome()
    assert not {"welcomed", "salvaged", "hold", "HELD", "held-end"} & set(backup.names())


@pytest.mark.parametrize(
    ("whole", "fields", "disowned"),
    [
        (True, {"whole": False}, True),
        (True, {"whole": True}, False),
        (True, {}, False),
        (False, {"whole": False}, False),
    ],
)
def test_a_primary_that_does_not_count_us_as_whole_is_believed(whole: bool, fields: Json, disowned: bool) -> None:
    backup = Backup(whole)
    backup.local.before = ("earlier",)
    welcome = {key: value for key, value in WELCOME.items() if key != "whole"} | fields
    backup.joining.on_control("welcome", welcome)
    assert ("not_listed" in backup.names(), backup.local.before) == (disowned, () if disowned else ("earlier",))


def test_what_names_other_messages_at_the_primary_is_dropped_here_and_on_disk_and_not_reported() -> None:
    """Epoch 2 was claimed by two brokers."""
    backup = Backup(False, (make(1, 3), make(1, 5)), (make(2, 10), make(2, 20)))
    lineage: Lineage = {1: MINE[1], 2: Origin("id-c", make(1, 90)), 3: Origin("id-c", make(2, 60))}
    backup.local.env.salvage = lambda header: SimpleNamespace(add=lambda it: None, finish=lambda: None, name="s")  # type: ignore[method-assign]
    Queue.read = lambda self, low, high, most: []  # type: ignore[attr-defined]
    backup.welcome(lineage=lineage_to_json(lineage))
    found = backup.done()
    foreign, shared = encode_ids([(make(2, 10), make(2, 20))]), encode_ids([(make(1, 3), make(1, 5))])
    at = [call[0] for call in found].index("differ")
    assert found[at - 2 :] == [
        ("merge", 7),
        ("part", Kind.MERGE, encode_merge(7)),
        ("differ",),
        ("drop", 7, foreign),
        ("part", Kind.DROP, encode_drop(7, foreign)),
        ("send", Kind.HELD, 0, encode_held(7, 70, shared)),
        (*CONTROL, "held-end", {}),
    ]
    assert backup.local.lineage == {**MINE, **lineage}, "the union, until everything is applied"


# ---- the difference ---------------------------------------------------------------------------------------------


def send_all(backup: Backup) -> None:
    for kind, body in DIFFERENCE.items():
        backup.frame(kind, body)


APPLIED = ["set_position", "adopt", "part", "apply_slice", "part", "drop", "part", "merge", "part"]


def test_a_whole_member_applies_nothing_before_it_has_everything() -> None:
    backup = greeted(True, NEW, (make(2, 10), make(2, 20)))
    send_all(backup)
    backup.frame(Kind.BATCH, b"batch", LIVE)
    assert backup.names() == ["CREDIT", "ACK"] and backup.joining.live == LIVE and not backup.joining.holds_all
    backup.joining.on_control("caught-up", {})
    names = backup.names()
    assert names == [
        "differ",
        *APPLIED,
        "apply_held",
        "part",
        "hold",
        "begin_again",
        "joined",
        "complete",
        "catchup_end",
    ]
    assert backup.local.lineage == PRIMARYS and backup.joining.step is JoinStep.FOLLOWING


def test_what_is_applied_is_what_has_come() -> None:
    backup = greeted(False)
    send_all(backup)
    backup.frame(Kind.BATCH, b"batch", LIVE)
    backup.joining.on_control("caught-up", {})
    applied: list[Call] = [("adopt", []), ("apply_slice", b"slice"), ("drop", 7, b"ids"), ("merge", 7)]
    applied += [("apply_held", LIVE, b"batch"), ("hold", False)]
    parts = [("part", kind, body) for kind, body in [*DIFFERENCE.items(), (Kind.BATCH, b"batch")]]
    found = backup.done()
    assert [call for call in found if call in applied] == applied
    assert [call for call in found if call[0] == "part"] == parts
    assert found[-1][1]["attrs"]["slices"] == 1


def test_one_that_has_holes_applies_each_part_as_it_comes() -> None:
    backup = greeted(False)
    send_all(backup)
    assert backup.names() == [*APPLIED[1:5], "CREDIT", *APPLIED[5:]]


def test_one_that_the_set_does_not_list_has_holes_from_the_cut_on() -> None:
    backup = Backup()
    backup.welcome()
    backup.done()
    backup.cut(InSync(3, "id-c", 4, (C,)))
    found = backup.done()
    assert [call[0] for call in found[:3]] == ["persist", "admitted", "not_listed"]
    assert ("hold", False) in found and ("set_position", CUT) in found
    backup.frame(Kind.MERGE, encode_merge(7))
    assert backup.names() == ["merge", "part"]


def test_the_set_at_the_cut_is_on_disk_before_the_cut_counts_and_never_older_than_ours() -> None:
    backup = Backup()
    backup.welcome()
    backup.done()
    with pytest.raises(LinkError, match="of the primary is older than ours"):
        backup.cut(InSync(2, "id-a", 2, (A, B)))
    assert backup.done() == [] and backup.joining.step is JoinStep.GREETING
    backup.cut()
    found = backup.done()
    assert found[:2] == [("persist", (3, "id-c"), NEW.key), ("admitted",)]
    assert found[2:] == [("catchup_begin", {"peer": str(C), "last_pos": CUT})]
    assert (backup.joining.step, backup.joining.live) == (JoinStep.SYNCING, CUT)
    equal = Backup()
    equal.welcome(**A.to_json(), epoch=2)
    equal.cut(SET)
    assert equal.joining.step is JoinStep.SYNCING


def test_a_slice_is_credited_when_the_disk_has_taken_most_of_what_came() -> None:
    backup = greeted(False)
    backup.journal.waiting = UNWRITTEN + 1
    backup.frame(Kind.SLICE, b"slice")
    assert "CREDIT" not in backup.names()
    assert backup.run_later() == [PAUSE] and backup.names() == []
    backup.journal.waiting = UNWRITTEN
    assert backup.run_later() == [PAUSE] and backup.names() == ["CREDIT"] and backup.later == []


def test_the_difference_waits_for_the_disk_and_is_applied_in_pieces() -> None:
    backup = greeted()
    for _ in range(2):
        backup.frame(Kind.SLICE, bytes(BITE))
    backup.done()
    backup.journal.waiting = UNWRITTEN + 1
    backup.joining.on_control("caught-up", {})
    assert backup.names() == [] and backup.joining.step is JoinStep.APPLYING
    backup.journal.waiting = 0
    assert backup.run_later() == [PAUSE] and backup.names().count("apply_slice") == 1
    assert backup.run_later() == [0.0]
    names = backup.names()
    assert names.count("apply_slice") == 1 and names[-2:] == ["complete", "catchup_end"]


@pytest.mark.parametrize("error", [LinkError("bad"), MemoryError("none left")])
def test_a_difference_that_cannot_be_applied_leaves_holes_here_and_on_disk(error: Exception) -> None:
    backup = greeted()
    send_all(backup)
    backup.done()
    backup.fails["apply_slice"] = error
    backup.joining.on_control("caught-up", {})
    names = backup.names()
    assert names[names.index("apply_slice") :] == ["apply_slice", "leave", "not_listed", "close", "lost"]
    assert backup.joining.end() is False and backup.names() == [], "the rest is discarded"
    assert backup.local.lineage != PRIMARYS


# ---- a large configuration --------------------------------------------------------------------------------------


def spread(objects: int, *noted: int, whole: bool = False) -> Backup:
    """In the middle of a snapshot that changes so many."""
    backup = greeted(whole)
    backup.objects, backup.noted = objects, set(noted)
    backup.frame(Kind.SNAPSHOT, DIFFERENCE[Kind.SNAPSHOT])
    return backup


def test_a_large_configuration_is_taken_over_in_several_turns() -> None:
    backup = spread(3 * OBJECTS, OBJECTS, 2 * OBJECTS, 3 * OBJECTS)
    assert backup.names() == ["adopt", "hold", f"object {OBJECTS}"], "two parts at once, and live batches are held"
    backup.frame(Kind.BATCH, b"batch", LIVE)
    backup.frame(Kind.MERGE, encode_merge(7))
    assert backup.names() == ["ACK"]
    assert backup.run_later() == [0.0] and backup.names() == [f"object {2 * OBJECTS}"]
    assert backup.run_later() == [0.0]
    assert backup.done() == [
        (f"object {3 * OBJECTS}",),
        ("part", Kind.SNAPSHOT, DIFFERENCE[Kind.SNAPSHOT]),
        ("apply_held", LIVE, b"batch"),
        ("part", Kind.BATCH, b"batch"),
        ("merge", 7),
        ("part", Kind.MERGE, encode_merge(7)),
        ("hold", False),
    ]
    backup.frame(Kind.MERGE, encode_merge(7))
    assert backup.names() == ["merge", "part"] and backup.later == []


def test_one_turn_is_enough_for_most() -> None:
    backup = spread(OBJECTS - 1)
    assert backup.names() == ["adopt", "part"] and backup.later == []


def test_no_slice_is_asked_for_meanwhile() -> None:
    backup = spread(3 * OBJECTS)
    backup.frame(Kind.SLICE, b"slice")
    assert "CREDIT" not in backup.names()
    assert backup.run_later() == [0.0, PAUSE] and backup.run_later() == [0.0, PAUSE]
    assert backup.names() == ["part", "apply_slice", "part", "hold", "CREDIT"] and backup.later == []


def test_it_waits_for_the_disk() -> None:
    backup = spread(3 * OBJECTS)
    backup.done()
    backup.journal.waiting = UNWRITTEN + 1
    assert backup.run_later() == [0.0] and backup.run_later() == [PAUSE] and backup.names() == []
    backup.journal.waiting = 0
    assert backup.run_later() == [PAUSE] and backup.run_later() == [0.0]
    assert backup.names() == ["part", "hold"]


def test_the_end_of_the_difference_may_come_meanwhile() -> None:
    backup = spread(4 * OBJECTS)
    backup.joining.on_control("caught-up", {})
    assert backup.joining.step is JoinStep.APPLYING
    while backup.later:
        backup.run_later()
    names = backup.names()
    assert names.count("hold") == 2 and names[-4:] == ["begin_again", "joined", "complete", "catchup_end"]
    assert names.index("part") < names.index("begin_again")


def test_a_whole_member_takes_a_large_one_over_in_several_turns_too() -> None:
    backup = spread(2 * OBJECTS, whole=True)
    assert backup.names() == [] and backup.later == []
    backup.joining.on_control("caught-up", {})
    assert "adopt" in backup.names() and backup.joining.step is JoinStep.APPLYING
    assert backup.run_later() == [0.0] and backup.names() == []
    assert backup.run_later() == [0.0]
    assert backup.names() == ["part", "hold", "begin_again", "joined", "complete", "catchup_end"]


def test_a_link_that_ends_in_the_middle_is_not_joined() -> None:
    backup = spread(3 * OBJECTS)
    backup.done()
    assert backup.joining.end() is False and backup.run_later() == [0.0]
    assert backup.names() == [] and backup.later == []


def test_an_object_that_cannot_be_made_costs_the_link() -> None:
    backup = spread(3 * OBJECTS, 2 * OBJECTS)
    backup.done()
    backup.fails[f"object {2 * OBJECTS}"] = LinkError("bad")
    backup.run_later()
    assert backup.names() == [f"object {2 * OBJECTS}", "leave", "not_listed", "close", "lost"]
    assert backup.later == []


# ---- joined -----------------------------------------------------------------------------------------------------


def test_we_are_complete_when_a_restart_would_not_change_that() -> None:
    backup = caught_up(complete=False)
    assert "joined" not in backup.names() and backup.joining.step is JoinStep.STORING
    backup.joining.on_batches(LIVE)
    backup.joining.acknowledge()
    assert backup.names() == [], "nothing is acknowledged that is not on disk"
    backup.journal.complete, backup.journal.position, backup.time = True, LIVE - 1, 6.5
    backup.joining.acknowledge()
    joined, complete, event, ack = backup.done()
    assert joined == ("joined", LIVE) and complete == (*CONTROL, "complete", {})
    assert event == ("catchup_end", {"peer": str(C), "last_pos": CUT, "attrs": {"slices": 0, "seconds": 2.5}})
    assert ack == ("send", Kind.ACK, LIVE - 1, b"")


def test_each_position_is_acknowledged_once_and_never_before_it_is_on_disk() -> None:
    backup = caught_up()
    backup.done()
    backup.journal.position = CUT
    backup.joining.acknowledge()
    backup.joining.on_batches(LIVE)
    backup.joining.acknowledge()
    assert backup.done() == [("send", Kind.ACK, CUT, b"")]
    backup.journal.position = make(3, 500)
    backup.joining.acknowledge()
    assert backup.done() == [("send", Kind.ACK, LIVE, b"")]


def test_a_set_that_is_not_stored_costs_the_link_and_nothing_is_complete() -> None:
    backup = greeted()
    backup.fails["joined"] = StateNotStored("full")
    backup.joining.on_control("caught-up", {})
    assert backup.names()[-3:] == ["joined", "close", "lost"]


# ---- the link ends ----------------------------------------------------------------------------------------------


def test_a_difference_that_has_not_come_as_a_whole_is_discarded() -> None:
    backup = greeted()
    send_all(backup)
    backup.done()
    assert backup.joining.end() is False and backup.names() == []
    assert backup.local.lineage == MINE


def test_one_that_has_come_as_a_whole_is_applied_when_the_link_ends() -> None:
    backup = greeted()
    send_all(backup)
    backup.done()
    backup.journal.waiting = UNWRITTEN + 1
    backup.joining.on_control("caught-up", {})
    assert backup.joining.end() is True
    names = backup.names()
    assert names == ["differ", *APPLIED, "begin_again"] and backup.local.lineage == PRIMARYS
    backup.journal.waiting = 0
    backup.run_later()
    assert backup.names() == [], "it is over"


@pytest.mark.parametrize("error", [LinkError("bad"), MemoryError("none left")])
def test_one_that_cannot_be_applied_then_has_not_joined(error: Exception) -> None:
    backup = greeted()
    send_all(backup)
    backup.journal.waiting = UNWRITTEN + 1
    backup.joining.on_control("caught-up", {})
    backup.done()
    backup.fails["adopt"] = error
    assert backup.joining.end() is False
    assert backup.names()[-3:] == ["adopt", "leave", "not_listed"] and backup.local.lineage != PRIMARYS


def test_nothing_is_sent_after_the_end() -> None:
    backup = caught_up(complete=False)
    backup.joining.end()
    backup.done()
    backup.journal.complete, backup.journal.position = True, make(3, 500)
    backup.joining.acknowledge()
    backup.joining.control("alive", number=1)
    assert backup.done() == []
    assert backup.joining.step is JoinStep.STORING
    backup = caught_up()
    backup.joining.end()
    backup.done()
    backup.journal.position = make(3, 500)
    backup.joining.on_batches(LIVE)
    backup.joining.acknowledge()
    assert backup.done() == []


def test_no_credit_is_awaited_after_the_end() -> None:
    backup = greeted(False)
    backup.journal.waiting = UNWRITTEN + 1
    backup.frame(Kind.SLICE, b"slice")
    backup.joining.end()
    assert backup.run_later() == [PAUSE] and backup.later == []


def test_what_was_put_aside_earlier_is_forgotten_once_everything_is_taken_over() -> None:
    aside = {(7, 70): decode_ids(encode_ids([(1, 2)]))}
    backup = greeted()
    backup.joining._aside = aside
    backup.joining.on_control("caught-up", {})
    assert aside == {}


@pytest.mark.parametrize(
    ("lineage", "known"),
    [
        (PRIMARYS, make(2, 50)),
        ({2: MINE[2], 3: Origin("id-c", make(2, 40))}, make(2, 40)),
        ({1: MINE[1], 2: Origin("id-c", make(1, 30)), 3: Origin("id-c", make(2, 9))}, make(1, 30)),
        ({2: MINE[2], 3: Origin("id-c", 0)}, 0),
    ],
    ids=["all of ours", "less than ours", "another epoch 2", "it had holes"],
)
def test_the_keys_that_the_primary_shares_need_not_be_sent(
    lineage: Lineage, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "window", object())
    backup = Backup()
    backup.welcome(lineage=lineage_to_json(lineage))
    told = encode_held(KEYS + 7, 70, encode_ids([(1, known)]))
    assert (("send", Kind.HELD, 0, told) in backup.done()) == bool(known)


def test_one_that_has_holes_knows_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "window", object())
    backup = Backup(whole=False)
    backup.welcome()
    assert not [call for call in backup.done() if call[:2] == ("send", Kind.HELD)]
