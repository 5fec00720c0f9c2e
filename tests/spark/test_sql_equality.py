"""The SQL of `messages` and `windows`: Spark = DuckDB = the small reference, on many random histories at once."""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.messages import job as messages
from spark_jobs.messages.survivors import undone
from spark_jobs.options import Options
from spark_jobs.outages import job as windows
from spark_jobs.workspace import Workspace
from tests.spark.messages_judge import Judge, as_dict, expanded
from tests.spark.outages_judge import Windows
from tests.spark.sql_histories import T0, TICK, Row, as_runs, histories, write
from tests.support.slow import few

HISTORIES = few(180)
Answers = dict[str, list[Any]]
SUMS = (
    "attempts", "confirmed", "ok", "lost", "unaccounted", "explained", "unexpected", "unlogged", "duplicated",
    "redelivered", "resend", "unmarked", "recovered", "refused", "unknown", "resends",
)  # fmt: skip


@pytest.fixture(scope="module")
def seed() -> int:
    """Printed when a test fails."""
    found = 6 if os.environ.get("CI") else random.SystemRandom().randrange(2**20)
    print(f"seed {found}")
    return found


@pytest.fixture(scope="module")
def rows(seed: int) -> list[Row]:
    return histories(HISTORIES, seed)


def ask(engine: Engine, place: Path, rows: list[Row], parts: int = 2) -> Answers:
    """What the jobs say about rows."""
    workspace = Workspace(str(place / "ws"))
    write(rows, Path(workspace.path("events_raw")), parts)
    messages.run(engine, workspace, Options())
    windows.clients(engine, workspace, Options())
    windows.union(engine, workspace, Options())
    return _answers(engine)


def _answers(engine: Engine) -> Answers:
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for row in engine.rows("select * from message_summary"):
        sums[row["cluster"]].update({name: row[name] for name in SUMS})
    return {
        "verdicts": sorted(
            tuple(row.values())
            for row in engine.rows(
                "select cluster, producer, pub, verdict, cause, missing, duplicates, recovered from message_verdicts"
            )
        ),
        "sums": sorted((cluster, tuple(sum_[name] for name in SUMS)) for cluster, sum_ in sums.items()),
        "outages": sorted(tuple(row.values()) for row in engine.rows(
            "select cluster, client_id, ts_begin, ts_end, why, censored from outages")),
        "union": sorted(
            (tuple(row.values()) for row in engine.rows(
                "select cluster, any_down, all_down, client_us, most, clients, ts_begin, ts_end from outage_union")),
            key=str,
        ),
    }  # fmt: skip


def reference(rows: list[Row]) -> Answers:
    """The same from the pure Python."""
    found: Answers = {"verdicts": [], "sums": [], "outages": [], "union": []}
    for cluster in sorted({row["cluster"] for row in rows}):
        mine = [row for row in rows if row["cluster"] == cluster]
        of_promotions = undone(row for row in mine if row["kind"] == "promoted")
        judge, waits = Judge(undone=of_promotions).add(mine), Windows().add(mine)
        verdicts = list(judge.verdicts())
        found["verdicts"] += [
            (cluster, v.producer, v.number, v.verdict, v.cause, v.missing, v.duplicates, v.recovered)
            for v in verdicts if v.verdict != "ok"
        ]  # fmt: skip
        summary = as_dict(judge.summary())
        if verdicts:
            found["sums"].append((cluster, tuple(summary[name] for name in SUMS)))
        outages = waits.outages()
        found["outages"] += [(cluster, o.client_id, o.begin, o.end, o.why, o.censored) for o in outages]
        u = waits.union(outages)
        found["union"].append((cluster, u.any_down, u.all_down, u.client_us, u.most, u.clients, u.begin, u.end))
    return {name: sorted(of, key=str) if name == "union" else sorted(of) for name, of in found.items()}


def assert_same(found: Answers, wanted: Answers) -> None:
    for name in wanted:
        more = [item for item in found[name] if item not in wanted[name]]
        less = [item for item in wanted[name] if item not in found[name]]
        assert (more, less) == ([], []), name
        assert len(found[name]) == len(wanted[name]), name


