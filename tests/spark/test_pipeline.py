"""All jobs in order, on both engines: what comes out is what the solvers say in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import pipeline
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import FITS, SparkEngine
from spark_jobs.jobs import incidents
from spark_jobs.pipeline import Settings
from spark_jobs.schema import Event
from spark_jobs.solve import reconstruct
from spark_jobs.workspace import Workspace
from tests.spark.messages_judge import Judge
from tests.spark.parse_lab import DATA
from tests.spark.sql_histories import write
from tests.spark.truth import messages, nodes, processes, scenes, watches
from tests.spark.truth.reading import events, facts
from tests.spark.truth.story import Story, check
from tests.support.slow import mostly_slow

Row = dict[str, Any]
STORIES = {make.__name__: make for group in (processes, nodes, watches) for make in group.STORIES}
LEDGERS = {f"ledger_{make.__name__}": make for make in messages.LEDGERS}
SETTINGS = Settings(reference="node3")
HASHED = {"hash", "client", "sent_to", "sent_to_2", "taken_from", "taken_from_2"}
"""Columns with an engine's own hashes."""


@cache
def rows_of(name: str) -> list[Event]:
    """A story's events, as a cluster of its own."""
    made = (STORIES | LEDGERS)[name]()
    found = events(made.files, **getattr(made, "options", {}))
    return [{**row, "cluster": name} for row in found]


def fleet() -> list[Event]:
    return [row for name in (*STORIES, *LEDGERS) for row in rows_of(name)]


def plain(rows: list[Row]) -> list[list[tuple[str, str]]]:
    """In an order of their own."""
    return sorted(sorted((name, str(value)) for name, value in row.items() if name not in HASHED) for row in rows)


def known(row: Row) -> Row:
    """As a task gets it."""
    found = {name: value for name, value in row.items() if value is not None}
    return found | {"attrs": dict(found.get("attrs", ()))}


class Heard:
    """Which steps were done."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)

    def at(self, done: int, total: int) -> None: ...


def computed(engine: Engine, place: Path, rows: list[Event], settings: Settings = SETTINGS) -> dict[str, list[Row]]:
    """All tables."""
    write(rows, place / "events_raw", parts=2)
    workspace = Workspace(str(place))
    assert pipeline.after_ingest(engine, workspace, settings) == []
    return tables(engine, workspace)


def tables(engine: Engine, workspace: Workspace) -> dict[str, list[Row]]:
    workspace.load(engine, *pipeline.MADE)
    return {name: engine.rows(f"select * from {name}") for name in pipeline.MADE}


@pytest.fixture(scope="module")
def by_duck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Row]]]:
    engine = DuckEngine(threads=2)
    yield computed(engine, tmp_path_factory.mktemp("duck"), fleet())
    engine.close()


def in_memory(name: str) -> dict[str, list[Row]]:
    return reconstruct.tables(facts(rows_of(name)), (), name)


@pytest.mark.parametrize("name", STORIES)
def test_the_jobs_say_what_the_solvers_say(name: str, by_duck: dict[str, list[Row]]) -> None:
    for table, wanted in in_memory(name).items():
        found = [row for row in by_duck[table] if row["cluster"] == name]
        assert plain(found) == plain(wanted), table


@pytest.mark.slow
@pytest.mark.parametrize("fits", [0, FITS])
def test_spark_and_duckdb_agree_about_a_fleet(
    by_duck: dict[str, list[Row]], spark: SparkEngine, tmp_path: Path, fits: int
) -> None:
    """By Spark's own queries, and in tasks."""
    spark.fits = fits
    by_spark = computed(spark, tmp_path, fleet())
    for table in pipeline.MADE:
        assert plain(by_spark[table]) == plain(by_duck[table]), table


def test_a_fleet_is_what_its_clusters_are_alone(
    by_duck: dict[str, list[Row]], duck: DuckEngine, tmp_path: Path
) -> None:
    for name in ("partition", "all_wrong", "ledger_duplicates"):
        alone = computed(duck, tmp_path / name, rows_of(name))
        for table in pipeline.MADE:
            assert plain(alone[table]) == plain([row for row in by_duck[table] if row["cluster"] == name]), table


@pytest.mark.slow
def test_one_cluster_on_spark_is_the_same(by_duck: dict[str, list[Row]], spark: SparkEngine, tmp_path: Path) -> None:
    """With what Spark's queries give it is computed in this process, not in tasks."""
    spark.fits = 0
    alone = computed(spark, tmp_path, rows_of("ledger_lost"))
    for table in pipeline.MADE:
        assert plain(alone[table]) == plain([row for row in by_duck[table] if row["cluster"] == "ledger_lost"]), table


def test_messages_inside_and_outside_of_incidents_are_all(by_duck: dict[str, list[Row]]) -> None:
    for name in LEDGERS:
        judge = Judge().add(rows_of(name)).summary()
        found: dict[str, int] = defaultdict(int)
        for row in by_duck["message_summary"]:
            for column, value in row.items():
                found[column] += value if row["cluster"] == name and isinstance(value, int) else 0
        wanted = {column: value for column, value in vars(judge).items() if column in found}
        assert {"attempts", "lost", "unaccounted", "duplicated", "recovered"} <= wanted.keys()
        assert {column: found[column] for column in wanted} == wanted, name


