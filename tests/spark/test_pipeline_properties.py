"""From files to the report's JSON: how files are ordered, packed and split does not matter, nor running twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import FITS, SparkEngine
from tests.spark import pipeline_runs as runs
from tests.spark.truth import messages, nodes, processes
from tests.spark.truth.files import rotated
from tests.spark.truth.world import Files
from tests.support.slow import few

FEW = settings(max_examples=few(4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SEEDS = st.integers(0, 2**32 - 1)


def clients() -> Files:
    """A kill with producers and consumers, every kind of duplicate, and one message that is recovered."""
    return messages.duplicates().files


def cluster() -> Files:
    """A partition with Pacemaker, Corosync and brokers."""
    return nodes.partition().files


WORLDS = {"clients": clients, "cluster": cluster}


class World:
    """`files`, and what is said about them as they are; a short name in what hypothesis prints."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.files = name, WORLDS[name]()
        self.plain = self.answer(runs.folder(self.files, place / "in"), place)

    def __repr__(self) -> str:
        return self.name

    @staticmethod
    def answer(given_: str, place: Path) -> runs.Answer:
        engine = DuckEngine(threads=2)
        try:
            return runs.answer(engine, [given_], place)
        finally:
            engine.close()


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(request.param, tmp_path_factory.mktemp("plain"))


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A new folder for each example."""
    return lambda: tmp_path_factory.mktemp("example")


def same(found: object, wanted: object) -> None:
    """Names the first difference: pytest's own is longer than any screen."""
    assert difference(found, wanted) == ""


def difference(found: Any, wanted: Any, where: str = "") -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = sorted(found.keys() | wanted.keys())
        parts = (difference(found.get(name), wanted.get(name), f"{where}/{name}") for name in names)
        return next(filter(None, parts), "")
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        return next(filter(None, (difference(*pair, f"{where}/{number}") for number, pair in pairs)), "")
    return "" if found == wanted else f"{where}: {str(found)[:600]} != {str(wanted)[:600]}"


def test_there_is_something_to_say(world: World) -> None:
    found = runs.parsed(world.plain)
    assert sorted(found) == ["incident-1.json", "report.json"]
    incident = found["incident-1.json"]
    assert incident["incident"]["failover"] and len(incident["phases"]) == 10 and incident["dual"]
    assert found["report.json"]["ingest"]["lines"] == sum(map(len, world.files.values()))
    if world.name == "clients":
        verdicts = {row["verdict"] for row in incident["messages"]["verdicts"]}
        assert verdicts == {"duplicated", "recovered"}


@given(seed=SEEDS, packed=st.sampled_from(["folder", "gzip", "tarball"]))
@FEW
def test_order_and_packing_do_not_matter(seed: int, packed: str, world: World, place: Callable[[], Path]) -> None:
    here, order = place(), random.Random(seed)
    if packed == "tarball":
        mixed = runs.tarball(world.files, here / "in", order)
    else:
        mixed = runs.folder(world.files, here / "in", order, packed=packed == "gzip")
    found = world.answer(mixed, here)
    same(runs.parsed(found), runs.parsed(world.plain))
    assert found == world.plain  # every octet


@given(seed=SEEDS)
@FEW
def test_rotation_does_not_matter(seed: int, world: World, place: Callable[[], Path]) -> None:
    """Segments end anywhere; text logs are rotated anywhere."""
    here, chance = place(), random.Random(seed)
    split = dict(world.files)
    for name in sorted(world.files):
        lines = world.files[name]
        at = chance.randrange(len(lines) + 1)
        if name.endswith(".jsonl"):
            split |= {name: lines[:at], name.replace("-0001", "-0002"): lines[at:]}
        else:
            split = rotated(split, name, at)
    found = world.answer(runs.folder({name: of for name, of in split.items() if of}, here / "in"), here)
    same(runs.bare(runs.parsed(found)), runs.bare(runs.parsed(world.plain)))


def test_running_twice_adds_nothing(world: World, duck: DuckEngine, tmp_path: Path) -> None:
    given_ = [runs.folder(world.files, tmp_path / "in")]
    assert runs.answer(duck, given_, tmp_path) == world.plain
    count = duck.rows("select count(*) as n from events_raw")
    assert runs.answer(duck, given_, tmp_path) == world.plain
    assert duck.rows("select count(*) as n from events_raw") == count


@given(seed=SEEDS)
@FEW
def test_logs_that_grow_end_at_the_same(seed: int, world: World, place: Callable[[], Path]) -> None:
    """Read while they were written (the last line in its middle), then again: as if they had been read once."""
    here, chance = place(), random.Random(seed)
    early = {name: _begun(lines, chance) for name, lines in sorted(world.files.items())}
    world.answer(runs.folder({name: of for name, of in early.items() if of}, here / "in"), here)
    found = world.answer(runs.folder(world.files, here / "in"), here)
    same(runs.parsed(found), runs.parsed(world.plain))
    assert found == world.plain


def _begun(lines: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(lines))
    part = lines[at][: chance.randrange(len(lines[at]))]
    return [*lines[:at], *([part] if part else [])]


@pytest.mark.parametrize("fits", [0, FITS])
def test_spark_says_what_duckdb_says(spark: SparkEngine, duck: DuckEngine, tmp_path: Path, fits: int) -> None:
    """Several clusters: by Spark's queries and then in a task each, or in one from beginning to end."""
    spark.fits = fits
    files = runs.clusters({"one": clients(), "two": cluster(), "three": processes.hang().files})
    given_ = [runs.folder(files, tmp_path / "in")]
    wanted = runs.answer(duck, given_, tmp_path / "duck")
    assert len(wanted) >= 4
    found = runs.answer(spark, given_, tmp_path / "spark")
    same(runs.parsed(found), runs.parsed(wanted))
    assert found == wanted
