"""An incident as a trace that Perfetto opens: its lanes, and that nothing on one of them overlaps."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli.main import main
from spark_jobs.report import perfetto
from tests.spark import report_world
from tests.spark.truth import nodes, processes

Row = dict[str, Any]


@pytest.fixture(scope="module", params=[nodes.crash, processes.kill], ids=["texts", "events"])
def document(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Row:
    place = tmp_path_factory.mktemp("story")
    _, (one, *_) = report_world.documents(report_world.story_tables(request.param()), place)
    begin = one["incident"]["begin"]
    said = {"why": "publish", "censored": False, "client_id": "c1"}
    outages = [{**said, "ts_begin": begin + at, "ts_end": begin + at + 900} for at in (5_000, 1_000)]
    outages.append({**said, "client_id": "c0", "ts_begin": begin, "ts_end": begin + 10, "censored": True})
    return {**one, "outages": outages}


def lanes(trace: Row) -> dict[tuple[str, str], list[Row]]:
    """(group, lane) → what is on it, by time."""
    names: dict[tuple[str, int, int], str] = {}
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            names[event["name"], event["pid"], event["tid"]] = event["args"].get("name", "")
        else:
            found[event["pid"], event["tid"]].append(event)
    assert len(set(names)) == len(names)
    return {
        (names["process_name", pid, 0], names["thread_name", pid, tid]): sorted(events, key=lambda event: event["ts"])
        for (pid, tid), events in found.items()
    }


def test_every_lane_has_its_stretches_one_after_the_other(document: Row) -> None:
    trace = perfetto.trace(document)
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    for lane, events in lanes(trace).items():
        assert {event["ph"] for event in events} == ({"i"} if lane[1] == "lines" else {"X"}), lane
        assert all(type(event["ts"]) is int and event.get("dur", 0) >= 0 and event["name"] for event in events)
        stretches = [event for event in events if event["ph"] == "X"]
        assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(stretches)), lane


def test_phases_roles_lines_and_outages_are_where_the_document_has_them(document: Row) -> None:
    found = lanes(perfetto.trace(document))
    known = {row["phase"]: row for row in document["phases"] if row["begin"] is not None}
    phases = {lane: events for (group, lane), events in found.items() if group.startswith("incident 1: ")}
    assert list(phases) == list(known)
    for name, (event,) in phases.items():
        assert event["ts"] == known[name]["begin"]
        if known[name]["end"] is not None:
            assert event["ts"] + event["dur"] == known[name]["end"] and "end" not in event["args"]
    assert [event["ts"] for event in found["clients", "c1"]] == sorted(
        row["ts_begin"] for row in document["outages"] if row["client_id"] == "c1"
    )
    assert found["clients", "c0"][0]["args"]["end"] == "not known" and found["clients", "c0"][0]["dur"] > 10
    for node in ("node1", "node2"):
        assert found[node, "primary"] and found[node, "state"]
    lines = [event["args"]["place"] for (_, lane), events in found.items() if lane == "lines" for event in events]
    assert sorted(lines) == sorted(event["place"] for event in document["events"] if event.get("node"))


def test_what_cannot_be_exported_is_named(document: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "incident-1.json", tmp_path / "trace.json"
    source.write_text(json.dumps(document))
    assert main(["export", str(tmp_path), "-o", str(target)]) == 0
    assert json.loads(target.read_text()) == perfetto.trace(document)
    assert main(["export", str(source), "-o", str(tmp_path / "none" / "trace.json")]) == 2
    source.write_text(json.dumps({name: value for name, value in document.items() if name != "phases"}))
    assert main(["export", str(source), "-o", str(target)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "cannot be written: No such file" in said[0] and "no whole document of an incident" in said[1]
