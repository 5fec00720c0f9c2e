"""Power loss: three brokers with journals die at once under load, and `failover-report` says what their disks had."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from client_lib import Connection
from client_lib.errors import Empty
from spark_jobs.cli.main import main as failover_report
from tests.acceptance.cluster import Cluster
from tests.acceptance.test_journals import kill_all, start_again
from tests.support.wait import wait_for


def under_load(cluster: Cluster, log: Path) -> None:
    """All die while a producer of the client library sends; it goes on when they are back, and all is taken."""
    options: dict[str, Any] = {"heartbeat": 1, "connect_timeout": 2.0, "reconnect": True, "event_log": log}
    with Connection(cluster.url, **options).open(20) as connection:
        session = connection.session()
        sender = session.sender("orders; {create: always, node: {durable: true}}")
        stop, sent = threading.Event(), [0]

        def send() -> None:
            while not stop.is_set():
                sender.send(f"{sent[0]}")
                sent[0] += 1

        thread = threading.Thread(target=send)
        thread.start()
        wait_for(lambda: sent[0] > 100, 60, "messages are sent")
        kill_all(cluster)
        start_again(cluster)
        before = sent[0]
        wait_for(lambda: sent[0] > before + 20, 60, "it goes on")
        stop.set()
        thread.join()
        sender.sync()
        receiver = session.receiver("orders", capacity=100)
        with contextlib.suppress(Empty):
            while True:
                receiver.fetch(timeout=1)
                session.acknowledge()
        session.sync()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("power")
    with Cluster(folder, journal="yes", ha_safety="quorum").start() as cluster:
        under_load(cluster, folder / "clients")
        for member in cluster.members:
            (folder / "logs" / member.name).mkdir(parents=True)
            (member.data_dir / "events").rename(folder / "logs" / member.name / "events")
        (folder / "clients").rename(folder / "logs" / "clients")
    return folder / "logs"


def report(logs: Path, out: Path) -> dict[str, Any]:
    assert failover_report(["report", str(logs), "-o", str(out), "--engine", "duckdb", "--no-progress"]) == 0
    found: dict[str, Any] = json.loads((out / "incident-1.json").read_text())
    return found


def test_the_report_says_what_each_disk_brought_back(logs: Path, tmp_path: Path) -> None:
    found = report(logs, tmp_path / "out")
    about = found["incident"]
    assert (about["type"], about["promotions"]) == ("power-loss", 1), about
    told = [hint["text"] for hint in found["hints"] if hint["rule"] == "journals"]
    for node in ("node1", "node2", "node3"):
        assert any(text.startswith(f"{node}: ") and "all that it had acknowledged" in text for text in told), told
    assert any("nothing that was confirmed on its disk is missing" in text for text in told), told
    assert not any("no log says" in text for text in told)
    known = {phase["phase"]: phase for phase in found["phases"] if phase["known"]}
    assert known.keys() >= {"fault", "detection", "recovering", "redundancy", "all_clients"}
    assert known["detection"]["note"] == "until the last journal was read"
    assert (about["total_us"] or 0) > 2e5, "from the last sign of life"
    assert any("messages" in text and "unaccounted" not in text for text in found["words"]), found["words"]
    assert "came back with their journals" in found["words"][0]
    assert "power loss" in (tmp_path / "out" / "report.md").read_text()
