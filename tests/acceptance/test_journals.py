"""Three brokers with journals: what was confirmed outlives all of them."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pika
import pytest

from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.test_pitfalls import events
from tests.support.wait import wait_for

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def publish(cluster: Cluster, queue: str, numbers: range) -> None:
    """Each is confirmed when this returns."""
    with cluster.channel() as channel:
        channel.queue_declare(queue, durable=True)
        for number in numbers:
            channel.basic_publish("", queue, b"%06d" % number, PERSISTENT, mandatory=True)


def bodies(numbers: range) -> list[str]:
    return [f"{number:06d}" for number in numbers]


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
        for member in cluster.members:
            assert member.peek("orders") == bodies(range(310))
        kill_all(cluster)
        start_again(cluster)
        assert cluster.primary.peek("orders") == bodies(range(310))


MOST = 300
"""Messages of a publisher: all that wait fit into one answer (`cluster.PEEK`)."""


class Publisher(threading.Thread):
    """Publishes one message after the other, until there are enough or its broker is gone."""

    def __init__(self, member: Member, first: int) -> None:
        super().__init__(name="publisher", daemon=True)
        self._member = member
        self._first = first
        self.confirmed: list[int] = []
        self.start()

    def run(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError), self._member.channel() as channel:
            for number in range(self._first, self._first + MOST):
                channel.basic_publish("", "orders", b"%06d" % number, PERSISTENT, mandatory=True)
                self.confirmed.append(number)


@pytest.mark.parametrize("safety", ["manager", "quorum"])
def test_all_are_killed_in_the_middle_of_the_work(tmp_path: Path, safety: str) -> None:
    with Cluster(tmp_path, journal="yes", journal_segment_size="1M", ha_safety=safety).start() as cluster:
        publish(cluster, "orders", range(0))
        confirmed: list[int] = []
        for turn in range(3):
            publisher = Publisher(cluster.primary, 100_000 * turn)
            wait_for(lambda: len(publisher.confirmed) > 50, 20, "messages are confirmed")  # noqa: B023
            kill_all(cluster)
            publisher.join()
            confirmed += publisher.confirmed
            start_again(cluster)
            found = cluster.primary.peek("orders")
            assert set(found) >= {f"{number:06d}" for number in confirmed}
            assert found == sorted(set(found)), "each once, in order"
            assert [member.peek("orders") for member in cluster.members] == [found] * 3


def test_a_restarted_backup_gets_the_difference_only(tmp_path: Path) -> None:
    with Cluster(tmp_path, journal="yes").start() as cluster:
        publish(cluster, "orders", range(500))
        backup = cluster.members[2]
        backup.kill()
        publish(cluster, "orders", range(500, 510))
        backup.spawn()
        cluster.settle()
        assert backup.peek("orders") == bodies(range(510))
        octets = [int(event["attrs"].get("octets", 0)) for event in events(cluster.primary, "catchup_end")]
        assert octets[-1] < 5000, "500 messages are more"
        assert "the journal has brought back all that it has acknowledged" in backup.log


def test_a_member_with_a_damaged_journal_begins_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, journal="yes").start() as cluster:
        publish(cluster, "orders", range(200))
        backup = cluster.members[1]
        backup.kill()
        segment = max((backup.data_dir / "journal").glob("*.journal"), key=lambda path: path.stat().st_size)
        octets = bytearray(segment.read_bytes())
        octets[4000] ^= 1
        segment.write_bytes(octets)
        backup.spawn()
        cluster.settle()
        assert backup.peek("orders") == bodies(range(200))
        assert "the journal is damaged" in backup.log and (backup.data_dir / "journal.damaged-1").is_dir()
        publish(cluster, "orders", range(200, 210))
        kill_all(cluster)
        start_again(cluster)
        assert cluster.primary.peek("orders") == bodies(range(210))
