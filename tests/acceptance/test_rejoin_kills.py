"""kill -9 of a backup while it writes the difference that it lacks: its disk has what it had before, or all of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

from qpidd_py.store.disk import Folder
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import Damaged, frames, scan
from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.test_journals import PERSISTENT
from tests.support.wait import wait_for

OCTETS = 100_000
"""Of a body: a difference takes many commits, so that most kills come in the middle of one."""
ROUNDS = 10
"""At most; two kills within a difference are enough."""


def writes_difference(member: Member) -> bool:
    """Its journal ends within a difference."""
    disk, open = Folder(member.data_dir / "journal"), False
    try:
        for frame in frames(disk, scan(disk)):
            open = frame.kind == Kind.DIFFERENCE or (open and frame.kind not in (Kind.TAKEN, Kind.GIVEN_UP))
    except (Damaged, OSError):
        return False  # read in the middle of a write
    return open


def segments(member: Member) -> int:
    return len(list((member.data_dir / "journal").glob("*.journal")))


def publish(cluster: Cluster, numbers: range) -> list[str]:
    with cluster.channel() as channel:
        channel.queue_declare("orders", durable=True)
        for number in numbers:
            channel.basic_publish("", "orders", b"%06d" % number + bytes(OCTETS), PERSISTENT, mandatory=True)
    return [f"{number:06d}" for number in numbers]


def numbers(member: Member) -> list[str]:
    return [body[:6].decode() for body in member.browse("orders")]


def test_a_backup_that_is_killed_within_the_difference_lacks_nothing_and_has_no_half(tmp_path: Path) -> None:
    rng, within = Random(7), 0
    with Cluster(tmp_path, journal="yes", journal_segment_size="1M").start() as cluster:
        backup = cluster.members[2]
        there: list[str] = []
        for turn in range(ROUNDS):
            backup.kill()
            there += publish(cluster, range(80 * turn, 80 * turn + 80))
            if turn % 2:  # what it has beyond the primary goes with the difference
                with cluster.channel() as channel:
                    for _ in range(30):
                        channel.basic_get("orders", auto_ack=True)
                there = there[30:]
            enough = segments(backup) + rng.randrange(2, 6)  # one begins at the start
            backup.spawn()
            wait_for(lambda: segments(backup) >= enough, 60, lambda: backup.log, poll=0.001)  # noqa: B023
            backup.kill()
            within += writes_difference(backup)
            backup.spawn()
            cluster.settle()
            assert numbers(backup) == there
            if within == 2:
                break
        assert within, "no kill came within a difference"
        for member in cluster.members:
            member.kill()
        cluster.spawn()
        first_promotable(cluster.members)
        cluster.settle()
        assert [numbers(member) for member in cluster.members] == [there] * 3
