"""Jepsen's vectors and its formulas: the small reference, and the SQL on both engines, say the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.messages import job as messages
from spark_jobs.options import Options
from spark_jobs.workspace import Workspace
from tests.spark.jepsen import VECTORS, Op, rows, total_queue
from tests.spark.messages_judge import KNOWN, Judge
from tests.spark.sql_histories import witnessed, write

Said = dict[str, Any]
SUMS = ("attempts", "confirmed", "ok")
PARTS = ("lost", "unexpected", "duplicated", "recovered")


def possible(history: list[Op]) -> list[Op]:
    """Without confirms beyond the attempts: a broker that confirms what was not sent is no case of Jepsen's, and a
    second confirm of one attempt is the same fact for us."""
    left = Counter(value for type_, f, value in history if (type_, f) == ("invoke", "enqueue"))
    kept: list[Op] = []
    for type_, f, value in history:
        if (type_, f) == ("ok", "enqueue"):
            left[value] -= 1
            if left[value] < 0:
                continue
        kept.append((type_, f, value))
    return kept


OPS = st.lists(
    st.tuples(st.sampled_from(["invoke", "ok"]), st.sampled_from(["enqueue", "dequeue"]), st.sampled_from("abc")),
    max_size=14,
).map(possible)


def by_reference(history: list[Op]) -> Said:
    judge = Judge(brokers=KNOWN).add(rows(history))
    summary = judge.summary()
    parts: Said = {"valid": summary.valid, **{name: getattr(summary, name) for name in SUMS}}
    for name in PARTS:
        parts[name] = {
            verdict.producer.removeprefix("id-"): count
            for verdict in judge.verdicts()
            if (count := _count(name, verdict.verdict, verdict.missing, verdict.duplicates, verdict.recovered))
        }
    return {name: value for name, value in parts.items() if value}


def by_sql(engine: Engine, place: Path, histories: dict[str, list[Op]]) -> dict[str, Said]:
    """All of them at once, each a cluster of its own."""
    workspace = Workspace(str(place / "ws"))
    every = [row for name, history in histories.items() for row in witnessed(rows(history, name))]
    write(every, Path(workspace.path("events_raw")))
    messages.run(engine, workspace, Options())
    found: dict[str, Said] = {name: {"valid": True} for name in histories}
    sums = ", ".join(f"cast(sum({name}) as bigint) as {name}" for name in (*SUMS, "lost", "unexpected"))
    for row in engine.rows(f"select cluster, {sums} from message_summary group by cluster"):
        found[row["cluster"]] |= {name: row[name] for name in SUMS}
        found[row["cluster"]]["valid"] = not row["lost"] and not row["unexpected"]
    parts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for row in engine.rows("select cluster, producer, verdict, missing, duplicates, recovered from message_verdicts"):
        for name in PARTS:
            count = _count(name, row["verdict"], row["missing"], row["duplicates"], row["recovered"])
            if count:
                parts[row["cluster"], name][row["producer"].removeprefix("id-")] = count
    for (cluster, name), of in parts.items():
        found[cluster][name] = of
    return {cluster: {name: value for name, value in said.items() if value} for cluster, said in found.items()}


def _count(name: str, verdict: str, missing: int, duplicates: int, recovered: int) -> int:
    """A duplicate may be recovered as well, as in Jepsen's multisets."""
    if name == "recovered":
        return recovered
    return {"lost": missing, "unexpected": duplicates, "duplicated": duplicates}[name] if verdict == name else 0


@pytest.mark.parametrize("name", VECTORS)
def test_the_formulas_and_the_reference_pass_jepsens_own_test(name: str) -> None:
    history, wanted = VECTORS[name]
    expected = {part: value for part, value in wanted.items() if value}
    assert total_queue(history) == expected
    assert by_reference(history) == expected


def test_the_sql_passes_jepsens_own_test(engine: Engine, tmp_path: Path) -> None:
    found = by_sql(engine, tmp_path, {name: history for name, (history, _) in VECTORS.items()})
    assert found == {name: {part: of for part, of in wanted.items() if of} for name, (_, wanted) in VECTORS.items()}


def test_no_rows_at_all(engine: Engine, tmp_path: Path) -> None:
    """Jepsen's empty history, when it is all there is."""
    assert by_sql(engine, tmp_path, {"empty": []}) == {"empty": {"valid": True}}
    assert engine.rows("select * from message_verdicts") == []


@given(OPS)
@settings(max_examples=300, deadline=None)
def test_the_reference_is_jepsens_checker(history: list[Op]) -> None:
    assert by_reference(history) == total_queue(history)


@given(st.lists(OPS, min_size=20, max_size=60))
@settings(max_examples=3, deadline=None)
def test_the_sql_is_jepsens_checker(tmp_path_factory: pytest.TempPathFactory, histories: list[list[Op]]) -> None:
    duck = DuckEngine(threads=1)
    try:
        named = {f"k{number:02}": history for number, history in enumerate(histories)}
        found = by_sql(duck, tmp_path_factory.mktemp("jepsen"), named)
    finally:
        duck.close()
    assert found == {name: total_queue(history) for name, history in named.items()}
