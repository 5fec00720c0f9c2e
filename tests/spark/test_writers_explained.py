"""What a real broker writes about messages that were not consumed, as the real jobs judge it: explained, not lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_lib import Connection, Message
from spark_jobs import pipeline
from spark_jobs.engine.duckdb_engine import DuckEngine
from spark_jobs.workspace import Workspace
from tests.spark.messages_judge import Summary, judge
from tests.spark.test_writers_contract import ROOT, check, promote, segments
from tests.support import programs
from tests.support.process import BrokerProcess, HeldPort
from tests.support.wait import wait_for

FATES = {"expire": 20, "drop": 20, "purge": 14, "dead_letter": 5, "queue_dump": 5}
"""Of the messages that are sent below."""


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A broker and a client: in each queue something else becomes of the messages, and no client takes any."""
    directory = tmp_path_factory.mktemp("explained")
    held = HeldPort()
    options = ["--ha-cluster", "yes", "--ha-brokers-url", f"127.0.0.1:{held.port}", "--ha-replicate", "all"]
    options += ["--ha-promote-on-shutdown", "always", "--ha-cluster-name", "prod"]
    broker = BrokerProcess(directory, *options, name="n1", port=held.port)
    try:
        broker.start()
        promote(broker)
        send_everything(broker, directory / "clients")
        dumped = programs.run(
            [sys.executable, "-m", "ha.qpid_ha.main", "dump", "-b", broker.address],
            cwd=ROOT, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert dumped.stdout == "10 messages in 5 queues\n", dumped.stderr
        broker.stop()
        yield directory
    finally:
        broker.close()
        held.release()


QUEUES: dict[str, dict[str, Any]] = {
    "short": {"x-message-ttl": 30},
    "ring": {"x-max-length": 5},
    "purged": {},
    "gone": {},
    "dying": {"x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"},
    "letters": {},
}


def send_everything(broker: BrokerProcess, directory: Path) -> None:
    directory.mkdir()
    with Connection(broker.address, client_id="app", event_log=str(directory), cluster="prod") as connection:
        session = connection.session()
        for queue, arguments in QUEUES.items():
            session.declare_queue(queue, durable=True, arguments=arguments)
        sent = {"short": 20, "ring": 25, "purged": 10, "gone": 4, "dying": 5}
        for queue, count in sent.items():
            sender = session.sender(queue)
            for number in range(1, count + 1):
                sender.send(Message(b"x", id=f"{queue}:{number}"), sync=False)
            sender.sync()
        assert session.purge_queue("purged") == 10
        session.delete_queue("gone")
        events = broker.data_dir / "events"
        wait_for(lambda: sum(told(events, "expire")) == 20 and sum(told(events, "dead_letter")) == 5)


def told(directory: Path, kind: str) -> list[int]:
    """How many messages each row of a kind stands for."""
    rows, _ = segments(directory)
    return [int(row["attrs"]["count"]) for row in rows if row["kind"] == kind]


def rows_of(directory: Path) -> list[dict[str, Any]]:
    rows, tally = segments(directory)
    check(rows, tally)
    return rows


def test_the_rows_name_each_message_with_its_place(left_behind: Path) -> None:
    rows = [row for row in rows_of(left_behind) if row["kind"] in FATES and row.get("msg_id")]
    for kind, fate in FATES.items():
        ids = {(row["producer"], n) for row in rows if row["kind"] == kind
               for n in range(row["pub_first"], row["pub_last"] + 1)}  # fmt: skip
        assert len(ids) == fate + 5 * (kind == "queue_dump"), kind  # what lies with the letters is in a queue, too
    assert all(0 < row["first_pos"] <= row["last_pos"] and row["queue"] in QUEUES for row in rows)
    reasons = {(row["kind"], row["reason"]) for row in rows if row["kind"] != "queue_dump"}
    assert reasons == {
        ("expire", "expired"), ("drop", "maxlen"), ("purge", "purged"), ("purge", "deleted"), ("dead_letter", "maxlen")
    }  # fmt: skip


def test_a_dump_on_request_and_one_at_the_end(left_behind: Path) -> None:
    rows = [row for row in rows_of(left_behind) if row["kind"] == "queue_dump"]
    heads = [row for row in rows if not row.get("msg_id")]
    assert [row["reason"] for row in heads] == ["request"] * 5 + ["stop"] * 5
    assert len({row["attrs"]["dump"] for row in rows}) == 2
    totals = {row["queue"]: (row["attrs"]["total"], row["attrs"]["count"]) for row in heads[5:]}
    empty = dict.fromkeys(("short", "purged", "dying"), ("0", "0"))
    assert totals == {"ring": ("5", "0"), "letters": ("5", "0"), **empty}


def judged(rows: list[dict[str, Any]], drained: bool | None) -> Summary:
    summary = judge(rows, drained)
    assert (summary.attempts, summary.confirmed, summary.ok) == (64, 64, 0)
    return summary


def test_no_message_is_lost(left_behind: Path) -> None:
    summary = judged(rows_of(left_behind), None)
    assert (summary.causes, summary.lost, summary.unaccounted) == (FATES, 0, 0)


def test_only_the_brokers_rows_say_so(left_behind: Path) -> None:
    rows = rows_of(left_behind)
    assert judged([row for row in rows if row["source"] == "client"], True).lost == 64
    # if the queues were drained afterwards, what had been in them then must have come
    assert judged(rows, True).lost == FATES["queue_dump"]


def test_the_jobs_say_the_same(left_behind: Path, tmp_path: Path) -> None:
    engine, workspace = DuckEngine(threads=1), Workspace(str(tmp_path / "work"))
    failures = pipeline.run(engine, workspace, [str(left_behind)])
    assert not failures
    workspace.load(engine, "message_summary")
    names = "explained", "lost", "unaccounted", "unexpected"
    sums = ", ".join(f"cast(sum({name}) as bigint) as {name}" for name in names)
    assert engine.rows(f"select {sums} from message_summary") == [dict(zip(names, (64, 0, 0, 0), strict=True))]
