"""Corrected time in SQL is what `Clocks.correct` says."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.clocks import estimate as clocks
from spark_jobs.clocks import job as clock
from spark_jobs.clocks.query import STRAIGHT, pieces
from spark_jobs.clocks.segments import Clocks, ClockSegment
from spark_jobs.clocks.steps import Break
from spark_jobs.engine.base import Engine
from spark_jobs.facts import job as facts
from spark_jobs.options import Options
from spark_jobs.workspace import Workspace
from tests.spark.pairs_judge import observations
from tests.spark.sql_histories import write
from tests.spark.truth import processes, scenes, watches
from tests.spark.truth.reading import events
from tests.spark.truth.world import Clock, World


def solved(engine: Engine, place: Path, rows: list[dict[str, Any]]) -> Options:
    write(rows, place / "events_raw")
    workspace = Workspace(str(place))
    workspace.load(engine, "events_raw")
    facts.run(engine, workspace)
    clock.pairs(engine, workspace)
    clock.run(engine, workspace, "node3")
    return clock.timed(engine, workspace, Options())


def test_corrected_time_is_that_of_the_solver(engine: Engine, tmp_path: Path) -> None:
    options = solved(engine, tmp_path, events(watches.all_wrong().files))
    assert (options.events, options.clock) == ("events_timed", "ts_est")
    solver = clock.of_rows([{**row, "evidence": {}} for row in engine.rows("select * from clock_segments")])
    rows = engine.rows("select node, ts_wall, ts_res, ts_mono, boot_id, ts_est from events_timed")
    apart = [abs(row["ts_est"] - solver.correct(row)[0]) for row in rows]
    assert len(apart) > 100 and max(apart) <= STRAIGHT + 1
    moved = {row["node"] for row in rows if abs(row["ts_est"] - row["ts_wall"]) > 1_000_000}
    assert moved == {"node1", "node2"}


def test_a_clock_that_was_set_back_shows_each_time_once(engine: Engine, tmp_path: Path) -> None:
    """ts_mono tells on which side of the step a row is, also a client's."""
    story = watches.set_back()
    for at in range(-20, 20):
        story.world.client(
            "c1", at / 2 + 0.2, "deliver", queue="q", msg_id=f"m:{at + 21}", node="node2", boot_id="boot-node2"
        )
    rows = events(story.world.files())
    options = solved(engine, tmp_path, rows)
    found = engine.rows(f"select ts_mono, {options.clock} as at, ts_wall from {options.events} where node = 'node2'")
    offsets = [row["at"] - row["ts_mono"] for row in found]
    assert max(offsets) - min(offsets) < 10_000
    assert max(offsets) - min(row["ts_wall"] - row["ts_mono"] for row in found) > 1_900_000
    assert len(found) == len([row for row in rows if row["node"] == "node2"])


def test_right_clocks_need_no_correction(engine: Engine, tmp_path: Path) -> None:
    options = solved(engine, tmp_path, events(processes.kill().files))
    assert (options.events, options.facts, options.clock) == ("events_raw", "facts", "ts_wall")


def test_steps_are_in_the_table(engine: Engine, tmp_path: Path) -> None:
    """What was solved and what is read again correct alike, near the step, too."""
    rows = events(watches.set_back().files)
    solved(engine, tmp_path, rows)
    segments = [{**row, "evidence": {}} for row in engine.rows("select * from clock_segments")]
    solver = clock.of_rows(segments)
    (step,) = solver.breaks
    assert (step.node, step.jump, step.why) == ("node2", -2_000_000, "wall against monotonic")
    here = [row for row in rows if row["node"] == "node2"]
    assert {len(solver._segments(row, row["ts_wall"])) for row in here} == {1}
    assert len({solver._segments(row, row["ts_wall"])[0].number for row in here}) == 2


@pytest.mark.parametrize("ppm", [0, 150, -150])
def test_few_lines_are_enough(ppm: int) -> None:
    """An hour of a drifting clock, seen once a second."""
    world = World()
    world.clocks["node1"] = Clock(offset=3.0, ppm=ppm)
    scenes.up(world)
    scenes.work(world, "node1", ["node2", "node3"], 0.0, 3600.0, 1)
    rows = events(world.files())
    found = clocks.solve(observations(rows), rows, "node3")
    lines = pieces(found)
    assert {line["node"] for line in lines} == {"node1"} and len(lines) <= 8
    assert lines[0]["w0"] < 0 and all(one["w1"] == other["w0"] for one, other in pairwise(lines))


def test_no_row_is_in_two_pieces() -> None:
    """However a clock was set, and whatever told it."""
    knots = ((0, 5e6, 5e6), (10, 5e6, 5e6))
    for whys in product(("step", "wall against monotonic", "reboot"), repeat=3):
        breaks = [
            Break(
                "b", lo, lo + 10, why, boot="x" if "mono" in why else "", mono=(lo, lo + 5) if "mono" in why else None
            )
            for lo, why in zip((500, 100, 300), whys, strict=True)
        ]
        found = pieces(Clocks("a", {"b": [ClockSegment("b", number, 0, 9, knots) for number in range(4)]}, breaks))
        walls = sorted((row["w0"], row["w1"]) for row in found if not row["boot"])
        monos = sorted((row["m0"], row["m1"], row["w0"]) for row in found if row["boot"])
        assert all(one[1] == other[0] for one, other in pairwise(walls))
        assert all(one[:2] == other[:2] or one[1] <= other[0] for one, other in pairwise(monos))
        assert bool(monos) == ("step" not in whys and "wall against monotonic" in whys)


def test_an_unknown_clock_has_no_pieces() -> None:
    assert pieces(Clocks("a", {"b": [ClockSegment("b", 0, 1, 2)]})) == []
