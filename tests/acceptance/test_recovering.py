"""A broker that reads its journal says so: it is alive, takes part in nothing, and refuses clients."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from ha.qpid_ha.main import main as qpid_ha
from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.cli.qpid_metrics import main as qpid_metrics
from qpidd_py.doorman import RECOVERING_JOURNAL
from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.test_disk_faults import OnFaultyDisk, faulty, library
from tests.acceptance.test_journals import bodies, kill_all, publish
from tests.support.wait import wait_for, wait_logged

__all__ = ["library"]

SEGMENTS = 12
"""Of the journals, at least, so that there is a progress."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Cluster]:
    """Three brokers whose journals have some segments."""
    made = Cluster(tmp_path_factory.mktemp("reading"), journal="yes", journal_segment_size="1M", ha_safety="manager")
    for member in made.members:
        member.__class__ = OnFaultyDisk
        member.library = library  # type: ignore[attr-defined]
    with made.start():
        publish(made, "orders", range(100))
        with made.channel() as channel:
            channel.queue_declare("large", durable=True)
            for _ in range(SEGMENTS * 10):
                persistent = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", "large", bytes(100_000), persistent, mandatory=True)
        yield made


@pytest.fixture
def cluster(brokers: Cluster) -> Iterator[Cluster]:
    yield brokers
    for member in brokers.members:
        faulty(member).mend()
    brokers.ready()


def reads(member: Member, fault: str) -> OnFaultyDisk:
    """It is started, and reads its journal as slowly as the fault says."""
    found = faulty(member)
    found.faults.mkdir(exist_ok=True)
    found.fault(fault)
    found.spawn()
    wait_for(lambda: found.status == RECOVERING_JOURNAL, 30, lambda: f"{found.status}\n{found.log}")
    return found


def test_a_backup_says_that_it_reads_and_takes_part_in_nothing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = cluster.backups[0]
    backup.kill()
    backup = reads(backup, "hold-read")

    assert qpid_ha(["status", "-v", "-b", backup.address]) == 0
    assert "recovering-journal" in capsys.readouterr().out
    assert qpid_ha(["status", "--expect", "recovering-journal", "-b", backup.address]) == 0
    assert qpid_ha(["status", "--is-primary", "-b", backup.address]) == 1
    assert qpid_ha(["query", "-v", "-b", backup.address]) == 0
    assert qpid_ha(["status", "--all", "-v", "-b", backup.address]) == 0
    assert "segments" in capsys.readouterr().out
    assert qpid_metrics(["--once", "-b", backup.address]) == 0
    assert "qpidd_up 0.0" in capsys.readouterr().out
    again = subprocess.run(backup.command(), capture_output=True, text=True, timeout=60, check=False)
    assert (again.returncode, "is locked by the running process" in again.stderr) == (1, True), again
    for method in ("ha.promote", "ha.demote", "ha.relocate", "ha.backup"):
        with pytest.raises(RequestRefused, match="recovering-journal and takes part in nothing yet; it is reading"):
            backup.ask(method)
    with pytest.raises(RequestRefused, match=r"queue.delete: node. is reading its journal"):
        backup.ask("queue.delete", queue="orders")
    with pytest.raises(RequestRefused, match="is reading its journal"):
        backup.ask("queue.list")
    with pytest.raises(pika.exceptions.AMQPConnectionError, match="is reading its journal"):
        backup.connect()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        backup.connect(credentials=pika.PlainCredentials("guest", "wrong"))
    with backup.channel(admin=True, confirm=False) as channel, pytest.raises(pika.exceptions.ChannelClosed):
        channel.queue_delete("orders")
        channel.queue_declare("orders", durable=True, arguments={"qpid.replicate": "all"})
    with cluster.library() as connection:  # an address list goes on to the next
        assert connection.opened()
    publish(cluster, "orders", range(100, 110))

    backup.fault("slow-read")
    (backup.faults / "hold-read").unlink()
    seen: list[dict[str, Any]] = []

    def progress() -> bool:
        with contextlib.suppress(OSError, RequestRefused):
            found = backup.ask("ha.status")
            seen.extend([found["journal"]] if "journal" in found else [])
        return len({(each["step"], each["done"]) for each in seen}) > 2

    wait_for(progress, 60, lambda: f"progress: {seen}")
    assert any(each["rate"] > 0 and each["remaining"] is not None and each["of"] > 3 for each in seen), seen
    backup.mend()
    cluster.settle()
    wait_logged(backup, "the journal is read")
    assert backup.peek("orders") == bodies(range(110))
    with cluster.channel() as channel:
        channel.queue_purge("orders")
    publish(cluster, "orders", range(100))


def test_nobody_is_promoted_by_what_a_reading_broker_does_not_say(cluster: Cluster) -> None:
    """All have died: of three the one that may hold more is neither dead nor a candidate."""
    kill_all(cluster)
    first, second, third = cluster.members
    reads(third, "hold-read")
    reads(second, "hold-read")
    first.spawn()
    wait_for(lambda: first.status == "joining", 60, lambda: first.log)
    with pytest.raises(RequestRefused, match="cannot be promoted"):
        first.promote_once()
    with pytest.raises(RequestRefused, match="recovering-journal"):
        third.promote_once()
    with pytest.raises(RequestRefused, match="recovering-journal"):
        third.promote_once(force=True)
    faulty(second).mend()
    faulty(third).mend()
    first_promotable(cluster.members)
    cluster.settle()
    assert cluster.primary.peek("orders") == bodies(range(100))


def test_a_stop_while_it_reads_is_clean_and_changes_nothing(cluster: Cluster) -> None:
    backup = cluster.backups[0]
    backup.kill()
    before = {path.name: path.read_bytes() for path in (backup.data_dir / "journal").glob("*")}
    backup = reads(backup, "slow-read")
    backup.process.send_signal(signal.SIGHUP)
    backup.process.send_signal(signal.SIGTERM)
    assert backup.wait(10) == 0, backup.log
    assert not (backup.data_dir / "lock").exists()
    assert {path.name: path.read_bytes() for path in (backup.data_dir / "journal").glob("*")} == before
    backup.mend()
    backup.spawn()
    cluster.settle()
