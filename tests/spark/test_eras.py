"""Which days of a cluster belong together."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.jobs.eras import Era, eras, waves
from spark_jobs.schema import day


def file(name: str, first: int | None, last: int | None = None, *procs: str, cluster: str = "c") -> dict[str, Any]:
    """Days of January."""
    days = (None, None) if first is None else (f"2026-01-{first:02d}", f"2026-01-{last or first:02d}")
    return {"file": name, "cluster": cluster, "first": days[0], "last": days[1], "procs": procs}


def found(*files: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [(era.cluster, era.first[8:], era.last[8:], "".join(sorted(era.files))) for era in eras(files)]


def test_days_belong_together_if_a_file_or_a_process_is_of_both() -> None:
    assert found(file("a", 1), file("b", 3), file("d", 3, 4), file("e", 6)) == [
        ("c", "01", "01", "a"), ("c", "03", "04", "bd"), ("c", "06", "06", "e")
    ]  # fmt: skip
    assert found(file("a", 1), file("b", 2)) == [("c", "01", "02", "ab")], "what was dead at midnight is one outage"
    assert found(file("a", 1, 1, "p"), file("b", 2), file("d", 4, 4, "p", "q"), file("e", 6, 6, "q")) == [
        ("c", "01", "06", "abde")
    ]
    assert found(file("a", 1, 1, "p"), file("b", 2, 2, "p", cluster="d")) == [
        ("c", "01", "01", "a"), ("d", "02", "02", "b")
    ]  # fmt: skip


def test_a_file_without_any_time_belongs_to_the_last_era() -> None:
    assert found(file("a", 1), file("b", 3), file("x", None)) == [("c", "01", "01", "a"), ("c", "03", "03", "bx")]
    assert found(file("x", None)) == [("c", "", "", "x")]
    assert day(1_780_271_999_999_999) == "2026-05-31" and day(1_780_272_000_000_000) == "2026-06-01"


FILES = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5), st.sets(st.sampled_from("pqrst"), max_size=2)))


@given(FILES)
def test_between_two_eras_nothing_lived(given_files: list[tuple[int, int, set[str]]]) -> None:
    files = [file(f"{n}.", begin, begin + more, *procs) for n, (begin, more, procs) in enumerate(given_files)]
    made = eras(files)
    assert sorted(name for era in made for name in era.files) == sorted(row["file"] for row in files)
    assert all(one.last < other.first for one, other in pairwise(made))
    of = {name: era for era in made for name in era.files}
    for row in files:
        assert of[row["file"]].first <= row["first"] and row["last"] <= of[row["file"]].last
        assert all(of[other["file"]] == of[row["file"]] for other in files if set(other["procs"]) & set(row["procs"]))


def test_at_once_goes_one_of_each_cluster() -> None:
    a1, a2, b1 = Era("a", "1", "1"), Era("a", "2", "2"), Era("b", "1", "1")
    assert waves([a1, a2, b1]) == [(a1, b1), (a2,)] and waves([]) == []
