"""From files to tables, against the truth: clocks that are wrong are corrected within the stated error, and lines that
are missing make nothing more certain.  Many variants at once, each a cluster of its own.

Each property is tried against a broken rule as well: one that does not notice would be worth nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.clocks import pairs as clock_pairs
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.messages import evidence
from spark_jobs.solve import primaries
from tests.spark import pipeline_runs as runs
from tests.spark.truth import messages, nodes, processes
from tests.spark.truth.messages import Ledger
from tests.spark.truth.story import Story
from tests.spark.truth.world import Clock, Files, World
from tests.support.slow import few, mostly_slow

VARIANTS = few(30)
Row = dict[str, Any]


# ---- clocks ---------------------------------------------------------------------------------------------------------


def warped(make: Callable[[World], Story], seed: int) -> Story:
    """The story with clocks that are off by up to 5 s and drift by up to 100 ppm; node3's is right."""
    chance, world = random.Random(seed), World()
    for node in ("node1", "node2", "host-p1", "host-c1"):
        world.clocks[node] = Clock(chance.uniform(-5, 5), chance.uniform(-100, 100))
    return make(world)


def moments(world: World) -> dict[tuple[str, int], float]:
    """(file, line) -> when it was written, s of true time."""
    found: dict[tuple[str, int], float] = {}
    count: dict[str, int] = {}
    for at, _, file, _ in sorted(world._lines, key=lambda line: line[:2]):
        count[file] = count.get(file, 0) + 1
        found[file, count[file]] = at
    return found


def misplaced(found: list[Row], truth: Mapping[str, World]) -> list[str]:
    """Facts whose true time is not within their bounds."""
    when = {name: moments(world) for name, world in truth.items()}
    wrong = []
    for row in found:
        name, _, file = row["file"].partition("/")
        true = truth[name].start + when[name][file, row["line_no"]] * 1e6
        if not row["ts_lo"] - 1 <= true <= row["ts_hi"] + 1:
            wrong.append(f"{row['file']}:{row['line_no']}: true {true:.0f}, said {row['ts_lo']}..{row['ts_hi']}")
    return wrong


@pytest.fixture
def bent(duck: DuckEngine, tmp_path: Path) -> Callable[[], tuple[list[Row], dict[str, World]]]:
    """Facts of many warped kills on one axis, and their worlds."""

    def run() -> tuple[list[Row], dict[str, World]]:
        stories = {f"w{seed:02}": warped(processes.kill, seed) for seed in range(VARIANTS)}
        files = runs.clusters({name: story.files for name, story in stories.items()})
        events = runs.tables(duck, files, tmp_path, "events")["events"]
        return events, {name: story.world for name, story in stories.items()}

    return run


def test_true_times_are_within_their_bounds(bent: Callable[[], tuple[list[Row], dict[str, World]]]) -> None:
    events, worlds = bent()
    assert len({row["node"] for row in events}) >= 3 and len(events) > VARIANTS * 50
    assert misplaced(events, worlds) == []
    assert max(row["ts_hi"] - row["ts_lo"] for row in events) < 40_000  # bounds that say nothing would always hold


def test_a_warp_moves_events_by_less_than_the_stated_error(
    bent: Callable[[], tuple[list[Row], dict[str, World]]],
) -> None:
    """Against the same world with right clocks."""
    events, worlds = bent()
    right = processes.kill(World())
    when = moments(right.world)
    for row in events:
        name, _, file = row["file"].partition("/")
        true = round(worlds[name].start + when[file, row["line_no"]] * 1e6)
        assert abs(row["ts_est"] - true) <= max(row["ts_hi"] - row["ts_est"], row["ts_est"] - row["ts_lo"]) + 1


