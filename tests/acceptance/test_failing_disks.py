"""Confirmed means kept, with real brokers and plain pika: what has lost confirmed messages once.

b2  a member without a data directory      b3  disks that are full or fail
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.clients import assert_browse_backup, publish
from tests.acceptance.cluster import TIMEOUT, Cluster, Member
from tests.acceptance.disks import SmallDisk, mountable
from tests.acceptance.test_recovery import Held
from tests.support.wait import wait_for, wait_logged

EXIT_START = 1
MEMBER = ("--ha-cluster", "yes", "--ha-brokers-url", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
NUMBERS = [str(number) for number in range(100)]

# ---- b2: a vote that is not kept


def test_b2_a_member_without_a_data_directory_is_refused(make_alone: Callable[..., Member]) -> None:
    """Its vote vanished with each restart, and its address voted on."""
    broker = make_alone("forgetful", *MEMBER, "--no-data-dir", "yes")
    broker.spawn()
    assert broker.wait(TIMEOUT) == EXIT_START
    wait_logged(broker, "option no-data-dir: found yes with ha-cluster, expected a data directory")


def test_b2_a_broker_outside_a_cluster_needs_none(make_alone: Callable[..., Member]) -> None:
    make_alone("alone", "--no-data-dir", "yes").start()


# ---- b3: a disk that takes nothing more


class Disks:
    """The data directories of a cluster, each on a file system of its own."""

    def __init__(self, directory: Path) -> None:
        if not mountable(directory / "probe"):
            pytest.skip("mounting small file systems needs root")
        self._disks: dict[str, SmallDisk] = {}

    def add(self, member: Member) -> SmallDisk:
        return self._disks.setdefault(member.name, SmallDisk(member.data_dir))

    def __getitem__(self, member: Member) -> SmallDisk:
        return self._disks[member.name]

    def close(self) -> None:
        for disk in self._disks.values():
            disk.close()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    disks = Disks(tmp_path)
    yield disks
    disks.close()


@pytest.fixture(params=["manager", "quorum"])
def small(request: pytest.FixtureRequest, disks: Disks, make_cluster: Callable[..., Cluster]) -> Cluster:
    """Three brokers on small disks, and a queue with a hundred confirmed messages."""
    cluster = make_cluster(3, ha_safety=request.param)
    for member in cluster.members:
        disks.add(member)
    cluster.start()
    with cluster.channel() as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", NUMBERS)
    return cluster


def the_stall(member: Member) -> str:
    found = member.ask("ha.query")["stalled"]
    return str(found["why"]) if found else ""


def test_b3_three_full_disks_and_a_killed_backup_lose_nothing(small: Cluster, disks: Disks) -> None:
    """Each holder ended itself, one after the other: 100 of 100 confirmed messages were gone."""
    primary, survivor, victim = small.members
    for member in small.members:
        disks[member].fill()
    wait_for(lambda: "the dump is not complete: [Errno 28] No space left" in asked_to_dump(primary), what="no dump")
    victim.kill()
    with primary.channel() as channel:
        publish(channel, "q", ["after"])  # the smaller set is stored: that needs no space
    primary.kill()
    if small_mode(survivor) == "quorum":
        victim.start()  # a majority is needed; it starts and votes on its full disk
    survivor.promote()
    assert survivor.peek("q") == [*NUMBERS, "after"]
    for member in small.members:
        disks[member].free()
    for member in (primary, victim):
        if not member.running:
            member.start()
    small.settle()
    assert primary.peek("q") == victim.peek("q") == [*NUMBERS, "after"]


def asked_to_dump(member: Member) -> str:
    """The refusal; the last page of a file may still take some events."""
    try:
        member.ask("ha.dump")
    except RequestRefused as refusal:
        return str(refusal)
    return ""


def small_mode(member: Member) -> str:
    return str(member.ask("ha.query")["safety"])


def test_b3_a_primary_that_cannot_store_a_smaller_set_waits_and_goes_on(small: Cluster, disks: Disks) -> None:
    primary, _, victim = small.members
    disks[primary].freeze()
    victim.kill()
    held = Held(primary, "q", "held")
    wait_for(lambda: "the disk has not stored: node3 is dropped" in the_stall(primary), TIMEOUT, lambda: primary.log)
    wait_for(lambda: "Read-only file system" in the_stall(primary), what="why")
    wait_logged(primary, "ha-state.json cannot be written")
    assert primary.status == "active" and not held.done.is_set()
    disks[primary].thaw()
    held.join()
    wait_for(lambda: the_stall(primary) == "", TIMEOUT, "no stall")
    assert primary.peek("q") == [*NUMBERS, "held"]


def test_b3_a_candidate_that_cannot_store_its_vote_is_refused_and_keeps_all(small: Cluster, disks: Disks) -> None:
    primary, candidate, other = small.members
    wait_for(lambda: candidate.position == other.position, TIMEOUT, "the backups at one position")
    disks[candidate].freeze()
    primary.kill()
    with pytest.raises(RequestRefused, match=r"cannot be promoted: its vote cannot be stored: .*Read-only file"):
        candidate.promote_once()
    assert candidate.status == "ready" and candidate.peek("q") == NUMBERS
    with pytest.raises(RequestRefused, match=r"node2 cannot store its vote: .*Read-only file system"):
        other.promote_once()
    assert other.status == "ready" and other.peek("q") == NUMBERS
    disks[candidate].thaw()
    candidate.promote()
    candidate.wait_status("active")
    assert candidate.peek("q") == NUMBERS


def test_b3_a_backup_that_cannot_store_a_set_leaves_it_and_comes_back(small: Cluster, disks: Disks) -> None:
    primary, backup, victim = small.members
    if small_mode(primary) == "quorum":
        pytest.skip("below a majority nothing is confirmed")
    disks[backup].freeze()
    victim.kill()
    with primary.channel() as channel:
        publish(channel, "q", ["alone"])
    assert backup.running and backup.peek("q")[:100] == NUMBERS
    disks[backup].thaw()
    assert_browse_backup(backup, "q", [*NUMBERS, "alone"])
    backup.wait_status("ready")


def test_b3_a_full_disk_at_the_first_start_is_said(make_alone: Callable[..., Member], disks: Disks) -> None:
    broker = make_alone("full", *MEMBER)
    disks.add(broker).fill()
    broker.spawn()
    assert broker.wait(TIMEOUT) == EXIT_START
    wait_logged(broker, f"cannot write {broker.data_dir}/lock: No space left on device")
    assert "Traceback" not in broker.log


def test_b3_a_state_file_that_cannot_be_made_is_said(make_alone: Callable[..., Member], disks: Disks) -> None:
    """There is room for the lock, and for nothing else."""
    broker = make_alone("nearly-full", *MEMBER)
    disk = disks.add(broker)
    (broker.data_dir / "lock").write_text("1\n")
    disk.fill()
    broker.spawn()
    assert broker.wait(TIMEOUT) == EXIT_START
    wait_logged(broker, "ha-state.json cannot be used: [Errno 28] No space left on device")
    assert "Traceback" not in broker.log
    disk.free()
    broker.start()


def test_b3_a_full_disk_costs_events_only(small: Cluster, disks: Disks) -> None:
    primary = small.members[0]
    disks[primary].fill()
    with primary.channel() as channel:
        publish(channel, "q", [str(number) for number in range(200)])
    small.members[2].kill()

    def missed() -> bool:
        """The last page of the file may take some more events."""
        with primary.channel():
            return "events are not written" in primary.log

    wait_for(missed, TIMEOUT, lambda: primary.log)
    disks[primary].free()
    small.members[2].start()
    small.settle()
    wait_for(lambda: "events are written again" in primary.log, TIMEOUT, lambda: primary.log)
    assert any(file.read_text().count("\n") for file in (primary.data_dir / "events").iterdir())
