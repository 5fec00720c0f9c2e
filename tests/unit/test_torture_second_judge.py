"""The second judge compares counts; where logs have lost their ends, "lost" may be "unaccounted", and no more."""

from pathlib import Path
from typing import Any

import pytest

from demo import morning_after
from testkit.judge import Verdict
from torture import client_events, second_judge


def compared(monkeypatch: pytest.MonkeyPatch, path: Path, cut: bool, lost: int, unaccounted: int) -> list[str]:
    """The checker has counted 3 lost."""
    total: dict[str, Any] = {**dict.fromkeys(morning_after.SAME.values(), 0), "lost": lost, "unaccounted": unaccounted}
    monkeypatch.setattr(client_events, "write", lambda *_: None)
    monkeypatch.setattr(morning_after, "report", lambda *_: {"messages": {"total": total}})
    monkeypatch.setattr(morning_after, "check", lambda *_: [])
    monkeypatch.setattr(morning_after, "rows", lambda *_: [])
    (path / "history").mkdir()
    return second_judge.contradictions(path, "availability", Verdict(lost=3), True, [], cut)


@pytest.mark.parametrize(
    ("cut", "lost", "unaccounted", "same"),
    [(False, 3, 0, True), (False, 0, 3, False), (True, 3, 0, True), (True, 1, 2, True), (True, 0, 2, False)],
)
def test_lost_and_unaccounted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: bool, lost: int, unaccounted: int, same: bool
) -> None:
    assert (compared(monkeypatch, tmp_path, cut, lost, unaccounted) == []) is same
