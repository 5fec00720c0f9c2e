"""The fleet: what is taken from an incident, what is said about many, and that saying it twice changes nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.fleet import job
from spark_jobs.fleet.inputs import FleetError
from spark_jobs.fleet.record import COLUMNS, NoDocument, merged, record
from spark_jobs.fleet.summary import FleetSettings, WrongSettings, summary
from spark_jobs.solve.causes import NEEDS_PRIMARY
from spark_jobs.workspace import Workspace
from tests.spark.fleet_documents import DAY, START, made, never_recovered, of_story, write
from tests.spark.truth import nodes, processes

QUICK = FleetSettings(resamples=200, shuffles=2000)


def records(*documents: dict[str, Any]) -> list[dict[str, Any]]:
    return [record(document) for document in documents]


def of(found: dict[str, Any], part: str, metric: str, group: str = "unplanned") -> dict[str, Any]:
    (row,) = [row for row in found[part] if (row["group"], row["metric"]) == (group, metric)]
    return dict(row)


def compared(found: dict[str, Any], metric: str) -> dict[str, Any]:
    (row,) = [row for row in found["comparisons"] if row["metric"] == metric]
    return dict(row)


# ---- one incident ---------------------------------------------------------------------------------------------------


def test_the_row_of_a_story() -> None:
    """Story 2: a node crashes at 0 and is known to be gone at 0.9; node2 is there for clients at 3.2, node1 at 31."""
    (row,) = records(*of_story(nodes.crash()))
    assert row.keys() == COLUMNS.keys()
    assert (row["type"], row["dual"], row["failover"], row["new_primary"]) == ("crash", "excluded", True, "node2")
    assert row["service_lo_us"] <= 2_300_000 <= row["service_hi_us"]
    assert row["to_redundancy_lo_us"] <= 30_100_000 <= row["to_redundancy_hi_us"]
    assert abs(row["margin_ms"] - 66.1) < 5
    assert row["attempts"] is None and row["any_down"] is None  # clients were not asked


def test_what_never_ended_is_known_to_have_taken_so_long() -> None:
    """Story 20: the first sign of death is at 0.003, the last line of all at 29."""
    (row,) = records(*of_story(processes.never()))
    assert (row["service_us"], row["service_hi_us"]) == (None, None)
    assert 28_990_000 < row["service_lo_us"] <= 28_997_000
    assert row["to_redundancy_lo_us"] == row["service_lo_us"] and row["to_redundancy_us"] is None


def test_what_needed_no_primary_has_no_service_time() -> None:
    (row,) = records(*of_story(nodes.false_alarm()))
    assert (row["type"], row["service_lo_us"], row["service_us"]) == ("false-alarm", None, None)


@pytest.mark.parametrize("kind", sorted(NEEDS_PRIMARY))
def test_whatever_took_the_primary_away_has_a_service_time(kind: str) -> None:
    """After a power loss it counts from the last sign of life, when all were down."""
    document = made(0)
    document["incident"]["type"] = kind
    (row,) = records(document)
    length = {phase["phase"]: phase["duration_us"] for phase in document["phases"]}["fault"] * (kind == "power-loss")
    assert row["service_us"] == records(made(0))[0]["service_us"] + length
    assert of(summary([row], QUICK), "durations", "service")["n"] == 1


def test_without_a_primary_that_is_known_no_service_was_lost() -> None:
    """A node of a cluster was fenced, and a client never came back."""
    document = made(0)
    document["incident"] |= {
        "type": "fencing",
        "failover": False,
        "old_primary": None,
        "new_primary": None,
        "end": None,
    }
    (row,) = records(document)
    assert (row["service_lo_us"], row["service_us"]) == (None, None)


def test_an_unknown_clock_has_no_bounds_and_is_in_no_quantile() -> None:
    document = made(0)
    for row in document["phases"]:
        row |= {"end_lo": -(1 << 62), "end_hi": 1 << 62, "duration_lo_us": None, "duration_hi_us": None}
    row = record(document)
    assert row["service_us"] is not None and (row["service_lo_us"], row["service_hi_us"]) == (None, None)
    found = of(summary([row], QUICK), "durations", "service")
    assert (found["n"], found["unbounded"], found["median_us"]) == (0, 1, None)


def test_a_document_of_something_else_is_refused() -> None:
    for wrong in ({}, {"incident": None}, {"incident": {"incident": "x"}}, {"incident": [1]}):
        with pytest.raises(NoDocument, match="wanted what"):
            record(wrong)


# ---- many -----------------------------------------------------------------------------------------------------------


def test_order_and_repetition_do_not_matter() -> None:
    rows = records(*(made(number, cluster=f"c{number % 3}") for number in range(20)))
    wanted = json.dumps(summary(rows, QUICK))
    mixed = random.Random(3).sample([*rows, *rows[:7]], 27)
    assert json.dumps(summary(mixed, QUICK)) == wanted


def test_of_two_documents_of_one_incident_the_later_one_counts() -> None:
    early = never_recovered(0, observed={"begin": 0, "end": START + 5})
    late = made(0, observed={"begin": 0, "end": START + 9})
    for documents in ((early, late), (late, early)):
        (row,) = merged(records(*documents))
        assert row["service_us"] is not None and row["observed"] == START + 9


def test_quantiles_of_what_ended_and_survival_of_all() -> None:
    rows = records(*map(made, range(15)), *map(never_recovered, range(15, 20)))
    found = summary(rows, QUICK)
    service = of(found, "durations", "service")
    assert (service["n"], service["censored"], service["unknown"]) == (15, 5, 0)
    assert service["median_lo_us"] < service["median_us"] < service["median_hi_us"]
    assert service["p99_us"] <= service["most_us"] and not service["p99_firm"] and service["median_firm"]
    alive = of(found, "survival", "service")
    assert (alive["n"], alive["never"]) == (20, 5)
    assert alive["steps"][-1][1] == 0.25 and alive["p95_us"] is None
    assert alive["median_us"] > service["median_us"]
    assert found["by_cluster"][0]["never_recovered"] == 5


def test_planned_ones_and_false_alarms_are_not_in_the_fleets_times() -> None:
    planned = made(1)
    planned["incident"] |= {"type": "planned", "planned": True}
    alarm = made(2)
    alarm["incident"] |= {"type": "false-alarm", "failover": False}
    found = summary(records(made(0), planned, alarm), QUICK)
    assert of(found, "durations", "promotion")["n"] == 1
    assert found["types"] == {"false-alarm": 1, "kill": 1, "planned": 1}
    assert of(found, "durations", "promotion", "planned")["n"] == 1


def test_since_and_until_choose_incidents() -> None:
    rows = records(*map(made, range(10)))
    found = summary(rows, FleetSettings(since=START + 3 * DAY, until=START + 7 * DAY))
    assert found["count"] == 4 and found["period"] == {"begin": START + 3 * DAY, "end": START + 6 * DAY}


def test_margins() -> None:
    """Fencing beat promotion by less than 50 ms in 3 of 40."""
    documents = [made(number) for number in range(40)]
    for number, document in enumerate(documents):
        margin = 12.0 + number if number < 3 else 100.0 + number
        document["dual"][0] |= {"margin_ms": margin, "margin_lo_ms": margin - 13, "margin_hi_ms": margin + 13}
    documents[39]["incident"]["dual"] = "possible"
    found = summary(records(*documents), QUICK)["margins"]
    assert (found["n"], found["near"], found["unsure"], found["excluded"], found["possible"]) == (40, 3, 1, 39, 1)
    assert (found["least_ms"], found["least_incident"]) == (12.0, documents[0]["incident"]["incident"])
    assert [(row["month"], row["n"]) for row in found["months"]] == [("2026-06", 30), ("2026-07", 10)]
    assert found["trend"] == "growing" and found["trend_p"] < 0.01


def test_a_slower_version_is_found() -> None:
    rows = records(*(made(n) for n in range(15)), *(made(n, slower=1.8, version="1.1") for n in range(15, 30)))
    found = summary(rows, QUICK)
    promotion = compared(found, "promotion")
    assert (promotion["before"], promotion["after"], promotion["verdict"]) == ("1.0", "1.1", "worse")
    assert promotion["median_after"] > 1.4 * promotion["median_before"] and promotion["p_corrected"] <= 0.05
    assert compared(found, "detection")["verdict"] == "no difference shown"
    assert compared(found, "lost")["verdict"] == "no difference shown"
    by_date = summary(rows, FleetSettings(split=START + 15 * DAY, resamples=200, shuffles=2000))
    assert compared(by_date, "promotion")["verdict"] == "worse"
    nowhere = summary(rows, FleetSettings(split=START + 28 * DAY))
    assert compared(nowhere, "promotion")["verdict"] == "too few"


def test_what_never_ended_is_compared_by_what_is_known_of_it() -> None:
    """Nothing, if the logs end at once; that it took longer than all before, if they go on for 30 s."""
    for seconds, verdict in ((0, "no difference shown"), (30, "worse")):
        documents = [never_recovered(n, version="1.1") for n in range(15, 30)]
        for document in documents:
            for row in document["phases"]:
                if row["censored"]:
                    row |= {"duration_lo_us": seconds * 1_000_000, "begin_lo": document["incident"]["begin"]}
        found = summary(records(*map(made, range(15)), *documents), QUICK)
        assert compared(found, "service")["verdict"] == verdict, seconds


def test_a_new_cluster_that_is_slow_is_no_regression() -> None:
    """It is as slow as it always was; and the clusters that were there are not slower."""
    rows = records(*(made(n) for n in range(15)), *(made(n, cluster="new", slower=3.0) for n in range(15, 30)))
    found = summary(rows, FleetSettings(split=START + 15 * DAY))
    assert {row["verdict"] for row in found["comparisons"]} == {"too few"}
    more = records(*(made(n) for n in range(30, 45)))
    found = summary([*rows, *more], FleetSettings(split=START + 15 * DAY, resamples=100, shuffles=1000))
    promotion = compared(found, "promotion")
    assert (promotion["n_before"], promotion["n_after"]) == (15, 15)
    assert promotion["verdict"] == "no difference shown"


def test_a_new_cluster_with_small_margins_is_no_trend() -> None:
    documents = [made(n, cluster="old" if n < 15 else "new") for n in range(30)]
    for document in documents[15:]:
        for name in ("margin_ms", "margin_lo_ms", "margin_hi_ms"):
            document["dual"][0][name] -= 200
    assert summary(records(*documents), QUICK)["margins"]["trend"] == "no trend shown"
    alone = [{**document, "incident": {**document["incident"], "cluster": "old"}} for document in documents]
    assert summary(records(*alone), QUICK)["margins"]["trend"] == "shrinking"


def test_a_smaller_margin_is_worse() -> None:
    documents = [made(n, version="1.0" if n < 15 else "1.1") for n in range(30)]
    for document in documents[15:]:
        for name in ("margin_ms", "margin_lo_ms", "margin_hi_ms"):
            document["dual"][0][name] -= 60
    assert compared(summary(records(*documents), QUICK), "margin")["verdict"] == "worse"


def test_equal_versions_are_rarely_called_different() -> None:
    """Over all measures together at most alpha, and what chance adds: of 60 fleets 3, and 3 sigma (5)."""
    alarms = 0
    for seed in range(60):
        rows = records(*(made(n, seed, version="1.0" if n < 12 else "1.1") for n in range(24)))
        found = summary(rows, FleetSettings(resamples=10, shuffles=1000))["comparisons"]
        alarms += any(row["verdict"] in ("worse", "better") for row in found)
    assert alarms <= 8


def test_clusters_worst_first() -> None:
    lossy, dual, fine, slow = (made(number, cluster=name) for number, name in enumerate("abcd"))
    lossy["messages"]["total"] |= {"lost": 3, "unmarked": 1}
    dual["incident"]["dual"] = "certain"
    slow["outage_union"]["any_down"] = 10**9
    found = summary(records(lossy, dual, fine, slow), QUICK)
    assert [row["cluster"] for row in found["by_cluster"]] == ["b", "a", "d", "c"]
    assert found["messages"]["lost"] == 3 and found["messages"]["incidents"] == 4
    assert found["messages"]["unaccounted"] == 8 and found["messages"]["silent"] == 0


def test_without_clients_nothing_is_known_about_messages() -> None:
    found = summary(records(made(0, messages=None), made(1, messages={"total": {}})), QUICK)
    assert found["messages"]["silent"] == 2
    assert found["by_cluster"][0]["lost"] is None


def test_an_empty_fleet() -> None:
    found = summary([], QUICK)
    assert (found["count"], found["clusters"], found["by_cluster"], found["comparisons"]) == (0, 0, [], [])


@pytest.mark.parametrize("wrong", [{"split": "June"}, {"alpha": 0.0}, {"shuffles": 0}])
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongSettings, match="wanted"):
        FleetSettings(**wrong)


# ---- the job --------------------------------------------------------------------------------------------------------


def test_reports_below_a_folder(engine: Engine, tmp_path: Path) -> None:
    write(tmp_path / "in", {f"2026/run-{number}": made(number) for number in range(6)})
    (tmp_path / "in" / "2026" / "run-0" / "incident-2.json").write_text("{torn")
    (tmp_path / "in" / "2026" / "run-1" / "incident-2.json").write_text("[]")
    workspace = Workspace(str(tmp_path / "fleet"))
    for _ in range(2):  # again: nothing is added
        found = job.run(engine, [str(tmp_path / "in")], QUICK, workspace)
        assert found["count"] == 6
        assert [item["why"].split(":")[0] for item in found["refused"]] == [
            "no JSON", "no incident with a name and a begin in it, wanted what `failover-report report` writes",
        ]  # fmt: skip
    (row,) = engine.rows("select count(*) as n, count(distinct incident) as ids from fleet")
    assert row == {"n": 6, "ids": 6}


def test_the_table_grows(duck: DuckEngine, tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path / "fleet"))
    counts = []
    for number in range(3):
        place = write(tmp_path / str(number), {"run": made(number)})
        counts.append(job.run(duck, [str(place / "run" / "incident-1.json")], QUICK, workspace)["count"])
    assert counts == [1, 2, 3]
    everything = job.run(duck, [str(tmp_path)], QUICK)
    again = job.run(duck, [str(tmp_path / "0")], QUICK, workspace)
    assert json.dumps(again) == json.dumps(everything)


def test_spark_reads_urls(spark: SparkEngine, duck: DuckEngine, tmp_path: Path) -> None:
    place = write(tmp_path / "in", {f"cluster-{number}/out": made(number) for number in range(4)})
    (place / "cluster-0" / "out" / "incident-7.json").write_text("no")
    found = job.run(spark, [f"file://{place}"], QUICK)
    assert json.dumps(found) == json.dumps(job.run(duck, [str(place)], QUICK))
    with pytest.raises(FleetError, match="a URL, wanted a path"):
        job.run(duck, ["s3a://bucket/clusters"], QUICK)
    with pytest.raises(FileNotFoundError, match="absent: no such folder"):
        job.run(spark, [f"file://{tmp_path}/absent"], QUICK)


def test_what_cannot_be_read_is_named(duck: DuckEngine, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such file or folder"):
        job.run(duck, [str(tmp_path / "nowhere")])
    with pytest.raises(FleetError, match="no incident in what was given"):
        job.run(duck, [str(tmp_path)])
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(FleetError, match=r"a\.json: no JSON"):
        job.run(duck, [str(tmp_path / "a.json")])
    (tmp_path / "report.json").write_text("{}")
    assert job.run(duck, [str(tmp_path)])["count"] == 0  # a report without an incident
