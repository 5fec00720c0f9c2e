"""A bundle of two nodes in the words of Pacemaker 1.1, Corosync 2.4 and sbd: no primary, but an address and a disk.

Reconstructed by hand from the formats of those programs (`foreign/sles-bundle`, times are UTC+8); pacemaker.log is to
the second, /var/log/messages to the microsecond.  The truth:

    10:56:55.002  an administrator asks for the fencing of sles2; its device waits 20.3 s
    10:57:21.901  the token is lost; 10:57:27.502 the fencing is done (32.5 s); vip and fs go on at sles1
    11:05:00.400  a controller is killed by signal 9 on sles1; nothing moves
    11:20:00.150  Pacemaker is stopped on both nodes: down from 11:20:02.350 until 11:22:11.410
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.report import figures, headline
from tests.spark.truth.reading import tables

ROOT = Path(__file__).parent / "foreign" / "sles-bundle"
FILES = ("sles1/messages", "sles1/pacemaker.log", "sles2/messages", "sles2/pacemaker.log")
MIDNIGHT = 1_553_184_000_000_000
"""us: 2019-03-22 00:00 at UTC+8"""
TYPES = ("fencing", "controller", "down")
CLAIMS = ("primary", "broker", "nobody", "nothing had failed", "nothing says", "not interrupted", "no fencing")
Row = dict[str, Any]


def us(clock: str) -> int:
    hours, minutes, seconds = clock.split(":")
    return MIDNIGHT + round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1e6)


@cache
def found(names: Iterable[str] = FILES) -> dict[str, list[Row]]:
    files = {name: (ROOT / name).read_bytes().splitlines(keepends=True) for name in names}
    return tables(files, zones={"*": "Asia/Shanghai"})


def of(rows: list[Row], incident: Row) -> list[Row]:
    return [row for row in rows if row["incident"] == incident["incident"]]


def test_all_three_are_found_and_named() -> None:
    fencing, killed, down = found()["incidents"]
    assert tuple(row["type"] for row in found()["incidents"]) == TYPES
    assert fencing["why"] == "node sles2 was fenced, asked for by stonith_admin (an administrator's command)"
    assert killed["why"] == "the cluster's software failed on sles1 (crmd: signal 9 (core=0))"
    assert down["why"] == "Pacemaker was stopped on sles1, sles2: all of the cluster was down for 129.1 s"
    assert [row["old_primary"] for row in found()["incidents"]] == [None, None, None]
    assert [row["begin"] for row in (fencing, killed, down)] == [
        us("10:56:55.002214"),
        us("11:05:00.400100"),
        us("11:20:00.150100"),
    ]
    assert all(row["end"] is not None for row in (fencing, killed, down))
    assert down["end"] == us("11:22:36.301100")


def test_the_fencing_and_what_it_waited_for() -> None:
    incident = found()["incidents"][0]
    phases = {row["phase"]: row for row in of(found()["phases"], incident)}
    assert phases["fencing"]["duration_us"] == 32_500_000
    assert phases["fault"]["end"] == us("10:56:55.002214")
    hints = {row["rule"]: row for row in of(found()["hints"], incident)}
    assert hints["fencing-delayed"]["text"] == "the device stonith-sbd waited 20.3 s before it fenced sles2"


def test_the_killed_controller_is_what_failed() -> None:
    incident = found()["incidents"][1]
    fault = next(row for row in of(found()["phases"], incident) if row["phase"] == "fault")
    assert fault["end"] == us("11:05:00.400100") and fault["end_what"] == "daemon_exit"
    assert of(found()["resources"], incident) == []


def test_where_the_resources_went() -> None:
    rows = {
        (number, row["resource"]): (row["what"], row["old_node"], row["new_node"], row["down_lo"], row["down_hi"])
        for number, incident in enumerate(found()["incidents"])
        for row in of(found()["resources"], incident)
    }
    vip, fs = us("10:57:28.201100"), us("10:57:29.201100")
    alive, fenced = us("10:57:21.901336"), us("10:57:27.502214")
    near = pytest.approx  # µs of clocks are rounded
    assert rows[0, "vip"][:3] == rows[0, "fs"][:3] == ("moved", "sles2", "sles1")
    for name, start in (("vip", vip), ("fs", fs)):
        assert rows[0, name][3] == near(start - fenced, abs=2) and rows[0, name][4] >= start - alive
    for name, gone, back in (
        ("fs", "11:20:01.250100", "11:22:36.201100"),
        ("vip", "11:20:01.350100", "11:22:35.201100"),
    ):
        assert rows[2, name][:3] == ("restarted", "sles1", "sles1")
        assert rows[2, name][3:] == near([us(back) - us(gone)] * 2, abs=2)
    assert len(rows) == 4


def said(rows: dict[str, list[Row]]) -> list[str]:
    """All that the headline, the figures and the notes say."""
    texts = []
    for incident in rows["incidents"]:
        document: Row = {"incident": incident, "dual": [], "resources": of(rows["resources"], incident)}
        document |= {"phases": of(rows["phases"], incident), "outages": [], "outage_union": None}
        texts += [headline.what(document), incident["why"], *(row["text"] for row in of(rows["hints"], incident))]
        shown = (figures._service(document), figures._dual(document))
        texts += [f"{figure.name}: {figure.value}" for figure in shown]
        texts += [row["note"] for row in document["phases"] if row["known"] or row["begin"] or row["end"]]
    return texts


@pytest.mark.parametrize("names", [n for size in (1, 2, 3, 4) for n in combinations(FILES, size)], ids="+".join)
def test_files_may_be_missing_and_nothing_wrong_is_said(names: tuple[str, ...]) -> None:
    rows = found(names)
    kinds = [row["type"] for row in rows["incidents"]]
    assert set(kinds) <= {*TYPES, "unknown", "moved"}, rows["incidents"]
    for text in said(rows):
        assert not any(claim in text.replace("which node was the primary", "") for claim in CLAIMS), text
    for row in rows["resources"]:
        assert row["what"] in ("moved", "restarted", "stopped", "started") and (row["down_lo"] or 0) >= 0
    if "sles1/messages" in names or "sles1/pacemaker.log" in names:
        assert {"fencing", "controller"} <= set(kinds)


@pytest.mark.parametrize("gone", FILES)
def test_more_evidence_is_never_worse(gone: str) -> None:
    """The bounds with all logs are inside of those without one of them."""
    less, all_ = found(tuple(name for name in FILES if name != gone)), found()
    for row in all_["phases"]:
        other = [r for r in less["phases"] if (r["incident"], r["phase"]) == (row["incident"], row["phase"])]
        for was in other:
            if was["known"]:
                assert row["known"] and row["duration_hi_us"] <= was["duration_hi_us"], (row, was)


def test_a_resource_that_flaps_for_hours_is_solved_in_time() -> None:
    """6,000 starts and stops in one incident: what is done for each of them does not grow with it."""
    lines = [flap(number) for number in range(6000)]
    begun = time.process_time()
    rows = tables({"messages": lines})
    assert time.process_time() - begun < 15
    assert len(rows["incidents"]) == 1 and len(rows["resources"]) == 3000


def flap(number: int) -> bytes:
    task, at = ("start", "stop")[number % 2], datetime(2026, 3, 22, tzinfo=UTC) + timedelta(seconds=2 * number)
    said = f"notice: Result of {task} operation for vip on n1: 0 (ok)"
    return f"{at:%Y-%m-%dT%H:%M:%S}.000001+00:00 n1 crmd[5]:  {said}\n".encode()
