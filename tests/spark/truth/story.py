"""A story: what happened, and the answers, written by hand in seconds of true time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.spark.truth.reading import tables
from tests.spark.truth.world import Files, World

Times = tuple[float, float]


@dataclass(frozen=True)
class Story:
    """`phases`: name -> (begin, end) in s, or what its note must say when it is not known.

    `dual`: for each pair (old, new, roles, verdict, margin in ms); `unknown`, `hints`, `near`: what must be among them;
    `error`: s by which an estimate may be wrong (a bound must hold the truth whatever it is)."""

    name: str
    files: Files
    world: World
    type: str
    old: str | None
    new: str | None
    phases: Mapping[str, Times | str] = field(default_factory=dict)
    dual: Sequence[tuple[str, str, str, str, float]] = ()
    outages: Sequence[tuple[str, float, float | None]] = ()
    unknown: Sequence[str] = ()
    hints: Sequence[str] = ()
    near: Sequence[str] = ()
    promotions: int = 1
    censored: bool = False
    error: float = 0.002
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def rows(self, files: Files | None = None) -> dict[str, list[dict[str, Any]]]:
        return tables(self.files if files is None else files, self.client_rows(), **self.options)

    def client_rows(self) -> list[dict[str, Any]]:
        def us(at: float | None) -> int | None:
            return None if at is None else self.world.start + round(at * 1e6)

        return [{"client": name, "begin": us(begin), "end": us(end)} for name, begin, end in self.outages]


def check(story: Story, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Everything that the story says, in what was found."""
    (incident,) = found["incidents"]
    said = {name: incident[name] for name in ("type", "planned", "old_primary", "new_primary", "promotions")}
    assert said == {
        "type": story.type,
        "planned": story.type == "planned",
        "old_primary": story.old,
        "new_primary": story.new,
        "promotions": story.promotions if story.new else 0,
    }, incident["why"]
    assert incident["failover"] == (story.new is not None)
    assert (incident["end"] is None) == story.censored
    _check_dual(story, found["dual"])
    for name, wanted in story.phases.items():
        (row,) = [row for row in found["phases"] if row["phase"] == name]
        _check_phase(story, row, wanted)
    for text in story.unknown:
        assert any(text in line for line in incident["unknown"]), (text, incident["unknown"])
    rules = {row["rule"] for row in found["hints"]}
    assert rules >= set(story.hints), (story.hints, found["hints"])
    assert [row["kind"] for row in found["near_misses"]] == list(story.near)


def _check_phase(story: Story, row: Mapping[str, Any], wanted: Times | str) -> None:
    if isinstance(wanted, str):
        assert not row["known"] and wanted in row["note"], row
        return
    assert row["known"], row
    for name, true in zip(("begin", "end"), wanted, strict=True):
        low, est, high = (story.world.true(row[f"{name}{part}"]) for part in ("_lo", "", "_hi"))
        assert low - 1e-6 <= true <= high + 1e-6, (row["phase"], name, low, true, high)
        assert abs(est - true) <= story.error, (row["phase"], name, est, true)
    length = (wanted[1] - wanted[0]) * 1e6
    assert row["duration_lo_us"] - 1 <= length <= row["duration_hi_us"] + 1


def _check_dual(story: Story, rows: Sequence[Mapping[str, Any]]) -> None:
    keys = ("old_node", "new_node", "roles", "verdict")
    assert [tuple(row[key] for key in keys) for row in rows] == [pair[:4] for pair in story.dual], rows
    for row, pair in zip(rows, story.dual, strict=True):
        assert abs(row["margin_ms"] - pair[4]) <= 2000 * story.error, (row, pair)
