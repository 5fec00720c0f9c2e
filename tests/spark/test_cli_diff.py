"""`failover-report diff`: which changes are larger than their error."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.cli.diff import LONGER, NOT_SURE, ONLY_B, SAME, SHORTER, change
from spark_jobs.cli.limits import Measure
from tests.spark.cli_documents import Program, incident, outage, overview, phase, with_total, written


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (Measure(100, 90, 110), Measure(150, 140, 160), LONGER),
        (Measure(150, 140, 160), Measure(100, 90, 110), SHORTER),
        (Measure(100, 90, 110), Measure(115, 105, 125), NOT_SURE),
        (Measure(100, 100, 100), Measure(100, 100, 100), SAME),
        (Measure(100, None, None), Measure(900, 900, 900), NOT_SURE),  # A's error is not known
        (Measure(None), Measure(5, 5, 5), ONLY_B),
    ],
)
def test_verdict(a: Measure, b: Measure, verdict: str) -> None:
    assert change("x", a, b).verdict == verdict


@given(st.tuples(*[st.integers(0, 1000)] * 2), st.tuples(*[st.integers(0, 50)] * 4), st.data())
def test_true_change_is_between_the_bounds(
    values: tuple[int, int], errors: tuple[int, ...], data: st.DataObject
) -> None:
    """Whatever the true lengths are: a change that is said to be longer is longer."""
    a = Measure(values[0], values[0] - errors[0], values[0] + errors[1])
    b = Measure(values[1], values[1] - errors[2], values[1] + errors[3])
    true = data.draw(st.integers(b.lo or 0, b.hi or 0)) - data.draw(st.integers(a.lo or 0, a.hi or 0))
    found = change("x", a, b)
    assert found.lo is not None and found.hi is not None
    assert found.lo <= true <= found.hi
    assert {LONGER: true > 0, SHORTER: true < 0, SAME: true == 0}.get(found.verdict, True)


TABLES = """\
phase                  A        B   change     +-  verdict
detection         1.21 s   300 ms  -908 ms   8 ms  shorter
fencing           352 ms  unknown  unknown      ?  only in A
promotion         172 ms   175 ms    +3 ms  16 ms  within the error
outage             2.3 s    1.2 s   -1.1 s    0 s  shorter
all clients down   2.1 s    2.1 s        0    0 s  same

messages     A  B
lost         0  0
unaccounted  0  0
unexpected   0  0
unmarked     0  0
duplicated   0  2
recovered    0  0

incident     A         B
type         crash     crash
old_primary  node1     node1
new_primary  node2     node2
promotions   1         1
dual         excluded  excluded
"""


def test_two_incidents(program: Program, tmp_path: Path) -> None:
    faster = [phase("detection", 300, 4), phase("fencing", None), phase("promotion", 175, 8)]
    before = written(tmp_path / "before", incident())
    after = incident(phases=faster, outages=[outage("p1", 1200)], messages=with_total(duplicated=2))
    said = program("diff", before, written(tmp_path / "after", after))
    assert said.code == 0
    assert all(len(line) <= 80 for line in said.out.splitlines())
    assert said.out == TABLES


def test_json_and_numbers_of_incidents(program: Program, tmp_path: Path) -> None:
    slow = incident(2, phases=[phase("promotion", 900, 8)], messages=None)
    out = written(tmp_path, incident(1), slow)
    said = program("diff", out, out, "--incident", "1", "--with", "2", "--json")
    found = json.loads(said.out)
    row = next(row for row in found["changes"] if row["what"] == "promotion")
    bounds = {"change_us": 728_000, "change_lo_us": 712_000, "change_hi_us": 744_000}
    assert row == {"what": "promotion", "a_us": 172_000, "b_us": 900_000, **bounds, "verdict": "longer"}
    assert found["messages"]["lost"] == {"a": 0, "b": None}
    assert found["incident"]["type"] == {"a": "crash", "b": "crash"}


@pytest.mark.parametrize(
    ("words", "said_so"),
    [
        ([], "which incident? expected an incident-N.json or --incident N (known: 1, 2)"),
        (["--incident", "3", "--with", "1"], "no incident 3, known: 1, 2"),
        (["--incident", "0"], "found '0', expected the number of an incident, from 1"),
    ],
)
def test_wrong_incident(program: Program, tmp_path: Path, words: list[str], said_so: str) -> None:
    out = written(tmp_path, incident(1), incident(2))
    said = program("diff", out, out, *words)
    assert said.code == 2 and said_so in said.err


def test_overview_is_no_incident(program: Program, tmp_path: Path) -> None:
    out = written(tmp_path, incident(), overview())
    said = program("diff", out / "report.json", out)
    assert said.code == 2 and "the overview of all incidents, expected an incident-N.json" in said.err