def test_the_histories_have_everything(rows: list[Row]) -> None:
    """Equality over nothing would be worth nothing."""
    found = reference(rows)
    assert {verdict[3] for verdict in found["verdicts"]} == {
        "lost", "unaccounted", "explained", "unexpected", "duplicated", "recovered", "refused", "unknown",
    }  # fmt: skip
    reasons = {reason for outage in found["outages"] for reason in outage[4].split("+")}
    assert reasons == {"confirm", "deliver", "connection", "go-ahead"}
    assert {outage[5] for outage in found["outages"]} == {True, False}
    assert sum(sum_[2] for sum_ in found["union"]) > 0


def test_duckdb_says_what_the_reference_says(rows: list[Row], duck: DuckEngine, tmp_path: Path) -> None:
    assert_same(ask(duck, tmp_path, rows), reference(rows))


@pytest.mark.slow
def test_spark_says_what_the_reference_says(rows: list[Row], spark_sized: SparkEngine, tmp_path: Path) -> None:
    """The same histories once more as runs, in another order, in several files: each query costs seconds."""
    mixed = rows + [{**row, "cluster": f"run-{row['cluster']}"} for row in as_runs(rows)]
    random.Random(7).shuffle(mixed)
    assert_same(ask(spark_sized, tmp_path, mixed, parts=3), reference(mixed))


def test_neither_order_nor_files_matter(rows: list[Row], duck: DuckEngine, tmp_path: Path) -> None:
    mixed = list(rows)
    random.Random(7).shuffle(mixed)
    assert_same(ask(duck, tmp_path, mixed, parts=5), reference(rows))


def test_runs_are_taken_apart(rows: list[Row], duck: DuckEngine, tmp_path: Path) -> None:
    runs = as_runs(rows)
    assert len(runs) < len(rows)
    found = ask(duck, tmp_path, runs)
    assert_same(found, reference(runs))
    apart = ask(duck, tmp_path / "apart", [{**row, "seq": None} for row in expanded(runs)])
    wanted = reference([{**row, "seq": None} for row in runs])
    assert_same(apart, wanted)


def test_incidents_cut_what_they_cover(rows: list[Row], duck: DuckEngine, tmp_path: Path) -> None:
    """A message belongs to the incident in which it was sent; outages are cut."""
    workspace = Workspace(str(tmp_path / "ws"))
    write(rows, Path(workspace.path("events_raw")))
    middle = T0 + 200 * TICK
    clusters = sorted({row["cluster"] for row in rows})
    spans = [{"incident": "first", "cluster": cluster, "ts_begin": 0, "ts_end": middle} for cluster in clusters]
    duck.table("made", "incident string, cluster string, ts_begin bigint, ts_end bigint", spans)
    duck.save("select * from made", workspace.path("incidents"))
    messages.run(duck, workspace, Options())
    windows.clients(duck, workspace, Options())
    windows.union(duck, workspace, Options())
    sums = "select incident, cast(sum(attempts) as bigint) as attempts from message_summary group by incident"
    found = {row["incident"]: row["attempts"] for row in duck.rows(sums)}
    sent = [row for row in rows if row["kind"] == "publish" and not row.get("resend")]
    first: dict[tuple[Any, ...], int] = {}
    for row in rows:
        if row["kind"] in ("publish", "resend"):
            key = (row["cluster"], row["producer"], row["pub_first"])
            first[key] = min(first.get(key, row["ts_wall"]), row["ts_wall"])
    early = sum(first[row["cluster"], row["producer"], row["pub_first"]] < middle for row in sent)
    assert found == {"first": early, "": len(sent) - early}
    wanted = []
    for cluster in clusters:
        waits = Windows().add([row for row in rows if row["cluster"] == cluster])
        u = waits.union(waits.outages(), 0, middle)
        wanted.append((cluster, u.any_down, u.all_down, u.client_us, u.most, u.clients, u.begin, u.end))
    union = "select cluster, any_down, all_down, client_us, most, clients, ts_begin, ts_end from outage_union"
    assert sorted((tuple(row.values()) for row in duck.rows(union)), key=str) == sorted(wanted, key=str)
