"""Rows 39 to 44: after a fail-over, and from what a restarted broker has left.

Row 39 needs two backups that are expected and absent, and a majority that is accounted for: five brokers.  Stopped
ones are expected; a dead one is not waited for, since it would come back with nothing.
"""

import threading

import pika
import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.clients import assert_browse_backup, exists, publish, take
from tests.acceptance.cluster import TIMEOUT, Cluster, Member
from tests.support.wait import wait_for, wait_logged


class Held:
    """Publishes one message in a thread of its own; `done` tells whether it was confirmed."""

    def __init__(self, member: Member, queue: str, body: str, declare: bool = False) -> None:
        self.done = threading.Event()
        self._what = (member, queue, body, declare)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        member, queue, body, declare = self._what
        with member.channel() as channel:
            if declare:
                channel.queue_declare(queue, durable=True)
            publish(channel, queue, [body])
        self.done.set()

    def join(self) -> None:
        self._thread.join(TIMEOUT)
        assert self.done.is_set()


def waiting(member: Member, queue: str) -> int:
    """Messages ready; 0 for a queue that is not there yet."""
    return int(member.queues().get(queue, {}).get("ready", 0))


def test_39_queue_hold(make_cluster) -> None:
    """Publishes to old and new queues are not confirmed, and consuming works, until both absent backups are back."""
    cluster = make_cluster(5, ha_backup_timeout="60").start()
    primary, new, present, *absent = cluster.members
    with primary.channel() as channel:
        channel.queue_declare("old", durable=True)
        publish(channel, "old", ["before"])
    for member in absent:
        member.pause()
    primary.kill()
    new.promote()
    assert new.status == "recovering"
    held = [Held(new, "old", "held 1"), Held(new, "old", "held 2")]
    declared = Held(new, "new", "held", declare=True)
    wait_for(lambda: waiting(new, "old") == 3, what="the publishes")
    wait_for(lambda: "new" in new.queues(), what="the declaration")
    with new.channel(confirm=False) as channel:
        # What is consumed needs no backup: its publisher, one of the two, is answered.
        assert take(channel, "old", 2)[0] == "before"
    wait_for(lambda: any(publisher.done.is_set() for publisher in held), what="the confirm of what was consumed")
    absent[0].resume()
    wait_for(lambda: backup_state(new, absent[0]) == "ready", what="one is back")
    assert new.status == "recovering"
    assert [publisher.done.is_set() for publisher in held].count(True) == 1
    assert not declared.done.is_set()
    absent[1].resume()
    new.wait_status("active")
    for publisher in (*held, declared):
        publisher.join()
    for member in (present, *absent):
        assert_browse_backup(member, "new", ["held"])


def backup_state(primary: Member, backup: Member) -> str:
    members = primary.ask("ha.query")["members"]
    return next((str(found["state"]) for found in members if found["address"] == backup.address), "")


def test_40_expected_backup_timeout(make_cluster) -> None:
    """The hold ends with ha-backup-timeout: a backup that has not come is given up."""
    cluster = make_cluster(3, ha_backup_timeout="0.5", link_heartbeat_interval="0.5").start()
    primary, new, absent = cluster.members
    with primary.channel() as channel:
        channel.queue_declare("q", durable=True)
    absent.pause()
    primary.kill()
    new.promote()
    held = Held(new, "q", "held")
    new.wait_status("active")
    held.join()
    assert [event["new"] for event in new.events("state")][-2:] == ["recovering", "active"]
    wait_logged(new, f"expected backup {absent.name} has not come back in time")
    absent.resume()
    absent.wait_status("ready")
    assert_browse_backup(absent, "q", ["held"])


def test_41_join_ready_cluster(cluster: Cluster) -> None:
    """A joining broker refuses promotion while a ready backup lives, and, unlike the original, also while that one is
    stopped: it may hold more.  `force` is for an administrator who knows better."""
    primary, ready, joining = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r41", durable=True)
        publish(channel, "r41", range(3))
    for member in (primary, joining):
        member.kill()
    joining.start().wait_status("joining")
    with pytest.raises(RequestRefused, match=f"joining an active cluster; {ready.name}.* can"):
        joining.promote_once()
    ready.pause()
    with pytest.raises(RequestRefused, match="may hold more but does not answer"):
        joining.promote_once()
    joining.promote_once(force=True)
    assert joining.status in ("recovering", "active")
    assert joining.queues() == {}
    ready.resume()
    ready.wait_status("ready")


def test_42_stalled_backup(cluster: Cluster) -> None:
    """A stopped backup stops no consumer: what is published can be received at once, and is then confirmed."""
    primary, _, stalled = cluster.ready()
    with primary.channel() as channel, primary.channel() as consumer:
        channel.queue_declare("r42")
        stalled.pause()
        arrived = []
        for number in range(20):
            held = Held(primary, "r42", str(number))
            arrived += take(consumer, "r42", 1)
            held.join()
        assert arrived == [str(number) for number in range(20)]
        stalled.resume()
    cluster.settle()
    assert_browse_backup(stalled, "r42", [])


