"""The alert agent of Pacemaker: what it appends is what `failover-report` reads; what it cannot do hurts nobody."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.parse import event_json
from spark_jobs.parse.collapse import per_node
from spark_jobs.parse.context import Context
from spark_jobs.parse.detect import detect
from spark_jobs.parse.lines import parse_file
from tests.agents.ocf import ROOT
from tests.spark.written import faults

SCRIPT = ROOT / "resource_agents" / "alert" / "qpid-alert"
FENCED = "Operation reboot of node1 by node2 for pacemaker-controld.12@node3: OK (complete) (ref=ab)"
TIME = {"timestamp_epoch": "1700000000", "timestamp_usec": "1234"}
NODE = {"kind": "node", "node": "node1", "desc": "lost"}
FENCING = {"kind": "fencing", "node": "node1", "desc": FENCED, "task": "st_notify_fence", "rc": "0"}
RESOURCE = {
    "kind": "resource", "node": "node2", "rsc": "qpidd", "task": "promote", "rc": "0", "target_rc": "0", "desc": "ok",
}  # fmt: skip


def alert(file: Path | str, **values: str) -> subprocess.CompletedProcess[str]:
    given = {f"CRM_alert_{name}": value for name, value in {"recipient": str(file), **TIME, **values}.items()}
    environment = {"PATH": os.environ["PATH"], **given}
    return subprocess.run([str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=30)


def events(file: Path) -> list[dict[str, Any]]:
    lines = file.read_bytes().splitlines(keepends=True)
    assert detect(file.name, lines) == "broker_json"
    written = [json.loads(line) for line in lines]
    assert [faults(event) for event in written] == [[]] * len(written)
    context = Context()
    found = list(event_json.parse_file(file.name, lines, context, "broker"))
    assert not context.tally.unknown and len(found) == len(written)
    return found


def test_nodes_resources_and_fencing(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    for values in (NODE, FENCING, RESOURCE):
        assert alert(file, **values).returncode == 0
    node, fencing, resource = events(file)
    assert (node["kind"], node["peer"], node["new"], node["ts_wall"]) == (
        "peer_state",
        "node1",
        "lost",
        1700000000001234,
    )
    assert (fencing["kind"], fencing["peer"], fencing["result"]) == ("fence_notify", "node1", "OK")
    assert (fencing["attrs"]["fence"], fencing["attrs"]["by"]) == ("reboot", "node2")
    assert (resource["kind"], resource["result"], resource["attrs"]["task"]) == ("op_result", "ok", "promote")
    assert {event["node"] for event in (node, fencing, resource)} == {os.uname().nodename}


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "attribute", "node": "node1", "attribute_name": "a"},
        {"kind": "something new"},
        {**RESOURCE, "task": "monitor", "rc": "7", "target_rc": "7"},
        {**RESOURCE, "task": "monitor", "rc": "1", "desc": "Cancelled"},
        {},
    ],
)
def test_what_is_not_written(tmp_path: Path, values: dict[str, str]) -> None:
    assert alert(tmp_path / "alerts.jsonl", **values).returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_fact_in_the_log_and_in_the_alert_is_one(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    alert(file, **{**RESOURCE, "node": "node2"})
    line = (
        "Nov 14 22:13:20.002 node2 pacemaker-controld  [12] (log_executor_event) \tnotice: "
        "Result of promote operation for qpidd on node2: ok | rc=0 call=5 key=qpidd_promote_0\n"
    )
    told = [{**event, "ts_wall": 1_700_000_000_002_000} for event in parse_file("pacemaker.log", [line], Context())]
    ours = [{**event, "node": "node2"} for event in events(file)]
    assert len(told) == 1
    assert len(per_node([*told, *ours])) == 1


HOSTILE = 'a"b\\c\nd\te\x01f\x7f$(id)`id`%s ${x} ü ' + "x" * 3000


def test_whatever_the_text_holds_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    for values in (NODE, FENCING, RESOURCE):
        assert alert(file, **{**values, "desc": HOSTILE, "node": HOSTILE, "rsc": HOSTILE}).returncode == 0
    cleaned = "a b c d e f $(id)`id`%s ${x} ü " + "x" * 3000
    found = events(file)
    assert [event["peer"] for event in found] == [cleaned] * 3
    assert found[2]["attrs"]["resource"] == cleaned


@pytest.mark.parametrize("file", ["", "-size", "/dev/full", "/nonexistent/directory/file", "/"])
def test_what_cannot_be_written_is_said(file: str) -> None:
    done = alert(file, **NODE)
    assert done.returncode == 1
    assert done.stderr.startswith("qpid-alert: ") and done.stderr.count("\n") == 1


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "alerts.jsonl"
    with file.open("wb") as sparse:
        sparse.truncate((16 << 20) + 1)
    alert(file, **NODE)
    alert(file, **NODE)
    assert len(events(file)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alerts.jsonl", "alerts.jsonl.1"]
