"""The disk of one member's journal has a fault: nothing confirmed is lost, and the others go on."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from demo.cluster import Cluster as Managed
from qpidd_py.errors import EXIT_DISK
from qpidd_py.store.disk import Folder
from qpidd_py.store.layout import MARK, decode_mark
from qpidd_py.store.recovery import scan
from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.test_journals import PERSISTENT, Publisher, bodies, kill_all, publish, start_again
from tests.support.wait import wait_for, wait_logged

SOURCE = Path(__file__).with_name("disk_faults.c")


class OnFaultyDisk(Member):
    """Its journal has the faults that its folder has files for (`disk_faults.c`)."""

    library: Path

    @property
    def faults(self) -> Path:
        return self.directory / f"{self.name}-faults"

    def spawn(self) -> OnFaultyDisk:
        self.faults.mkdir(exist_ok=True)
        environment = {**os.environ, "LD_PRELOAD": str(self.library), "FAULTS": str(self.faults)}
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=environment)
        return self

    def fault(self, name: str) -> None:
        (self.faults / name).touch()

    def mend(self) -> None:
        for path in self.faults.iterdir():
            path.unlink()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("library") / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[Cluster]:
    """Three brokers on disks that may fail."""
    made = Cluster(
        tmp_path_factory.mktemp("faults"), journal="yes", journal_segment_size="1M", ha_slow_backup_timeout="2"
    )
    for member in made.members:
        member.__class__ = OnFaultyDisk
        member.library = library  # type: ignore[attr-defined]
    with made.start():
        yield made


@pytest.fixture
def cluster(brokers: Cluster) -> Iterator[Cluster]:
    """All of them are there, with no message."""
    with brokers.channel() as channel:
        channel.queue_delete("orders")
    yield brokers
    for member in brokers.members:
        faulty(member).mend()
        if not member.running:
            member.spawn()
    brokers.settle()


def faulty(member: Member) -> OnFaultyDisk:
    assert isinstance(member, OnFaultyDisk)
    return member


def assert_there(cluster: Cluster, confirmed: list[int]) -> None:
    assert set(cluster.primary.peek("orders")) >= {f"{number:06d}" for number in confirmed}


@pytest.mark.parametrize("fault", ["sync-eio", "read-only", "hang"])
def test_a_primary_whose_disk_fails_ends_and_another_takes_its_place(cluster: Cluster, fault: str) -> None:
    publish(cluster, "orders", range(0))
    old = faulty(cluster.primary)
    publisher = Publisher(old, 0)
    wait_for(lambda: len(publisher.confirmed) > 20, 60, "messages are confirmed")
    old.fault(fault)
    assert old.wait(30) == EXIT_DISK, old.log
    publisher.join()
    first_promotable([member for member in cluster.members if member is not old])
    publish(cluster, "orders", range(100_000, 100_005))
    old.mend()
    old.spawn()
    cluster.settle()
    confirmed = [*publisher.confirmed, *range(100_000, 100_005)]
    assert_there(cluster, confirmed)
    if fault == "sync-eio":
        kill_all(cluster)
        start_again(cluster)
        assert_there(cluster, confirmed)


@pytest.mark.parametrize("fault", ["sync-eio", "read-only", "hang"])
def test_a_backup_whose_disk_fails_ends_and_the_others_go_on(cluster: Cluster, fault: str) -> None:
    publish(cluster, "orders", range(20))
    backup = faulty(cluster.backups[0])
    backup.fault(fault)
    publish(cluster, "orders", range(20, 40))
    assert backup.wait(30) == EXIT_DISK, backup.log
    wait_logged(backup, "others can do without this broker" if fault == "hang" else "cannot be written")
    backup.mend()
    backup.spawn()
    cluster.settle()
    assert backup.peek("orders") == bodies(range(40))


@pytest.mark.parametrize("which", ["primary", "backup"])
def test_publishers_wait_for_a_full_disk_and_go_on_by_themselves(cluster: Cluster, which: str) -> None:
    publish(cluster, "orders", range(20))
    primary, member = cluster.primary, faulty(cluster.primary if which == "primary" else cluster.backups[0])
    told: list[str] = []
    with primary.connect() as connection:
        connection._impl.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
        connection._impl.add_on_connection_unblocked_callback(lambda *_: told.append(""))
        channel = connection.channel()
        member.fault("full")
        channel._impl.basic_publish("", "orders", b"000020", PERSISTENT)

        def reason() -> str:
            connection.process_data_events(0.01)
            return told[-1] if told else ""

        wait_for(lambda: "disk of the journal is full" in reason(), 60, lambda: str(told))
        assert list(member.ask("ha.status")["alarms"]) == ["journal"]
        member.mend()
        wait_for(lambda: not reason(), 60, lambda: str(told))
    publish(cluster, "orders", range(21, 25))
    assert all(broker.running for broker in cluster.members)
    assert not member.ask("ha.status")["alarms"]
    assert_there(cluster, [*range(20), *range(21, 25)])


def test_a_slow_disk_of_a_backup_slows_confirms_and_loses_no_client(cluster: Cluster) -> None:
    publish(cluster, "orders", range(1))
    faulty(cluster.backups[0]).fault("slow")
    began = time.monotonic()
    publish(cluster, "orders", range(1, 11))
    assert time.monotonic() - began > 10 * 0.2, "each waits for the slow disk"
    publisher = Publisher(cluster.primary, 11)
    wait_for(lambda: len(publisher.confirmed) > 10, 60, "messages are confirmed")
    assert len(cluster.primary.ask("ha.query")["in_sync"]["members"]) == 3
    faulty(cluster.backups[0]).mend()
    publisher.join(30)


def test_a_journal_that_cannot_be_read_is_set_aside_and_the_backup_copies_everything(cluster: Cluster) -> None:
    publish(cluster, "orders", range(30))
    backup = faulty(cluster.backups[0])
    backup.kill()
    backup.fault("read-eio")
    backup.spawn()
    cluster.settle()
    wait_logged(backup, "the journal is damaged: a part of it cannot be read")
    assert list(backup.data_dir.glob("journal.damaged-*"))
    assert backup.peek("orders") == bodies(range(30))


def marked(journal: Path) -> bool:
    """Its mark says that all of it is on disk."""
    return (journal / MARK).exists() and decode_mark((journal / MARK).read_bytes()) == scan(Folder(journal)).end.number


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_rot_in_the_last_frames_of_a_quiet_backup_is_found(cluster: Cluster, end: str) -> None:
    """Nothing behind them proves that they were on disk, but the mark does."""
    publish(cluster, "orders", range(30))
    backup = cluster.backups[0]
    segments = backup.data_dir / "journal"
    wait_for(lambda: marked(segments), 60, "a mark of its end")
    backup.stop() if end == "stop" else backup.kill()
    segment = max(segments.glob("*.journal"))
    octets = segment.read_bytes()
    at = octets.rindex(b"000029")
    segment.write_bytes(octets[:at] + b"x" + octets[at + 1 :])
    backup.spawn()
    cluster.settle()
    wait_logged(backup, "says the mark")
    assert backup.peek("orders") == bodies(range(30))


class Producer(threading.Thread):
    """Publishes one message after the other, until the broker closes."""

    def __init__(self, address: str) -> None:
        super().__init__(name="producer", daemon=True)
        self._address = address
        self.confirmed: list[bytes] = []
        self.start()

    def run(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError), connected(self._address) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            for number in itertools.count():
                channel.basic_publish("", "orders", b"%06d" % number, PERSISTENT, mandatory=True)
                self.confirmed.append(b"%06d" % number)


def connected(address: str) -> pika.BlockingConnection:
    host, _, port = address.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def test_the_manager_replaces_a_primary_whose_disk_hangs(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`qpid-cluster` looks at the score.  The process would not end by itself before 16 s have passed."""
    monkeypatch.setenv("LD_PRELOAD", str(library))
    managed = Managed(tmp_path, ("journal: yes", "journal-segment-size: 1M", "ha-slow-backup-timeout: 8"))
    try:
        managed.up(60)
        old = managed.node("node1")
        producer = Producer(old["address"])
        wait_for(lambda: len(producer.confirmed) > 20, 60, "messages are confirmed")
        faults = tmp_path / "node1" / "faults"
        faults.mkdir()
        (faults / "hang").touch()
        wait_for(lambda: managed.primary not in ("", "node1"), 60, "another primary")
        with connected(managed.node(managed.primary)["address"]) as connection:
            channel = connection.channel()
            found = {body for *_, body in iter(lambda: channel.basic_get("orders"), (None, None, None))}
        producer.join(60)
        assert found >= set(producer.confirmed)
        assert "is to take over: node1 has score" in (tmp_path / "supervisor.log").read_text()
    finally:
        managed.down()
