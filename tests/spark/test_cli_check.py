"""`failover-report check`: each limit, what is unknown, what is only possible; exit codes."""

import json
from pathlib import Path

import pytest

from tests.spark.cli_documents import Program, incident, outage, overview, phase, with_total, written


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


HELD = (
    *("--max-outage", "2.3s", "--max-all-down", "2100ms", "--max-total", "3s", "--max-phase", "promotion=180ms"),
    *("--max-lost", "0", "--max-unaccounted", "0", "--max-unexpected", "0", "--max-unmarked", "0", "--no-dual-primary"),
)


def test_everything_is_within_its_limit(program: Program, out: Path) -> None:
    said = program("check", written(out, incident()) / "incident-1.json", *HELD)
    assert (said.code, said.out, said.err) == (0, "none of 9 comparisons failed\n", "")


@pytest.mark.parametrize(
    ("limit", "document", "line"),
    [
        ("--max-outage=2299ms", {}, "outage 2.3 s, limit 2.3 s: breach (p1)"),
        ("--max-all-down=2s", {}, "all clients down 2.1 s, limit 2 s: breach"),
        ("--max-total=2s", {}, "total 2.28 s, limit 2 s: breach"),
        ("--max-phase=fencing=300ms", {}, "fencing 352 ms, limit 300 ms: breach (348 ms to 356 ms)"),
        ("--max-lost=2", {"messages": with_total(lost=3)}, "lost 3, limit 2: breach"),
        ("--max-unaccounted=0", {"messages": with_total(unaccounted=1)}, "unaccounted 1, limit 0: breach"),
        ("--max-unmarked=0", {"messages": with_total(unmarked=4)}, "unmarked 4, limit 0: breach"),
        ("--max-unexpected=0", {"messages": with_total(unexpected=3, unlogged=2)}, "unexpected 1, limit 0: breach"),
    ],
)
def test_a_breach_is_named_with_value_and_limit(
    program: Program, out: Path, limit: str, document: dict, line: str
) -> None:
    said = program("check", written(out, incident(**document)) / "incident-1.json", limit)
    assert (said.code, said.out) == (1, f"incident 1: {line}\n1 of 1 comparisons failed\n")


def test_unexpected_ones_of_an_incomplete_log_are_no_finding(program: Program, out: Path) -> None:
    document = incident(messages=with_total(unexpected=2, unlogged=2))
    assert program("check", written(out, document), "--max-unexpected", "0").code == 0


# ---- two primaries


PAIR = {"old_node": "node1", "new_node": "node2", "margin_ms": -900.0, "error_ms": 8.0}


@pytest.mark.parametrize(
    ("verdict", "strict", "code"),
    [("certain", False, 1), ("possible", False, 0), ("possible", True, 1), ("excluded", True, 0), (None, True, 0)],
)
def test_dual_primary(program: Program, out: Path, verdict: str | None, strict: bool, code: int) -> None:
    document = incident(dual=[PAIR | {"verdict": verdict}])
    document["incident"]["dual"] = verdict
    said = program("check", written(out, document), "--no-dual-primary", *(["--strict"] if strict else []))
    assert said.code == code
    warned = verdict in ("certain", "possible")
    assert ("node1 and node2, margin -900 ms +-8" in said.out) == warned


# ---- what is not known


@pytest.mark.parametrize(
    ("limits", "document", "note"),
    [
        (["--max-lost", "0"], {"messages": None}, "no client's log was read"),
        (["--max-lost", "0"], {"messages": {"total": {}}}, "no client's log was read"),
        (["--max-outage", "1h"], {"outages": [], "outage_union": None}, "no client's log was read"),
        (["--max-all-down", "1h"], {"outage_union": None}, "no client's log was read"),
        (["--max-phase", "path=1h"], {}, "the document has no such phase"),
        (["--max-phase", "fencing=1h"], {"phases": [phase("fencing", None)]}, "no line says it"),
        (["--max-total", "1h"], {"incident": {"total_us": None}}, "it was not over when the logs ended"),
    ],
)
def test_unknown_fails_unless_it_is_allowed(
    program: Program, out: Path, limits: list[str], document: dict, note: str
) -> None:
    place = written(out, incident(**document))
    said = program("check", place, *limits)
    assert said.code == 1
    assert f": unknown ({note})" in said.out
    assert program("check", place, *limits, "--allow-unknown").code == 0


def test_phase_that_had_not_ended_is_broken_when_it_was_too_long_already(program: Program, out: Path) -> None:
    row = {**phase("redundancy", None), "censored": True, "duration_lo_us": 31_000_000}
    place = written(out, incident(phases=[row]))
    said = program("check", place, "--max-phase", "redundancy=30s", "--allow-unknown")
    assert said.code == 1 and "breach (not over when the logs ended, after 31 s)" in said.out
    assert program("check", place, "--max-phase", "redundancy=1m").code == 1
    assert program("check", place, "--max-phase", "redundancy=1m", "--allow-unknown").code == 0


def test_client_that_never_came_back_is_named(program: Program, out: Path) -> None:
    place = written(out, incident(outages=[outage("c1", 900, censored=True), outage("p1", 2300)]))
    said = program("check", place, "--max-outage", "1s")
    assert said.code == 1 and "outage 2.3 s, limit 1 s: breach (c1 never came back)" in said.out