def test_bounds_that_are_too_narrow_are_noticed(
    bent: Callable[[], tuple[list[Row], dict[str, World]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: messages are taken to need at least 1 ms, which they do not."""
    bound = clock_pairs.Observation.bound
    monkeypatch.setattr(clock_pairs.Observation, "bound", property(lambda self: bound.fget(self) - 1000))  # type: ignore[attr-defined]
    events, worlds = bent()
    assert misplaced(events, worlds)


# ---- messages -------------------------------------------------------------------------------------------------------

CLIENTS = "clients/"


def fates(duck: DuckEngine, variants: Mapping[str, Files], place: Path) -> dict[str, dict[int, str]]:
    """cluster -> message -> verdict, of those that are not simply ok."""
    rows = runs.tables(duck, runs.clusters(variants), place, "message_verdicts")["message_verdicts"]
    found: dict[str, dict[int, str]] = {name: {} for name in variants}
    for row in rows:
        found[row["cluster"]][row["pub"]] = row["verdict"]
    return found


def thinner(ledger: Ledger, where: Callable[[str], bool]) -> dict[str, Files]:
    """One line less each, for a third of the variants; else with a share of the lines gone."""
    chance = random.Random(ledger.name)
    found: dict[str, Files] = {}
    chosen = sorted(name for name in ledger.files if where(name))
    for seed in range(VARIANTS):
        if seed % 3:
            found[f"v{seed:02}"] = runs.thinned(ledger.files, seed, 0.05 * (1 + seed % 5), where)
            continue
        name = chance.choice(chosen)
        lines = list(ledger.files[name])
        del lines[chance.randrange(len(lines))]
        found[f"v{seed:02}"] = {**ledger.files, name: lines}
    return found


def turned(ledger: Ledger, found: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Messages that are lost by fewer lines only."""
    lost = {number for number, (verdict, _) in ledger.verdicts.items() if verdict == "lost"}
    return [
        f"{name}: {number}" for name, of in found.items() for number, verdict in of.items()
        if verdict == "lost" and number not in lost
    ]  # fmt: skip


@pytest.mark.parametrize("make", mostly_slow(messages.LEDGERS, 2), ids=lambda make: make.__name__)
@pytest.mark.parametrize("whose", ["clients", "everybody"])
def test_fewer_lines_never_make_a_message_lost(
    make: Callable[[], Ledger], whose: str, duck: DuckEngine, tmp_path: Path
) -> None:
    ledger = make()
    found = fates(duck, thinner(ledger, lambda name: whose == "everybody" or CLIENTS in name), tmp_path)
    assert turned(ledger, found) == []
    assert any(of != {n: v for n, (v, _) in ledger.verdicts.items() if v != "ok"} for of in found.values())


@contextmanager
def without_completeness(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Broken: every log is taken for complete, and every queue for drained."""
    with monkeypatch.context() as patch:
        patch.setattr(evidence.Evidence, "of_queue", lambda self, queue: ("", evidence.FOREVER))
        yield


@pytest.mark.parametrize("make", [messages.backlog, messages.duplicates], ids=lambda make: make.__name__)
def test_judging_without_the_completeness_rule_is_noticed(
    make: Callable[[], Ledger], duck: DuckEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make()
    with without_completeness(monkeypatch):
        found = fates(duck, thinner(ledger, lambda name: CLIENTS in name), tmp_path)
    assert turned(ledger, found)


# ---- two primaries --------------------------------------------------------------------------------------------------

TRUTH = {
    nodes.late_fencing: "certain",
    processes.hang: "possible",
    nodes.partition: "excluded",
    processes.kill: "excluded",
}
ALLOWED = {"certain": {"certain", "possible"}, "possible": {"possible"}, "excluded": {"excluded", "possible"}}
"""What may be said with fewer lines."""


def duals(make: Callable[[], Story], duck: DuckEngine, place: Path) -> list[str]:
    """Verdicts about the first two primaries, of variants without some of their lines; text logs keep their cluster."""
    story = make()
    variants = {f"v{seed:02}": runs.thinned(story.files, seed, 0.02 + seed % 4 * 0.12) for seed in range(VARIANTS)}
    rows = runs.tables(duck, runs.clusters(variants), place, "dual")["dual"]
    return [row["verdict"] for row in rows if (row["old_node"], row["new_node"]) == ("node1", "node2")]


@pytest.mark.parametrize("make", mostly_slow(TRUTH, 2), ids=lambda make: make.__name__)
def test_fewer_lines_make_no_verdict_wrong(make: Callable[[], Story], duck: DuckEngine, tmp_path: Path) -> None:
    found = duals(make, duck, tmp_path)
    assert len(found) > VARIANTS / 2
    assert set(found) <= ALLOWED[TRUTH[make]]


def test_believing_every_sign_of_an_end_is_noticed(
    duck: DuckEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: the old primary is taken to have ended when the new one was promoted."""
    monkeypatch.setattr(primaries, "_roles", lambda *_: primaries.EXCLUDED)
    assert not set(duals(nodes.late_fencing, duck, tmp_path)) <= ALLOWED["certain"]
