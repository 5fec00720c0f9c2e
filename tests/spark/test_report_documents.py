"""From the tables of a workspace to documents."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from spark_jobs.report import document, facts, figures, files, sums
from tests.spark import report_world
from tests.spark.truth import nodes, processes

KEYS = {
    *(
        "format",
        "number",
        "cluster",
        "incident",
        "phases",
        "budget",
        "primary_spans",
        "dual",
        "near_misses",
        "hints",
        "resources",
    ),
    *("outages", "outages_more", "outage_union", "lane", "messages", "clocks", "gaps", "events", "events_more"),
    *("observed", "versions", "ingest", "workspace", "words"),
}


@pytest.fixture(scope="module")
def crash():
    return report_world.story_tables(nodes.crash())


def test_a_document_has_all_that_is_promised(crash, tmp_path):
    overview, (one,) = report_world.documents(crash, tmp_path)
    assert set(one) == KEYS
    assert (one["format"], one["number"], one["cluster"]) == (document.FORMAT, 1, "made")
    assert one["incident"]["type"] == "crash"
    assert [row["phase"] for row in one["phases"]][:3] == ["fault", "detection", "decision"]
    assert one["lane"] == {"clients": 2, "steps": [[1780315200000000, 2], [1780315203300000, 1], [1780315203400000, 0]]}
    assert [row["client_id"] for row in one["outages"]] == ["c1", "p1"]
    (short,) = overview["incidents"]
    assert (short["number"], short["file"], short["dual"]) == (1, "incident-1.json", "excluded")
    assert overview["clusters"] == ["made"]
    assert overview["outages"]["longest_us"] == 3_400_000


def test_the_headline_says_what_a_person_needs(crash, tmp_path):
    _, (one,) = report_world.documents(crash, tmp_path)
    assert one["words"] == [
        "The node of the primary node1 was lost, node2 took over.",
        "It began at 2026-06-01 12:00:00.000 UTC and was over 3.4 s later.",
        "2 of 2 clients stood still, the longest for 3.4 s (c1); all of them at once for 3.3 s.",
        "Noticed first at 12:00:00.900, at most 1 s after the failure: "
        "node2: token lost (1000 ms without it, 1200 ms for consensus).",
        "No message was sent.",
        "Two primaries at once: no; node1 had ended 65.6 ms ±1.9 ms before node2 was promoted "
        "(node3 saw node1 was fenced before it asked for the promotion of node2).",
        "All backups were ready again 28.3 s after the promotion.",
    ]


def test_every_line_that_a_table_names_is_there(crash, tmp_path):
    _, (one,) = report_world.documents(crash, tmp_path)
    places = {event["place"] for event in one["events"]}
    tables = [one["incident"], *one["phases"], *one["dual"], *one["hints"], *one["primary_spans"]]
    wanted = facts.places(tables)
    assert len(wanted) > 10
    assert {f"{file}:{line}" for file, line in wanted} <= places


def test_equal_tables_in_another_order_give_equal_octets(crash, tmp_path):
    chance = random.Random(1)
    mixed = {name: chance.sample(rows, len(rows)) for name, rows in crash.items()}
    one = report_world.documents(crash, tmp_path / "a")
    other = report_world.documents(mixed, tmp_path / "b")
    assert files.text(one[0]) == files.text(other[0])
    assert [files.text(each) for each in one[1]] == [files.text(each) for each in other[1]]


@pytest.mark.slow
def test_both_engines_give_equal_documents(crash, tmp_path, spark, duck):
    made = report_world.workspace(crash, tmp_path)
    spark_report, duck_report = document.Report(spark, made), document.Report(duck, made)
    by_spark, by_duck = list(spark_report.documents()), list(duck_report.documents())
    assert [files.text(one) for one in by_spark] == [files.text(one) for one in by_duck]
    assert files.text(spark_report.overview(by_spark)) == files.text(duck_report.overview(by_duck))


def test_without_logs_of_clients_nothing_is_said_of_messages(tmp_path):
    """Not zero lost: unknown."""
    overview, (one,) = report_world.documents(report_world.story_tables(nodes.partition()), tmp_path)
    assert one["messages"] is None
    assert one["outage_union"] is None
    assert overview["messages"] is None
    said = "How long clients stood still, and what became of messages, is unknown: no log of a client was read."
    assert said in one["words"]


def test_an_empty_workspace_has_no_incident(tmp_path):
    overview, found = report_world.documents({}, tmp_path)
    assert found == []
    assert overview["incidents"] == []
    assert overview["ingest"]["files"] == 0


def test_incidents_are_numbered_by_time_over_all_clusters(crash, tmp_path):
    other = report_world.story_tables(processes.kill())
    moved = {name: [_of(row, "another", -60_000_000) for row in rows] for name, rows in other.items()}
    tables = {name: [*rows, *moved.get(name, [])] for name, rows in crash.items()}
    overview, found = report_world.documents(tables, tmp_path)
    assert [(one["number"], one["cluster"]) for one in found] == [(1, "another"), (2, "made")]
    assert overview["clusters"] == ["another", "made"]
    # of two clusters each has its own lines and clients only
    assert {event["cluster"] for event in found[0]["events"]} == {"another"}
    assert {row["cluster"] for one in found for row in one["outages"] if row["cluster"] != one["cluster"]} == set()


def _of(row, cluster, later):
    times = {
        name: value + later
        for name, value in row.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 10**15
    }
    return row | times | {"cluster": cluster}


def _message(number, verdict, cause="", **columns):
    row = dict.fromkeys(report_world.OTHERS["message_verdicts"], 0)
    given = {"cluster": "made", "producer": "p", "pub": number, "verdict": verdict, "cause": cause, "queue": "q"}
    return row | given | {"sent": 1780315200000000 + number, "missing": int(verdict == "lost")} | columns


def test_the_worst_messages_are_named_and_the_others_counted(crash, tmp_path):
    incident = crash["incidents"][0]["incident"]
    many = [_message(n, "duplicated", "redelivered", duplicates=1) for n in range(1, 1101)]
    worst = [_message(2000, "lost"), _message(1999, "duplicated", "unmarked", duplicates=1)]
    rows = [row | {"incident": incident} for row in [*many, *worst]] + [_message(5, "lost", incident="")]
    sums_ = dict.fromkeys(report_world.OTHERS["message_summary"], 0)
    summary = [sums_ | {"cluster": "made", "queue": "q", "incident": incident, "lost": 1, "duplicated": 1101}]
    summary.append(sums_ | {"cluster": "made", "queue": "q", "incident": "", "lost": 1})
    overview, (one,) = report_world.documents(crash | {"message_verdicts": rows, "message_summary": summary}, tmp_path)
    found = one["messages"]
    assert [row["pub"] for row in found["verdicts"][:3]] == [2000, 1999, 1]
    assert (len(found["verdicts"]), found["more"]) == (1000, 102)
    assert found["total"]["lost"] == 1
    assert {"verdict": "duplicated", "cause": "redelivered", "messages": 1100} in found["causes"]
    # outside of the incident another one was lost
    assert overview["messages"]["total"]["lost"] == 2


def test_of_too_many_facts_the_important_ones_stay():
    rows = [{"kind": "plan", "ts_est": n} for n in range(1000)] + [
        {"kind": "token_lost", "ts_est": n} for n in range(9)
    ]
    kept = facts.thinned(rows, 100)
    assert len(kept) == 100
    assert sum(row["kind"] == "token_lost" for row in kept) == 9
    plans = [row["ts_est"] for row in kept if row["kind"] == "plan"]
    # evenly over the time
    assert max(later - at for at, later in pairwise(plans)) <= 11


def test_refused_and_damaged_files_are_named():
    row = dict.fromkeys(report_world.OTHERS["files"])
    made = [
        row | {"name": "a.log", "state": "read", "lines": 5, "events": 3, "unknown": 2},
        row | {"name": "b.gz", "state": "damaged", "why": "its end is missing", "lines": 1},
        row | {"name": "c.jsonl", "state": "refused", "why": "no permission"},
        row | {"name": "d.png", "state": "other", "why": "no log that we know"},
    ]
    faults = [{"file": "a.log", "line_no": 2, "value": "x", "wanted": "a number"}, {"file": "other", "line_no": 1}]
    found = sums.ingest(made, faults, [])
    assert (found["files"], found["lines"], found["events"], found["unknown"]) == (2, 6, 3, 2)
    assert [one["name"] for one in found["refused"]] == ["b.gz", "c.jsonl"]
    assert found["others"] == ["d.png"]
    assert [one["file"] for one in found["faults"]] == ["a.log"]


def test_files_are_written_and_old_ones_go(crash, tmp_path, duck):
    made = report_world.workspace(crash, tmp_path / "work")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("incident-7.json", "incident-7.svg", "incident-7.txt", "mine.json"):
        (out / name).write_text("old")
    written = files.write(duck, made, out)
    assert {path.name for path in written} == {
        *("report.json", "report.html", "report.md", "incident-1.json", "incident-1.svg"),
    }
    assert {path.name for path in out.iterdir()} == {path.name for path in written} | {"incident-7.txt", "mine.json"}
    one = json.loads((out / "incident-1.json").read_text())
    assert one["incident"]["old_primary"] == "node1"
    before = {path.name: path.read_bytes() for path in written}
    files.write(duck, made, out)
    assert {path.name: path.read_bytes() for path in written} == before


def test_no_place_of_this_machine_is_in_a_file(crash, tmp_path, duck):
    made = report_world.workspace(crash, tmp_path / "work")
    for path in files.write(duck, made, tmp_path / "out"):
        assert str(tmp_path) not in path.read_text()


def test_what_cannot_be_written_is_said(crash, tmp_path, duck):
    made = report_world.workspace(crash, tmp_path / "work")
    with pytest.raises(ValueError, match="format pdf, wanted some of html, json, md, svg, png"):
        files.write(duck, made, tmp_path / "out", ["pdf"])
    with pytest.raises(ValueError, match="incident 2, wanted a number from 1 to 1"):
        files.write(duck, made, tmp_path / "out", only=2)


def unpromoted(outages: list[dict[str, bool]], unknown: list[str]) -> list[tuple[str, str]]:
    incident = {"failover": False, "old_primary": "n1", "type": "crash", "unknown": unknown, "total_us": None}
    one = {"incident": incident, "outages": outages, "dual": [], "phases": []}
    return [(figure.value, figure.tone) for figure in (figures._service(one), figures._dual(one))]


def test_a_promotion_that_no_log_shows_is_not_denied():
    """The log of the new primary may be what is missing: clients that go on have found one."""
    back, never = {"censored": False}, {"censored": True}
    assert unpromoted([back, never], []) == [("not seen back", figures.BAD), ("no", figures.GOOD)]
    assert unpromoted([back, back], []) == [("clients went on", figures.DOUBT), ("no", figures.GOOD)]
    assert unpromoted([], ["no log of n2"]) == [("not seen back", figures.BAD), ("unknown", figures.DOUBT)]