def test_no_node_stood_still(program: Program, out: Path) -> None:
    """That is known: clients wrote logs."""
    assert program("check", written(out, incident(outages=[])), "--max-outage", "0s").code == 0


# ---- errors of clocks


def test_value_within_its_limit_but_not_with_its_error_is_a_warning(program: Program, out: Path) -> None:
    place = written(out, incident())
    said = program("check", place, "--max-phase", "promotion=175ms")
    assert said.code == 0
    assert "promotion 172 ms, limit 175 ms: possible (164 ms to 180 ms)" in said.out
    assert program("check", place, "--max-phase", "promotion=175ms", "--strict").code == 1


def test_several_phases(program: Program, out: Path) -> None:
    said = program("check", written(out, incident()), "--max-phase", "promotion=1ms", "--max-phase", "fencing=1s")
    assert said.code == 1 and said.out.endswith("1 of 2 comparisons failed\n")


# ---- a whole report


def test_folder_takes_messages_and_outages_of_all_and_the_rest_of_each(program: Program, out: Path) -> None:
    one, two = incident(1), incident(2)
    whole = overview(one, two, messages=with_total(lost=3))  # lost outside of both incidents
    said = program("check", written(out, one, two, whole), *HELD)
    assert said.code == 1
    assert said.out.splitlines() == ["all: lost 3, limit 0: breach", "1 of 13 comparisons failed"]


def test_number_of_incidents(program: Program, out: Path) -> None:
    place = written(out, one := incident(1), two := incident(2), overview(one, two))
    assert program("check", place, "--max-incidents", "2").code == 0
    said = program("check", place, "--max-incidents", "1")
    assert (said.code, said.out.splitlines()[0]) == (1, "all: incidents 2, limit 1: breach")


def test_report_without_incidents_and_clients_is_no_success(program: Program, out: Path) -> None:
    """An empty folder of logs must not pass a gate."""
    nothing = overview(messages=None, outages={"clients": 0, "longest_us": 0})
    said = program("check", written(out, nothing), "--max-lost", "0", "--max-outage", "1s")
    assert said.code == 1 and said.out.count("unknown (no client's log was read)") == 2


def test_json(program: Program, out: Path) -> None:
    said = program("check", written(out, incident()), "--max-phase", "promotion=100ms", "--max-lost=0", "--json")
    found = json.loads(said.out)
    assert (said.code, found["failed"]) == (1, 1)
    wanted = {"about": "incident 1", "what": "promotion", "level": "breach", "value": 172_000, "limit": 100_000}
    assert found["findings"][0] == wanted | {"unit": "us", "note": "164 ms to 180 ms"}
    assert [finding["level"] for finding in found["findings"]] == ["breach", "ok"]


# ---- wrong usage, wrong documents


@pytest.mark.parametrize(
    ("words", "said_so"),
    [
        ([], "no limit is given, expected one or more"),
        (["--max-phase", "promote=2s"], "no phase 'promote'; known: fault, detection, decision, fencing, promotion"),
        (["--max-phase", "promotion"], "found 'promotion', expected PHASE=DURATION"),
        (["--max-phase", "promotion=2x"], "found '2x', expected a duration such as 10s, 500ms or 2m"),
        (["--max-outage", "-1s"], "--max-outage: expected one argument"),
        (["--max-lost", "none"], "found 'none', expected a whole number, 0 or more"),
        (["--max-lots", "1"], "unrecognized arguments: --max-lots 1"),
        (["--max-incidents", "1"], "none of the limits is about these documents"),
    ],
)
def test_wrong_usage_is_one_line(program: Program, out: Path, words: list[str], said_so: str) -> None:
    said = program("check", written(out, incident()) / "incident-1.json", *words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("failover-report: ") and said.err.count("\n") == 1
    assert said_so in said.err


@pytest.mark.parametrize(
    ("content", "said_so"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", ":1: Expecting value, expected a document of a report (JSON)"),
        (b'{"format": \n nothing}', ":2: Expecting value"),
        (b"\xff\xfe", "octet 0 is no UTF-8, expected a document"),
        (b"[]", "format None, expected failover-report 1.x"),
        (b'{"format": "failover-report 2.0", "incident": {}}', "format 'failover-report 2.0', expected"),
        (b'{"format": "failover-report 1.0"}', "neither 'incident' nor 'incidents'"),
        (
            b'{"format": "failover-report 1.0", "incident": {}, "messages": []}',
            "'messages' is list, expected an object",
        ),
        (b'{"format": "failover-report 1.0", "incident": {}, "outages": [1]}', "'outages' holds something that is no"),
    ],
)
def test_wrong_document_is_one_line_that_names_it(
    program: Program, tmp_path: Path, content: bytes | None, said_so: str
) -> None:
    place = tmp_path / "incident-1.json"
    if content is not None:
        place.write_bytes(content)
    said = program("check", place, "--max-lost", "0", "--max-outage", "1s")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"failover-report: {place}") and said.err.count("\n") == 1
    assert said_so in said.err


def test_folder_without_a_report(program: Program, tmp_path: Path) -> None:
    said = program("check", tmp_path, "--max-lost", "0")
    assert said.code == 2 and "no report.json and no incident-N.json" in said.err