def test_what_was_sent_before_an_incident_is_counted_outside_of_it(duck: DuckEngine, tmp_path: Path) -> None:
    story = processes.kill()
    for number, at in enumerate((-20.0, -2.0, 5.0, 6.0), 1):
        for kind, later in (("publish", 0.0), ("confirm", 0.01)):
            story.world.client("p1", at + later, kind, queue="q", msg_id=f"m:{number}")
    story.world.client("p1", 7.0, "log_end")
    found = computed(duck, tmp_path, events(story.world.files()))
    (incident,) = found["incidents"]
    counts = {row["incident"]: row["attempts"] for row in found["message_summary"]}
    assert incident["ts_begin"] <= incident["begin"] - 5_000_000 < incident["end"] < incident["ts_end"]
    assert counts == {"": 3, incident["incident"]: 1}


@pytest.mark.parametrize("name", mostly_slow(STORIES, 8))
def test_thinned_facts_answer_the_same_questions(name: str, duck: DuckEngine, tmp_path: Path) -> None:
    """Every cluster counts as crowded: samples are thinned, clocks are solved from pairs of the big queries."""
    story: Story = STORIES[name]()
    computed(duck, tmp_path, events(story.files, **story.options), Settings(reference="node3", few=0))
    kept = duck.rows("select * from events")
    check(story, reconstruct.tables([known(row) for row in kept], story.client_rows(), "made"))


def test_samples_are_thinned_where_nothing_happens(duck: DuckEngine, tmp_path: Path) -> None:
    story = processes.kill()
    scenes.work(story.world, "node2", ["node1", "node3"], 10.0, 1810.0, 2)
    rows = events(story.world.files())
    found = computed(duck, tmp_path, rows, Settings(reference="node3", few=1000))
    kept = [row for row in found["events"] if row["kind"] == "confirm_sent"]
    # 3 minutes next to the last sign are whole; then two a minute of 30
    assert 200 < len(kept) < 300 and len(rows) > 14_000
    (incident,) = found["incidents"]
    assert (incident["type"], incident["new_primary"]) == ("kill", "node2")


def test_nothing_is_done_twice(duck: DuckEngine, tmp_path: Path) -> None:
    first = computed(duck, tmp_path, rows_of("kill"))
    workspace, heard = Workspace(str(tmp_path)), Heard()
    assert pipeline.after_ingest(duck, workspace, SETTINGS, heard) == []
    assert heard.steps == []
    pipeline.after_ingest(duck, workspace, Settings(reference="node2"), heard)
    assert heard.steps == list(pipeline.STEPS[1:])
    heard.steps.clear()
    write([row for row in rows_of("kill") if row["kind"] != "exit"], tmp_path / "events_raw", parts=2)
    pipeline.after_ingest(duck, workspace, SETTINGS, heard)
    assert heard.steps == list(pipeline.STEPS[1:])
    assert plain(tables(duck, workspace)["events"]) != plain(first["events"])
    write(rows_of("kill"), tmp_path / "events_raw", parts=2)
    pipeline.after_ingest(duck, workspace, SETTINGS, heard)
    again = tables(duck, workspace)
    assert all(plain(again[table]) == plain(first[table]) for table in pipeline.MADE)


def test_who_is_interrupted_goes_on_where_it_was(duck: DuckEngine, tmp_path: Path, monkeypatch: Any) -> None:
    write(rows_of("kill"), tmp_path / "events_raw")
    workspace, heard = Workspace(str(tmp_path)), Heard()

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(incidents, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            pipeline.after_ingest(duck, workspace, SETTINGS, heard)
    heard.steps.clear()
    pipeline.after_ingest(duck, workspace, SETTINGS, heard)
    assert heard.steps == ["incidents", "messages", "gaps"]


def test_a_cluster_that_fails_costs_its_own_tables_only(duck: DuckEngine, tmp_path: Path, monkeypatch: Any) -> None:
    real = reconstruct.tables

    def picky(rows: Any, outages: Any, cluster: str) -> Mapping[str, list[Row]]:
        if cluster == "hang":
            raise ZeroDivisionError("no way")
        return real(rows, outages, cluster)

    monkeypatch.setattr(reconstruct, "tables", picky)
    write([*rows_of("kill"), *rows_of("hang")], tmp_path / "events_raw")
    workspace = Workspace(str(tmp_path))
    (failed,) = pipeline.after_ingest(duck, workspace, SETTINGS)
    assert (failed["cluster"], failed["kind"]) == ("hang", "failed")
    assert failed["text"] == "the step incidents failed for this cluster: ZeroDivisionError: no way"
    found = tables(duck, workspace)
    assert [row["cluster"] for row in found["incidents"]] == ["kill"]
    assert {row["cluster"] for row in found["events"]} == {"kill", "hang"}


def test_the_labs_logs_from_the_folder_to_the_tables(duck: DuckEngine, tmp_path: Path) -> None:
    workspace, heard = Workspace(str(tmp_path)), Heard()
    assert pipeline.run(duck, workspace, [str(DATA)], Settings(), heard) == []
    assert heard.steps == list(pipeline.STEPS)
    found = tables(duck, workspace)
    real = [row for row in sorted(found["incidents"], key=lambda row: int(row["begin"])) if row["failover"]]
    assert [row["type"] for row in real] == [
        *("crash", "partition", "kill", "partition", "controller", "controller", "planned"),
    ]
    assert {row["dual"] for row in real} == {"excluded"}
    assert {row["kind"] for row in found["gaps"]} >= {"clients-none", "no-broker-log"}
