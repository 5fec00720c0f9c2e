"""Which tests share a worker of pytest-xdist (tests/support/parallel.py)."""

from __future__ import annotations

import pytest

from tests.support.parallel import FIRST, LAST, RABBIT, ROOT, SPARK, TOGETHER, GroupsOfFiles, group, rank
from tests.support.slow import ALL, few, mostly_slow


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("tests/unit/test_a.py::test_b", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::TestB::test_c[d::1]", "tests/unit/test_a.py"),
        ("tests/faults/test_soak.py::test_a_few_failovers", "faults"),
        ("tests/faults/test_judge.py::test_acquits", "faults"),
        ("tests/spark/test_groups.py::test_no_logs_at_all[duck]", SPARK),
        ("tests/spark/test_engine_both.py::test_x", SPARK),
        ("tests/simulator/test_found.py::test_it[a::b]", "tests/simulator/test_found.py::test_it[a::b]"),
        ("tests/integration/test_qpid_send_receive.py::test_replies", RABBIT),
        ("tests/spark/test_order.py::test_circles_are_cut_and_told", "tests/spark/test_order.py"),
    ],
)
def test_a_file_or_a_group_stays_together(nodeid: str, scope: str) -> None:
    assert GroupsOfFiles.__new__(GroupsOfFiles)._split_scope(nodeid) == scope


def test_the_folders_are_there() -> None:
    assert all((ROOT / "tests" / folder).is_dir() for folder in {*FIRST, *TOGETHER, LAST} - {SPARK, RABBIT})


def test_what_takes_long_comes_first_and_what_can_be_anywhere_last() -> None:
    files = [
        "tests/simulator/test_found.py",
        "tests/unit/test_parallel.py",
        "tests/agents/test_ocf_held.py",
        "tests/spark/test_groups.py",
    ]
    assert sorted(files, key=rank) == files[::-1]


def test_a_file_with_the_session_of_spark_is_known_by_its_arguments() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/spark").glob("test_*.py")]
    assert 8 < sum(group(file) == SPARK for file in files) < len(files) / 2


def test_one_without_spark_unless_it_is_slow_is_in_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "tests/spark/test_jepsen_vectors.py"
    found = []
    for variables in ({}, {ALL: "1"}):
        monkeypatch.delenv(ALL, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found.append(group.__wrapped__(file))
    assert found == [file, SPARK]


def test_a_third_unless_all_tests_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL, raising=False)
    assert [few(number) for number in (1, 3, 4, 100)] == [1, 1, 2, 34]
    monkeypatch.setenv(ALL, "1")
    assert few(100) == 100


def test_all_but_the_first_are_slow() -> None:
    first, *others = mostly_slow(range(3), 1)
    assert first == 0
    assert [each.values for each in others] == [(1,), (2,)]
    assert all([mark.name for mark in each.marks] == ["slow"] for each in others)
