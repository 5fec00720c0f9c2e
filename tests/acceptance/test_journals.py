"""Three brokers with journals: what was confirmed outlives all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.errors import EXIT_DISK
from tests.acceptance.clients import assert_browse_backup
from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.disks import SmallDisk, mountable
from tests.support.wait import wait_for, wait_logged

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(cluster: Cluster, queue: str, numbers: range) -> None:
    """Each is confirmed when this returns."""
    with cluster.channel() as channel:
        channel.queue_declare(queue, durable=True)
        for number in numbers:
            channel.basic_publish("", queue, b"%06d" % number, PERSISTENT, mandatory=True)


def bodies(numbers: range) -> list[str]:
    return [f"{number:06d}" for number in numbers]


def assert_everywhere(cluster: Cluster, expected: list[str]) -> None:
    for member in cluster.members:
        assert_browse_backup(member, "orders", expected)


def kill_all(cluster: Cluster) -> None:
    for member in cluster.members:
        member.kill()


def start_again(cluster: Cluster) -> Member:
    """All processes, and one is promoted; settled on return."""
    cluster.spawn()
    new = first_promotable(cluster.members)
    cluster.settle()
    return new


@pytest.mark.parametrize("safety", ["manager", "quorum", "availability"])
def test_a_total_failure_loses_nothing(tmp_path: Path, safety: str) -> None:
    with Cluster(tmp_path, journal="yes", journal_segment_size="1M", ha_safety=safety).start() as cluster:
        publish(cluster, "orders", range(300))
        kill_all(cluster)
        start_again(cluster)
        assert cluster.primary.peek("orders") == bodies(range(300))
        publish(cluster, "orders", range(300, 310))
        assert_everywhere(cluster, bodies(range(310)))
        kill_all(cluster)
        start_again(cluster)
        assert cluster.primary.peek("orders") == bodies(range(310))


def test_a_running_cluster_is_switched_over_member_by_member(tmp_path: Path) -> None:
    with Cluster(tmp_path).start() as cluster:
        publish(cluster, "orders", range(100))
        for member in [*cluster.members[1:], cluster.members[0]]:
            if member is cluster.members[0]:
                cluster.primary.ask("ha.relocate", timeout=20)
                cluster.settle()
            member.kill()
            member.options = (*member.options, "--journal", "yes")
            member.spawn()
            cluster.settle()
        publish(cluster, "orders", range(100, 120))
        wait_for(lambda: any("keeps a journal and" in member.log for member in cluster.members), what="the line")
        kill_all(cluster)
        start_again(cluster)
        assert cluster.primary.peek("orders") == bodies(range(120))


MOST = 300
"""Messages of a publisher: all that wait fit into one answer (`cluster.PEEK`)."""


class Publisher(threading.Thread):
    """Publishes one message after the other, until there are enough or its broker is gone."""

    def __init__(self, member: Member, first: int, size: int = 0) -> None:
        super().__init__(name="publisher", daemon=True)
        self._member = member
        self._first = first
        self._rest = bytes(size)
        self.confirmed: list[int] = []
        self.start()

    def run(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError), self._member.channel() as channel:
            for number in range(self._first, self._first + MOST):
                channel.basic_publish("", "orders", b"%06d" % number + self._rest, PERSISTENT, mandatory=True)
                self.confirmed.append(number)


@pytest.mark.parametrize("safety", ["manager", "quorum"])
def test_all_are_killed_in_the_middle_of_the_work(tmp_path: Path, safety: str) -> None:
    with Cluster(tmp_path, journal="yes", journal_segment_size="1M", ha_safety=safety).start() as cluster:
        publish(cluster, "orders", range(0))
        confirmed: list[int] = []
        for turn in range(3):
            publisher = Publisher(cluster.primary, 100_000 * turn)
            wait_for(lambda: len(publisher.confirmed) > 50, 60, "messages are confirmed")  # noqa: B023
            kill_all(cluster)
            publisher.join()
            confirmed += publisher.confirmed
            start_again(cluster)
            found = cluster.primary.peek("orders")
            assert set(found) >= {f"{number:06d}" for number in confirmed}
            assert found == sorted(set(found)), "each once, in order"
            assert_everywhere(cluster, found)


def test_a_restarted_backup_gets_the_difference_only(tmp_path: Path) -> None:
    with Cluster(tmp_path, journal="yes").start() as cluster:
        publish(cluster, "orders", range(500))
        backup = cluster.members[2]
        backup.kill()
        publish(cluster, "orders", range(500, 510))
        backup.spawn()
        cluster.settle()
        assert backup.peek("orders") == bodies(range(510))
        octets = [int(event["attrs"].get("octets", 0)) for event in cluster.primary.events("catchup_end")]
        assert octets[-1] < 5000, "500 messages are more"
        wait_logged(backup, "the journal has brought back all that it has acknowledged")


def flip(segment: Path, at: int) -> None:
    """Damages one bit; the second time mends it."""
    octets = bytearray(segment.read_bytes())
    octets[at] ^= 1
    segment.write_bytes(octets)


def test_a_member_with_a_damaged_journal_begins_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, journal="yes").start() as cluster:
        publish(cluster, "orders", range(200))
        backup = cluster.members[1]
        backup.kill()
        segment = max((backup.data_dir / "journal").glob("*.journal"), key=lambda path: path.stat().st_size)
        flip(segment, 4000)
        backup.spawn()
        cluster.settle()
        assert backup.peek("orders") == bodies(range(200))
        wait_logged(backup, "the journal is damaged")
        assert (backup.data_dir / "journal.damaged-1").is_dir()
        publish(cluster, "orders", range(200, 210))
        kill_all(cluster)
        start_again(cluster)
        assert cluster.primary.peek("orders") == bodies(range(210))


def test_the_only_member_with_a_damaged_journal_does_not_start(tmp_path: Path) -> None:
    """It began without messages, and another member was promoted with what it held when it was lost."""
    with Cluster(tmp_path, 2, journal="yes", ha_safety="manager").start() as cluster:
        publish(cluster, "orders", range(20))
        only, other = cluster.members
        other.kill()
        publish(cluster, "orders", range(20, 60))
        only.kill()
        segment = max((only.data_dir / "journal").glob("*.journal"), key=lambda path: path.stat().st_mtime)
        flip(segment, 3000)
        only.spawn()
        other.spawn()
        assert only.wait(20) == 1
        wait_logged(only, "no other member has all that was confirmed")
        wait_for(lambda: other.status == "joining", 60, "it waits")
        with pytest.raises(RequestRefused, match=r"it was disconnected, and node1, which may .* does not answer"):
            other.promote_once()
        flip(segment, 3000)
        only.start().promote()
        cluster.settle()
        assert other.peek("orders") == bodies(range(60))


SMALL = 8 << 20
"""Octets of a file system: a few segments."""


def test_disks_that_are_full_block_publishers_and_no_broker_ends(tmp_path: Path) -> None:
    """Equal disks fill together.  What is confirmed is there, and is taken; then publishers go on."""
    if not mountable(tmp_path / "probe"):
        pytest.skip("mounting small file systems needs root")
    cluster = Cluster(tmp_path, journal="yes", journal_segment_size="1M", disk_free_limit="0", ha_safety="quorum")
    with contextlib.ExitStack() as stack:
        for member in cluster.members:
            stack.callback(SmallDisk(member.data_dir, SMALL).close)
        stack.enter_context(cluster)
        cluster.start()
        publish(cluster, "orders", range(0))
        publisher = Publisher(cluster.primary, 100_000, size=50_000)
        wait_for(lambda: _blocked(cluster, publisher), 60, "it waits")
        confirmed = len(publisher.confirmed)
        assert 20 < confirmed < MOST and all(member.running for member in cluster.members)
        cluster.settle()
        with cluster.channel() as channel:
            for _ in range(confirmed):
                method, _, body = channel.basic_get("orders")
                assert method is not None and int(body[:6]) == 100_000 + method.delivery_tag - 1
                channel.basic_ack(method.delivery_tag)
        wait_for(lambda: len(publisher.confirmed) > confirmed + 25, 60, "publishers go on")
        cluster.settle()
        kill_all(cluster)
        publisher.join()
        start_again(cluster)
        found = [int(body[:6]) for body in cluster.primary.browse("orders")]
        assert set(found) >= set(publisher.confirmed[confirmed:])


def _blocked(cluster: Cluster, publisher: Publisher) -> bool:
    """A disk is full, and nothing was confirmed for a while."""
    confirmed = len(publisher.confirmed)
    publisher.join(2.0)
    full = any(member.ask("ha.status")["alarms"] for member in cluster.members)
    return full and len(publisher.confirmed) == confirmed and publisher.is_alive()


HANGING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    const char *hangs = getenv("HANGS");
    while (hangs != NULL && access(hangs, F_OK) == 0)
        usleep(10000);
    return real(fd);
}
"""


