"""The duplicate filter."""

import pytest

from client_lib.core.dedup import DuplicateFilter, Verdict


def test_new_working_done() -> None:
    seen = DuplicateFilter[str]()
    assert seen.offer("a", "first") == (Verdict.NEW, None)
    assert seen.offer("a", "second") == (Verdict.WORKING, "first")
    seen.finished("a")
    assert seen.offer("a", "third") == (Verdict.DONE, None)
    assert seen.dropped == 2


def test_released_is_new_again() -> None:
    seen = DuplicateFilter[str]()
    seen.offer("a", "first")
    seen.released("a")
    assert seen.offer("a", "second") == (Verdict.NEW, None)


def test_messages_without_id_always_pass() -> None:
    seen = DuplicateFilter[str]()
    assert seen.offer(None, "x") == seen.offer(None, "x") == (Verdict.NEW, None)
    seen.finished(None)
    seen.released(None)
    assert len(seen) == 0


def test_the_window_forgets_the_oldest_finished_but_never_unfinished_ones() -> None:
    seen = DuplicateFilter[str](window=2)
    seen.offer("open", "first")
    for name in "abc":
        seen.offer(name, name)
        seen.finished(name)
    assert len(seen) == 3
    assert seen.offer("a", "again")[0] is Verdict.NEW
    assert seen.offer("b", "again")[0] is Verdict.DONE
    assert seen.offer("open", "second") == (Verdict.WORKING, "first")


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DuplicateFilter[str](window=0)
