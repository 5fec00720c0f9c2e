"""A removal that only a deposed primary has decided explains nothing: rule, reference, Spark and DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_jobs.cli.life import LifeMoment, did
from spark_jobs.engine.base import Engine
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.engine.spark import SparkEngine
from spark_jobs.messages import job as messages
from spark_jobs.messages.survivors import Undone, undone
from spark_jobs.options import Options
from spark_jobs.workspace import Workspace
from tests.spark.messages_judge import Judge
from tests.spark.sql_histories import T0, Row, write


def at(epoch: int, sequence: int) -> int:
    return (epoch << 48) + sequence


def promoted(epoch: int, base: int = 0) -> Row:
    attrs = {"base": str(base)} if base else {}
    return {"source": "broker", "kind": "promoted", "term": epoch, "attrs": attrs, "node": f"b{epoch}"}


# ---- the rule


def test_an_epoch_survives_up_to_the_base_of_the_next() -> None:
    assert undone([promoted(1), promoted(2, at(1, 100))]) == [Undone(1, at(1, 100))]


def test_an_epoch_that_no_later_one_has_heard_of_did_not_happen() -> None:
    """2 was begun by a broker whose log is missing; 3 goes on from 1."""
    rows = [promoted(3, at(1, 120)), promoted(2, at(1, 100)), promoted(1)]
    assert undone(rows) == [Undone(1, at(1, 120)), Undone(2, 0)]


def test_what_is_older_than_a_promotion_that_was_not_whole_is_not_judged() -> None:
    assert undone([promoted(1), promoted(2), promoted(3, at(2, 50))]) == [Undone(2, at(2, 50))]
    assert undone([promoted(1), promoted(2, at(1, 7)), promoted(2, at(1, 8))]) == []
    assert undone([]) == undone([promoted(1)]) == []


@pytest.mark.parametrize(
    ("attrs", "happened"),
    [
        ({"at": at(1, 100)}, True),
        ({"at": at(1, 101)}, False),
        ({"at": at(1, 180), "since": at(1, 99)}, True),
        ({"at": at(1, 180), "since": at(1, 100)}, False),
        ({}, True),
        ({"at": "x"}, True),
    ],
)
def test_a_row_counts_unless_all_of_it_lies_beyond(attrs: dict[str, object], happened: bool) -> None:
    """A batch is taken over as a whole; what was gathered lies between two positions."""
    row = {"kind": "drop", "term": 1, "attrs": {name: str(value) for name, value in attrs.items()}}
    assert Undone(1, at(1, 100)).has(row) != happened
    assert not Undone(2, at(1, 100)).has(row)
    assert not Undone(1, at(1, 100)).has({**row, "kind": "queue_dump"})


def test_the_life_of_a_message_says_it() -> None:
    row = {"kind": "drop", "term": 1, "queue": "q", "attrs": {"at": str(at(1, 101))}}
    gone = [Undone(1, at(1, 100))]
    assert did(LifeMoment(0, 0, 0, row)) == "removes it from q: the queue was full"
    assert did(LifeMoment(0, 0, 0, row), gone).endswith("full (no later primary has heard of it)")


# ---- a planted history: m1 to m3 are confirmed and no client gets them


def client(name: str, *rows: Row) -> list[Row]:
    common: Row = {"source": "client", "proc": name, "client_id": name, "node": "h1", "queue": "q"}
    return [{**common, "seq": number, "ts_wall": T0 + number, **row} for number, row in enumerate(rows, 1)]


def about(kind: str, number: int) -> Row:
    return {"kind": kind, "producer": "m", "pub_first": number, "pub_last": number}


def history(kind: str, **first: Any) -> list[Row]:
    """The first one was removed safely, the second by a primary that was deposed already, the third by no broker."""
    removals = [
        {**about(kind, number), "source": "broker", "queue": "q", "term": 1, "attrs": {"at": str(position)}}
        for number, position in ((1, at(1, 100)), (2, at(1, 101)))
    ]
    brokers = [promoted(1), *removals, promoted(2, at(1, 100))]
    rows = client("p", *(about(say, n) for n in (1, 2, 3) for say in ("publish", "confirm")), {"kind": "log_end"})
    rows += client(
        "c", {**about("deliver", 9), **first}, {"kind": "drain_end", "result": "ok", "ts_wall": T0 + 99},
        {"kind": "log_end"},
    )  # fmt: skip
    rows += [{**row, "node": "b1", "proc": "b1", "ts_wall": T0 + n, "seq": n} for n, row in enumerate(brokers, 1)]
    return [{**row, "cluster": "it's"} for row in rows]


WANTED = [(1, "explained"), (2, "lost"), (3, "lost"), (9, "unexpected")]
KINDS = pytest.mark.parametrize("kind", ["drop", "expire", "purge", "dead_letter"])


def by_engine(engine: Engine, place: Path, rows: list[Row]) -> list[tuple[int, str]]:
    workspace = Workspace(str(place / "ws"))
    write(rows, Path(workspace.path("events_raw")))
    messages.run(engine, workspace, Options())
    return sorted((row["pub"], row["verdict"]) for row in engine.rows("select pub, verdict from message_verdicts"))


@KINDS
def test_reference(kind: str) -> None:
    rows = history(kind)
    judge = Judge(undone=undone(row for row in rows if row["kind"] == "promoted")).add(rows)
    assert [(verdict.number, verdict.verdict) for verdict in judge.verdicts()] == WANTED


@KINDS
def test_duckdb(kind: str, duck: DuckEngine, tmp_path: Path) -> None:
    assert by_engine(duck, tmp_path, history(kind)) == WANTED


def test_spark(spark: SparkEngine, tmp_path: Path) -> None:
    assert by_engine(spark, tmp_path, history("drop")) == WANTED


@KINDS
def test_without_the_rule_the_loss_is_explained(kind: str) -> None:
    found = [(verdict.number, verdict.verdict) for verdict in Judge().add(history(kind)).verdicts()]
    assert (found, found[1]) != (WANTED, WANTED[1])
    assert found[1] == (2, "explained")