class OnHangingDisk(Member):
    """`hang` is a file: while it is there no sync of its journal ends."""

    hang: Path
    library: Path

    def spawn(self) -> OnHangingDisk:
        environment = {**os.environ, "LD_PRELOAD": str(self.library), "HANGS": str(self.hang)}
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=environment)
        return self


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers; the second is on a disk that may hang."""
    source, library = tmp_path / "hang.c", tmp_path / "hang.so"
    source.write_text(HANGING)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    cluster = Cluster(tmp_path, journal="yes", ha_slow_backup_timeout="3")
    cluster.members[1].__class__ = OnHangingDisk
    broker = cluster.members[1]
    assert isinstance(broker, OnHangingDisk)
    broker.library, broker.hang = library, tmp_path / "hangs"
    with cluster.start():
        yield cluster
        broker.hang.unlink(missing_ok=True)


def test_a_backup_whose_disk_hangs_ends_and_the_others_go_on(hanging: Cluster) -> None:
    publish(hanging, "orders", range(10))
    backup = hanging.members[1]
    (hanging.directory / "hangs").touch()
    publisher = Publisher(hanging.primary, 10)
    assert backup.wait(30) == EXIT_DISK, backup.log
    wait_logged(backup, "others can do without this broker")
    wait_for(lambda: len(publisher.confirmed) > 10, 60, "messages are confirmed without it")
    (hanging.directory / "hangs").unlink()
    backup.spawn()
    hanging.settle()
    kill_all(hanging)
    publisher.join()
    start_again(hanging)
    found = hanging.primary.peek("orders")
    assert set(found) >= set(bodies(range(10))) | {f"{number:06d}" for number in publisher.confirmed}


# ---- copies put back, disks replaced -------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [["journal"], ["ha-state.json"], ["journal", "ha-state.json"]], ids="+".join)
def test_a_part_that_was_put_back_from_a_copy_is_found(tmp_path: Path, parts: list[str]) -> None:
    """The copy is of the same run, taken while it ran.  With both parts the other members are ahead."""
    with Cluster(tmp_path, journal="yes", ha_safety="quorum").start() as cluster:
        publish(cluster, "orders", range(20))
        backup, copy = cluster.members[2], tmp_path / "copy"
        shutil.copytree(backup.data_dir, copy)
        if parts == ["ha-state.json"]:
            cluster.restart(cluster.members[1])  # the sets of its return are newer than the copy
        publish(cluster, "orders", range(20, 40))
        assert backup.stop() == 0
        kill_all(cluster)
        for part in parts:
            put_back(copy / part, backup.data_dir / part)
        cluster.spawn()
        if len(parts) == 1:
            wait_logged(backup, "is an older copy, or another broker's")
            wait_for(lambda: "older copy" in str(backup.ask("ha.status")["advice"]), what="the advice")
        with pytest.raises(RequestRefused):
            backup.promote_once()
        first_promotable(cluster.members)
        cluster.settle()
        assert_everywhere(cluster, bodies(range(40)))
        wait_for(lambda: not backup.ask("ha.status")["advice"], what="no advice")


def put_back(copy: Path, place: Path) -> None:
    if copy.is_dir():
        shutil.rmtree(place)
        shutil.copytree(copy, place)
    else:
        shutil.copy(copy, place)


def test_a_replaced_disk_says_that_the_identity_is_lost(tmp_path: Path) -> None:
    with Cluster(tmp_path, journal="yes", ha_safety="quorum").start() as cluster:
        publish(cluster, "orders", range(20))
        old = cluster.members[2]
        kill_all(cluster)
        shutil.rmtree(old.data_dir)
        cluster.spawn()
        wait_for(lambda: "its identity and its votes are lost" in old.log, 60, lambda: old.log)
        wait_for(lambda: "identity" in str(old.ask("ha.status")["advice"]), what="the advice")
        first_promotable(cluster.members[:2])
        cluster.settle()
        assert_everywhere(cluster, bodies(range(20)))
        wait_for(lambda: not old.ask("ha.status")["advice"], what="a primary has listed it")
        assert [event["kind"] for event in old.events("identity_lost")] == ["identity_lost"]