def test_43_no_store_but_survivors(cluster: Cluster) -> None:
    """Without a journal what stands for the store is the broker that lives.  One after the other is restarted
    with kill -9, and queue, exchange, binding and undelivered messages are all there."""
    cluster.ready()
    with cluster.channel() as channel:
        channel.exchange_declare("r43", "direct", durable=True)
        channel.queue_declare("r43", durable=True)
        channel.queue_bind("r43", "r43", "key")
        publish(channel, "key", range(3), exchange="r43")
    for round_ in range(3):
        cluster.bounce()
        with cluster.channel() as channel:
            publish(channel, "key", [f"round {round_}"], exchange="r43")
    with cluster.channel() as channel:
        assert take(channel, "r43", 6) == ["0", "1", "2", "round 0", "round 1", "round 2"]


def test_43_a_cluster_of_one_starts_empty(make_cluster) -> None:
    """Without a journal durable objects do not outlive the last broker, and promotion does not hide that."""
    cluster = make_cluster(1).start()
    (member,) = cluster.members
    with member.channel() as channel:
        channel.queue_declare("r43", durable=True)
        publish(channel, "r43", ["lost with the process"])
    member.kill()
    member.start().wait_status("joining")
    assert member.queues() == {}
    member.promote()
    member.wait_status("active")


def test_43_store_recovery(make_cluster) -> None:
    """A cluster of one comes back from its journal; a second broker joins, takes over, and comes back alone, too."""
    cluster = make_cluster(2, journal="yes", ha_safety="availability")
    first, second = cluster.members
    first.start().promote()
    with first.channel() as channel:
        channel.exchange_declare("r43", "direct", durable=True)
        channel.queue_declare("r43", durable=True)
        channel.queue_bind("r43", "r43", "key")
        publish(channel, "key", range(3), exchange="r43")
    first.kill()
    first.start().promote()
    first.wait_status("active")
    assert_browse_backup(first, "r43", [0, 1, 2])
    second.start().wait_status("ready")
    first.kill()
    second.promote()
    with second.channel() as channel:
        publish(channel, "key", [3], exchange="r43")
    second.kill()
    second.start().promote()
    second.wait_status("active")
    with second.channel() as channel:
        publish(channel, "key", [4], exchange="r43")
        assert take(channel, "r43", 5) == ["0", "1", "2", "3", "4"]


def test_44_catchup_store(make_cluster) -> None:
    """A backup whose journal is stale throws that away and equals the primary: unbound, bound and consumed in its
    absence."""
    cluster = make_cluster(2, journal="yes", ha_safety="availability").start()
    primary, backup = cluster.ready()
    with primary.channel() as channel:
        for name in ("r44.old", "r44.new"):
            channel.exchange_declare(name, "direct", durable=True)
        channel.queue_declare("r44", durable=True)
        channel.queue_bind("r44", "r44.old", "key")
        publish(channel, "r44", range(4))
        backup.kill()
        channel.queue_unbind("r44", "r44.old", "key")
        channel.queue_bind("r44", "r44.new", "key")
        assert take(channel, "r44", 2) == ["0", "1"]
        publish(channel, "r44", [4])
    backup.start().wait_status("ready")
    wait_logged(backup, "the journal has brought back")
    assert_browse_backup(backup, "r44", [2, 3, 4])
    primary.kill()
    backup.promote()
    with backup.channel() as channel:
        publish(channel, "key", ["bound"], exchange="r44.new")
        with pytest.raises(pika.exceptions.UnroutableError):
            publish(channel, "key", ["lost"], exchange="r44.old")
    assert_browse_backup(backup, "r44", [2, 3, 4, "bound"])


def test_44_stale_backup(cluster: Cluster) -> None:
    """A backup that was away equals the primary when it is back, whether it comes back empty or with stale content:
    unbound, bound, consumed and published in its absence."""
    primary, restarted, stopped = cluster.ready()
    with primary.channel() as channel:
        for name in ("r44.old", "r44.new"):
            channel.exchange_declare(name, "direct", durable=True)
        channel.queue_declare("r44", durable=True)
        channel.queue_bind("r44", "r44.old", "key")
        publish(channel, "r44", range(4))
        restarted.kill()
        stopped.pause()
        channel.queue_unbind("r44", "r44.old", "key")
        channel.exchange_delete("r44.old")
        channel.queue_bind("r44", "r44.new", "key")
        assert take(channel, "r44", 2) == ["0", "1"]
        publish(channel, "r44", [4])
        stopped.resume()
        restarted.start()
    cluster.settle()
    for member in (restarted, stopped):
        assert_browse_backup(member, "r44", [2, 3, 4])
        assert not exists(member, exchange="r44.old", admin=True)
    cluster.fail_over(to=stopped)
    with stopped.channel() as channel:
        publish(channel, "key", ["bound"], exchange="r44.new")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            publish(channel, "key", ["lost"], exchange="r44.old")
    assert_browse_backup(stopped, "r44", [2, 3, 4, "bound"])
