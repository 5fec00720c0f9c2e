"""The duplicate filter."""

import pytest

from client_lib.dedup import DuplicateFilter, Verdict


def test_new_working_done() -> None:
    seen = DuplicateFilter[str]()
    assert seen.offer("a", "first", False) == (Verdict.NEW, None)
    assert seen.offer("a", "second", True) == (Verdict.WORKING, "first")
    seen.finished("a")
    assert seen.offer("a", "third", True) == (Verdict.DONE, None)
    assert seen.dropped == 2


def test_released_is_new_again() -> None:
    seen = DuplicateFilter[str]()
    seen.offer("a", "first", False)
    seen.released("a")
    assert seen.offer("a", "second", True) == (Verdict.NEW, None)


def test_messages_without_id_always_pass() -> None:
    seen = DuplicateFilter[str]()
    assert seen.offer(None, "x", True) == seen.offer(None, "x", True) == (Verdict.NEW, None)
    seen.finished(None)
    seen.released(None)
    assert len(seen) == 0


def test_the_window_forgets_the_oldest_finished_but_never_unfinished_ones() -> None:
    seen = DuplicateFilter[str](window=2)
    seen.offer("open", "first", False)
    for name in "abc":
        seen.offer(name, name, False)
        seen.finished(name)
    assert len(seen) == 3
    assert seen.offer("a", "again", True)[0] is Verdict.NEW
    assert seen.offer("b", "again", True)[0] is Verdict.DONE
    assert seen.offer("open", "second", True) == (Verdict.WORKING, "first")


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DuplicateFilter[str](window=0)


def test_a_message_that_comes_back_on_purpose_is_new() -> None:
    """Through a dead-letter queue, or published again under its id; also while the application works on the first."""
    seen = DuplicateFilter[str]()
    seen.offer("a", "first", False)
    assert seen.offer("a", "of another publisher", False)[0] is Verdict.NEW
    assert seen.offer("a", "redelivered", True) == (Verdict.WORKING, "first")
    seen.finished("a")
    assert seen.offer("a", "retried", False)[0] is Verdict.NEW
    assert seen.offer("a", "redelivered", True) == (Verdict.WORKING, "retried")
    seen.released("a")
    assert seen.offer("a", "after a reject", True)[0] is Verdict.NEW
    assert seen.dropped == 2
