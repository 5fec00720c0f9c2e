"""Rows 9 to 11: the tool for queues; one queue, replicated to a broker that is in no cluster."""

import pytest

from tests.acceptance.clients import assert_browse_backup, publish, qpid_config, qpid_ha, take
from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for

OUTSIDE = ("--ha-queue-replication", "yes", "--link-maintenance-interval", "0.1")


@pytest.fixture
def replica(make_alone) -> Member:
    found: Member = make_alone("replica", *OUTSIDE)
    return found.start()


def declare(member: Member, queue: str) -> None:
    with member.channel() as channel:
        channel.queue_declare(queue, durable=True)


def test_09_qpid_config_replication(cluster: Cluster) -> None:
    """A queue added with --replicate all, and one with none, on a cluster; the listing of a backup shows the first."""
    primary, backup, _ = cluster.ready()
    for level in ("all", "none"):
        assert qpid_config("add", "queue", f"r9.{level}", "--replicate", level, "-b", primary.address) == (0, "")
        with primary.channel() as channel:
            publish(channel, f"r9.{level}", ["message"])
    assert_browse_backup(backup, "r9.all", ["message"])
    assert "r9.none" not in backup.queues()
    code, listed = qpid_config("queues", "r9.", "-b", backup.address)
    assert code == 0
    assert [line.split()[0] for line in listed.splitlines() if line.strip().startswith("r9.")] == ["r9.all"]
    assert "--replicate=all" in listed


def test_10_standalone_queue_replica(make_alone, replica: Member) -> None:
    """What was there before, what came later and what was taken, copied from another stand-alone broker."""
    source = make_alone("source", *OUTSIDE).start()
    declare(replica, "q")
    with source.channel() as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", ["before 1", "before 2"])
        assert qpid_ha("replicate", source.address, "q", "-b", replica.address) == (0, "")
        assert_browse_backup(replica, "q", ["before 1", "before 2"])
        publish(channel, "q", ["later"])
        assert_browse_backup(replica, "q", ["before 1", "before 2", "later"])
        for left in (["before 2", "later"], ["later"], []):
            take(channel, "q", 1)
            assert_browse_backup(replica, "q", left)
    assert replica.status == source.status == "standalone"


def test_10_start_replica(make_alone, replica: Member) -> None:
    """Create the queue and follow that of another broker, in one command."""
    source = make_alone("source", *OUTSIDE).start()
    with source.channel() as channel:
        channel.queue_declare("q", durable=True)
        publish(channel, "q", ["before"])
        command = ("add", "queue", "q", "--durable", "--start-replica", source.address)
        assert qpid_config(*command, "-b", replica.address) == (0, "")
        publish(channel, "q", ["later"])
        assert_browse_backup(replica, "q", ["before", "later"])
        take(channel, "q", 1)
        assert_browse_backup(replica, "q", ["later"])


def test_11_standalone_queue_replica_failover(cluster: Cluster, replica: Member) -> None:
    """The replica is given the whole cluster's addresses and follows it through two fail-overs."""
    primary, first, second = cluster.ready()
    declare(replica, "r11")
    with primary.channel() as channel:
        channel.queue_declare("r11", durable=True)
        publish(channel, "r11", ["a"])
    assert qpid_ha("replicate", cluster.url, "r11", "-b", replica.address) == (0, "")
    assert_browse_backup(replica, "r11", ["a"])
    for number, new in enumerate((first, second)):
        cluster.fail_over(to=new)
        with new.channel() as channel:
            publish(channel, "r11", [f"b{number}"])
            assert_browse_backup(replica, "r11", ["a", "b0", "b1"][number : number + 2])
            take(channel, "r11", 1)
            assert_browse_backup(replica, "r11", ["a", "b0", "b1"][number + 1 : number + 2])
    wait_for(lambda: replica.ask("ha.replicate")["replicas"][0]["address"] == second.address, what="the new source")
