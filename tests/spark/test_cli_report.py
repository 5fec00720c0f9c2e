"""`failover-report` from files to the finished report, and what the other verbs say about it, with both engines."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from spark_jobs.cli import engines
from spark_jobs.cli.errors import UserError
from spark_jobs.engine.base import Engine
from tests.spark.cli_documents import Program
from tests.spark.truth import messages, nodes
from tests.spark.truth.reading import MODIFIED
from tests.spark.truth.world import Files

LAB = Path(__file__).parent / "data/pacemaker-lab"


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


def logs(place: Path, files: Files, modified: int = MODIFIED) -> Path:
    for name, lines in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        os.utime(path, (modified / 1e6, modified / 1e6))
    return place


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """Logs of a kill in which message m:6 is lost for certain."""
    return logs(tmp_path / "logs", messages.lost().files)


DUCK = ("--engine", "duckdb")


def test_from_logs_to_the_verdict(program: Program, lost: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = program("report", lost, "-o", out, "--tz", "*=UTC", *DUCK)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[0].split("  ")[0] == "#" and lines[1].split()[:3] == ["1", "2026-06-01", "11:59:59"]
    assert "kill  node1 → node2" in lines[1] and lines[1].split()[-2:] == ["1", "excluded"]
    assert "messages: 6 sent, 6 confirmed, 1 lost" in lines
    assert lines[-1] == f"see {out}/report.html"
    assert {"report.html", "report.md", "report.json", "incident-1.json", "incident-1.svg"} <= set(os.listdir(out))

    judged = program("check", out, "--max-lost", "0", "--max-unexpected", "0", "--no-dual-primary")
    assert (judged.code, judged.out.splitlines()[0]) == (1, "all: lost 1, limit 0: breach")
    life = program("explain", out, "msg", "m:6", *DUCK)
    assert "p1   sends it to q\n" in life.out and "p1   is told that it is safe\n" in life.out
    assert "verdict: lost: confirmed, never delivered" in life.out
    fine = program("explain", out / "incident-1.json", "msg", "m:1", *DUCK)
    assert "c1   acknowledges it" in fine.out and "verdict: ok" in fine.out


def test_a_log_that_is_not_understood_does_not_pass_a_gate(program: Program, tmp_path: Path) -> None:
    """The manager of another vendor, under a name that we know."""
    lines = [b"21.05.26 01:55:%02d node2 (TOTEM) A processor failed\n" % number for number in range(9)]
    place, out = logs(tmp_path / "logs", {"pacemaker.log": lines}), tmp_path / "out"
    assert program("report", place, "-o", out, *DUCK).code == 0
    said = program("check", out, "--max-incidents", "0")
    assert said.code == 1
    found = "all: incidents unknown, limit 0: unknown (0 found; pacemaker.log could not be read)"
    assert said.out.splitlines()[0] == found
    assert program("check", out, "--max-incidents", "0", "--allow-unknown").code == 0
    assert "9 lines are of no format that is known here" in (out / "report.md").read_text()


def test_a_fault_of_the_program_is_no_wrong_usage(
    program: Program, lost: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ValueError("year -144169 is out of range")

    monkeypatch.setattr("spark_jobs.report.html.page", broken)
    said = program("report", lost, "-o", tmp_path / "out", "--tz", "*=UTC", *DUCK)
    assert (said.code, said.err) == (70, "failover-report: ValueError: year -144169 is out of range\n")
    said = program("report", lost, "-o", tmp_path / "out", "--tz", "*=UTC", "--incident", "9", *DUCK)
    assert (said.code, said.err) == (2, "failover-report: incident 9, wanted a number from 1 to 1\n")


@pytest.mark.slow
def test_both_engines_give_the_same_octets(program: Program, lost: Path, spark: Engine, tmp_path: Path) -> None:
    for engine in ("spark", "duckdb"):
        assert program("report", lost, "-o", tmp_path / engine, "--engine", engine).code == 0
    found = {
        name: {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.is_file()}
        for name in ("spark", "duckdb")
    }
    assert found["spark"] == found["duckdb"] and len(found["spark"]) >= 5


def test_a_spark_that_does_not_start_is_told_after_the_reading(
    program: Program, lost: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in engines.ELSEWHERE:
        monkeypatch.delenv(name, raising=False)

    def failed(options: object) -> Engine:
        raise UserError("Spark does not start at local[*]: no room")

    monkeypatch.setattr(engines, "_spark", failed)
    monkeypatch.setattr(engines, "_running", lambda: False)
    said = program("report", lost, "-o", tmp_path / "out", "--engine", "spark")
    assert (said.code, said.err) == (2, "failover-report: Spark does not start at local[*]: no room\n")


def test_json_for_programs(program: Program, lost: Path, tmp_path: Path) -> None:
    said = program("report", lost, "-o", tmp_path / "out", "--json", "--format", "html", *DUCK)
    found = json.loads(said.out)
    assert [row["type"] for row in found["incidents"]] == ["kill"]
    assert found["messages"]["total"]["lost"] == 1 and found["failed"] == []
    names = {Path(path).name for path in found["files"]}
    assert names == {"report.html", "report.json", "incident-1.json"}
    assert names | {"work"} == set(os.listdir(tmp_path / "out"))


def test_what_was_not_seen_again_is_unaccounted_unless_it_is_said_that_all_was_drained(
    program: Program, tmp_path: Path
) -> None:
    given = logs(tmp_path / "logs", messages.backlog().files)
    for drained, wanted in (("logs", "2 unaccounted"), ("yes", "2 lost"), ("no", "2 unaccounted")):
        said = program("report", given, "-o", tmp_path / "out", "--drained", drained, *DUCK)
        assert wanted in said.out, drained


def test_again_changes_nothing_and_a_new_file_is_read(program: Program, lost: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("report", lost, "-o", out, "--progress", *DUCK)
    first = program(*words)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    again = program(*words)
    assert "] incidents" in first.err and "] incidents" not in again.err
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    assert "] incidents" in program(*words, "--redo").err
    (lost / "more.txt").write_bytes(b"nothing that anybody knows\n")
    assert program(*words).out.splitlines()[1] == first.out.splitlines()[1]


def test_clocks_of_a_zone_that_is_given(program: Program, tmp_path: Path) -> None:
    """Text logs in a zone that nothing in them tells."""
    story = nodes.crash()
    given = logs(tmp_path / "logs", {name: lines for name, lines in story.files.items() if ".log" in name})
    said = program("report", given, "-o", tmp_path / "out", "--tz", "*=+08:00", "--json", *DUCK)
    assert said.code == 0
    row = json.loads(said.out)["incidents"][0]
    utc = program("report", given, "-o", tmp_path / "out-utc", "--tz", "*=UTC", "--json", *DUCK)
    assert json.loads(utc.out)["incidents"][0]["begin"] - row["begin"] == 8 * 3_600_000_000


def test_real_logs_of_pacemaker(program: Program, tmp_path: Path) -> None:
    """Seven fail-overs and two that were none; no client wrote, so nothing is said about messages."""
    out = tmp_path / "out"
    said = program("report", LAB, "-o", out, *DUCK)
    assert said.code == 0 and "messages: no client's log was read" in said.out
    rows = said.out.splitlines()[1:10]
    assert sum("→" in row for row in rows) == 7 and sum("no-failover" in row for row in rows) == 2
    assert all(row.split()[-1] == "excluded" for row in rows if "→" in row)
    assert program("check", out, "--no-dual-primary", "--max-phase", "promotion=500ms", "--allow-unknown").code == 0
    assert program("check", out, "--max-lost", "0").code == 1
    changes = program("diff", out, out, "--incident", "2", "--with", "4", "--json")
    # by hand: fencing 352 ms, then 4 ms more than that; one kernel, so the clocks agree
    row = next(row for row in json.loads(changes.out)["changes"] if row["what"] == "fencing")
    assert row["change_lo_us"] <= row["change_us"] <= row["change_hi_us"]


# ---- inputs that cannot be used


@pytest.mark.parametrize(
    ("name", "content", "said_so"),
    [
        ("empty", None, "empty: nothing that can be read"),
        ("notes.txt", b"a shopping list\n", "notes.txt"),
        ("broken.tar.gz", b"\x1f\x8b\x08\x00 nothing packed", "broken.tar.gz"),
    ],
)
def test_input_that_holds_nothing(
    program: Program, tmp_path: Path, name: str, content: bytes | None, said_so: str
) -> None:
    place = tmp_path / name
    place.mkdir() if content is None else place.write_bytes(content)
    said = program("report", place, "-o", tmp_path / "out", *DUCK)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("failover-report: ") and said.err.count("\n") == 1
    assert said_so in said.err


def test_damage_is_told_and_the_rest_is_reported(program: Program, lost: Path, tmp_path: Path) -> None:
    """A damaged archive next to good logs, and a line that is none."""
    (lost / "old.tar.gz").write_bytes(b"\x1f\x8b\x08\x00 nothing packed")
    segment = next(lost.rglob("p1*.jsonl*"))
    segment.write_bytes(segment.read_bytes() + b"{this is no JSON}\n")
    said = program("report", lost, "-o", tmp_path / "out", *DUCK)
    assert said.code == 0
    text = " ".join(said.out.split())
    assert "1 damaged lines" in text and "files not read" in text


def test_output_that_cannot_be_made(program: Program, lost: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = program("report", lost, "-o", tmp_path / "file" / "out", *DUCK)
    assert said.code == 2 and "cannot be made: Not a directory" in said.err


def test_incident_that_is_not_there(program: Program, lost: Path, tmp_path: Path) -> None:
    said = program("report", lost, "-o", tmp_path / "out", "--incident", "7", *DUCK)
    assert said.code == 2 and "incident 7" in said.err


def test_tables_of_another_version(program: Program, lost: Path, tmp_path: Path, duck: Engine) -> None:
    duck.save("select '9.0' as version", str(tmp_path / "out/work/about"))
    said = program("report", lost, "-o", tmp_path / "out", *DUCK)
    assert said.code == 2 and "version 9.0, wanted 1.0" in said.err


def test_tables_elsewhere(program: Program, lost: Path, tmp_path: Path) -> None:
    """`explain` finds them by the documents, and after a move by --work."""
    out, work = tmp_path / "out", tmp_path / "tables"
    assert program("report", lost, "-o", out, "--work", work, *DUCK).code == 0
    assert not (out / "work").exists()
    assert program("explain", out, "msg", "m:6", *DUCK).code == 0
    shutil.move(work, tmp_path / "moved")
    assert program("explain", out, "msg", "m:6", *DUCK).code == 2
    assert program("explain", out, "msg", "m:6", "--work", tmp_path / "moved", *DUCK).code == 0


# ---- many reports


def test_fleet_of_reports(program: Program, lost: Path, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    assert program("report", lost, "-o", reports / "one", *DUCK).code == 0
    assert program("report", LAB, "-o", reports / "two", *DUCK).code == 0
    said = program("fleet", reports, "-o", tmp_path / "fleet", *DUCK)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("10 incidents of 2 clusters") and said.out.endswith(f"see {tmp_path}/fleet/fleet.html\n")
    assert {"fleet.html", "fleet.json", "fleet.md"} == set(os.listdir(tmp_path / "fleet"))
    since = program("fleet", reports, "-o", tmp_path / "fleet", "--since", "2026-11-01", "--json", *DUCK)
    assert json.loads(since.out)["incidents"] and "made" not in since.out


def test_fleet_of_nothing(program: Program, tmp_path: Path) -> None:
    said = program("fleet", tmp_path, "-o", tmp_path / "fleet", *DUCK)
    assert (said.code, said.out) == (2, "") and "no incident in what was given" in said.err


# ---- from cron


def test_watch_says_what_is_new_and_only_once(program: Program, lost: Path, tmp_path: Path) -> None:
    words = ("watch", lost, "-o", tmp_path / "out", *DUCK)
    first = program(*words)
    assert (first.code, first.err) == (0, "") and first.out.count("\n") == 1
    assert "node1" in first.out and (tmp_path / "out/report.html").exists()
    again = program(*words)
    assert (again.code, again.out, again.err) == (0, "", "")
    quiet = {"segments": 0, "rows": 0, "again": 0, "late": 0}
    assert json.loads(program(*words, "--json").out) == {**quiet, "incidents": 0, "new": [], "too_late": []}
    runs = [json.loads(line) for line in (tmp_path / "out/watch.jsonl").read_text().splitlines()]
    assert [run["incidents"] for run in runs] == [1, 0, 0] and runs[0]["again"] == runs[0]["rows"] > 0
    assert quiet.items() <= runs[2].items() and all(run["seconds"] > 0 and run["at"] > 0 for run in runs)
    assert "lost 1, limit 0: breach" in program("check", tmp_path / "out", "--max-lost", "0").out
