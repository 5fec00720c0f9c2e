"""`make bench-gate` by hand: every load runs to its end, and what costs more is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gate
from benchmarks.gate_load import LOADS, Load, run


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_load_leaves_nothing(load: Load) -> None:
    run(load, 300)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What one message costs in the tree `base` and in this one; one thing is counted."""
    costs = {"base": 1000.0, gate.ROOT.name: 1000.0}

    def count(command: list[str], environment: dict[str, str]) -> float:
        return 5e8 + costs[Path(environment["PYTHONPATH"]).name] * int(command[-1])

    monkeypatch.setattr(gate, "counters", lambda: [("instructions", count, 1)])
    monkeypatch.setattr(gate, "built", lambda commit: Path("base"))
    return costs


def test_more_than_the_limit_fails(costs: dict[str, float], capsys: pytest.CaptureFixture[str]) -> None:
    costs[gate.ROOT.name] = 1021.0
    assert gate.main(["HEAD", "--load", "1 KiB"]) == 1
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split() == ["1", "KiB", "instructions", "1,000.0", "1,021.0", "+2.1%", "!"]


def test_less_passes(costs: dict[str, float], capsys: pytest.CaptureFixture[str]) -> None:
    costs[gate.ROOT.name] = 1019.0
    assert gate.main(["HEAD", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["load"] for row in rows] == list(LOADS)
    assert [row["growth"] for row in rows] == pytest.approx([0.019] * len(LOADS))


def test_an_allocation_where_there_was_none_is_growth() -> None:
    assert gate.Row("1 KiB", "allocations", 0.0, 0.5).growth > gate.LIMIT
    assert gate.Row("1 KiB", "allocations", 0.0, 0.0).growth == 0.0


def test_an_unknown_commit_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["no-such-commit"]) == 2
    assert "no-such-commit" in capsys.readouterr().err
