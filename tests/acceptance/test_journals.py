"""Three brokers with journals: what was confirmed outlives all of them."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from tests.acceptance.cluster import Cluster, Member, first_promotable

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
