"""The backup's side of joining: the difference, and a large configuration in it."""

from __future__ import annotations

import pytest

from ha.backup.joining import OBJECTS, JoinStep
from ha.backup.staging import BITE, PAUSE, UNWRITTEN
from ha.model.membership import InSync
from ha.model.position import make
from ha.model.protocol import Kind, encode_merge
from qpidd_py.errors import LinkError
from tests.unit.ha.joining_lab import (
    APPLIED,
    CUT,
    DIFFERENCE,
    LIVE,
    NEW,
    PRIMARYS,
    SET,
    A,
    B,
    Backup,
    C,
    Call,
    greeted,
    send_all,
)

# ---- the difference ---------------------------------------------------------------------------------------------


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
