"""The backup's side of joining, frame by frame: what it sends and refuses, in which order, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ha.backup.joining import JoinStep
from ha.model.difference import Lineage, Origin, lineage_to_json
from ha.model.environment import Json, StateNotStored
from ha.model.position import make
from ha.model.protocol import VERSION, Kind, encode_drop, encode_held, encode_merge
from qpidd_py.core import encode_ids
from qpidd_py.errors import LinkError
from tests.unit.ha.joining_lab import (
    CONTROL,
    CUT,
    DIFFERENCE,
    LIVE,
    MINE,
    NEW,
    SET,
    WELCOME,
    A,
    Backup,
    Queue,
    greeted,
)

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


def test_what_an_exchange_keeps_is_not_put_aside() -> None:
    """Its queue has copies of what is in other queues, too."""
    backup = Backup(True, (make(2, 70), make(2, 80)))
    backup.queue.shadow = True
    backup.local.acknowledged = make(2, 80)
    backup.welcome()
    assert "LACK" not in backup.names()


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
