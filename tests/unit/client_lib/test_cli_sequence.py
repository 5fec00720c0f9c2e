"""Duplicates, gaps and missing flags."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_lib.cli import sequence
from client_lib.cli.sequence import CheckFailed, Numbers, SequenceTracker


@dataclass
class Stub:
    id: str | None = None
    properties: dict[str, Any] = field(default_factory=dict)
    redelivered: bool = False
    resent: bool = False


def numbered(sn: object, id: str | None = None, **flags: bool) -> Stub:
    return Stub(id, {"sn": sn}, **flags)


@given(st.lists(st.integers(-3, 30)))
def test_numbers_are_a_set(steps: list[int]) -> None:
    """Each step adds the number, or removes it if it is there."""
    numbers, model = Numbers(), set()
    for step in steps:
        (numbers.remove if step in model else numbers.add)(step)
        model ^= {step}
        assert [n for n in range(-5, 35) if n in numbers] == sorted(model)
    runs = sum(n - 1 not in model for n in model)
    assert len(numbers._starts) == len(numbers._ends) == runs


def test_duplicates_by_number() -> None:
    tracker = SequenceTracker()
    assert [tracker.is_duplicate(numbered(sn)) for sn in (1, 2, 2, 5, 1, 3)] == [0, 0, 1, 0, 1, 0]


def test_senders_are_told_apart_by_their_ids() -> None:
    tracker = SequenceTracker(verify=True)
    ids = [("a:1", 1), ("b:1", 1), ("a:2", 2), ("a:1", 1), ("b:2", 2)]
    assert [tracker.is_duplicate(numbered(sn, id)) for id, sn in ids] == [0, 0, 0, 1, 0]


def test_ids_without_number() -> None:
    tracker = SequenceTracker()
    assert [tracker.is_duplicate(Stub(id)) for id in ("x", "y:1", "x", "y:1", None, None)] == [0, 0, 1, 1, 0, 0]


def test_ids_of_another_form_count_more_than_numbers() -> None:
    """Two runs of a tool with --id: both begin with 1."""
    tracker = SequenceTracker()
    assert [tracker.is_duplicate(numbered(1, id)) for id in ("first", "second", "first")] == [0, 0, 1]


def test_ids_are_forgotten_in_their_order(monkeypatch) -> None:
    monkeypatch.setattr(sequence, "IDS_MAX", 2)
    tracker = SequenceTracker()
    assert [tracker.is_duplicate(Stub(id)) for id in "abcab"] == [0, 0, 0, 0, 0]
    assert tracker.is_duplicate(Stub("b"))


@pytest.mark.parametrize("ids", [True, False])
def test_gap(ids: bool) -> None:
    tracker = SequenceTracker(verify=True)
    for sn in (1, 2):
        tracker.is_duplicate(numbered(sn, f"s:{sn}" if ids else None))
    with pytest.raises(CheckFailed, match=f"gap in the sequence{' of s' if ids else ''}: found sn 4, expected 3"):
        tracker.is_duplicate(numbered(4, "s:4" if ids else None))


def test_gap_between_ids_of_another_form() -> None:
    tracker = SequenceTracker(verify=True)
    tracker.is_duplicate(numbered(1, "x"))
    with pytest.raises(CheckFailed, match="found sn 3, expected 2"):
        tracker.is_duplicate(numbered(3, "y"))


def test_a_sequence_begins_with_one() -> None:
    with pytest.raises(CheckFailed, match="found sn 5, expected 1"):
        SequenceTracker(verify=True).is_duplicate(numbered(5))


def test_a_duplicate_has_to_say_so() -> None:
    tracker = SequenceTracker(check_redelivered=True)
    tracker.is_duplicate(numbered(1, "a:1"))
    assert tracker.is_duplicate(numbered(1, "a:1", redelivered=True))
    assert tracker.is_duplicate(numbered(1, "a:1", resent=True))
    with pytest.raises(CheckFailed, match=r"message a:1 \(sn 1\) came twice, found .* without the redelivered flag"):
        tracker.is_duplicate(numbered(1, "a:1"))


def test_first_deliveries_may_be_redelivered() -> None:
    assert not SequenceTracker(check_redelivered=True).is_duplicate(numbered(1, redelivered=True))


def test_what_is_no_number_is_not_taken_for_one() -> None:
    tracker = SequenceTracker(verify=True)
    assert not any(tracker.is_duplicate(numbered(sn)) for sn in ("9", 2.5, True, None))


def test_undo_goes_back_to_the_last_keep() -> None:
    tracker = SequenceTracker(verify=True)
    for message in (numbered(1), numbered(2), Stub("x"), numbered(1, "p")):
        tracker.is_duplicate(message)
    tracker.keep()
    later = [numbered(3), numbered(4), Stub("y"), numbered(1, "s:1"), numbered(3)]
    assert [tracker.is_duplicate(message) for message in later] == [0, 0, 0, 0, 1]
    tracker.undo()
    assert [tracker.is_duplicate(message) for message in later] == [0, 0, 0, 0, 1]
    assert tracker.is_duplicate(numbered(2)) and tracker.is_duplicate(Stub("x"))
    tracker.undo()
    with pytest.raises(CheckFailed, match="found sn 5, expected 3"):
        tracker.is_duplicate(numbered(5))
