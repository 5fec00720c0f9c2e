"""Rows 1 to 3, 12 to 23: what is replicated, and how far.  (README.md has the table.)"""

import threading

import pika
import pytest

from qpidd_py.cli.client_socket import RequestRefused
from qpidd_py.security.users import hash_password
from tests.acceptance.clients import assert_browse_backup, exists, publish, take, wait_no_queue, wait_queue
from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for

LEVELS = ("all", "configuration", "none")


def queue_name(prefix: str, level: str) -> str:
    return f"{prefix}.queue.{level}"


def make_objects(channel, prefix: str) -> None:
    """One exchange and one queue of each level, bound to each other, five messages, two of them taken."""
    for level in LEVELS:
        queue, exchange, arguments = queue_name(prefix, level), f"{prefix}.exchange.{level}", {"qpid.replicate": level}
        channel.exchange_declare(exchange, "topic", durable=True, arguments=arguments)
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.queue_bind(queue, exchange, "key.#")
        publish(channel, "key.1", range(5), exchange=exchange)
        assert take(channel, queue, 2) == ["0", "1"]
    everything = queue_name(prefix, "all")
    channel.queue_bind(everything, f"{prefix}.exchange.all", "gone.*")
    channel.queue_unbind(everything, f"{prefix}.exchange.all", "gone.*")
    channel.queue_declare(f"{prefix}.gone")
    channel.queue_delete(f"{prefix}.gone")
    channel.exchange_declare(f"{prefix}.gone", "fanout")
    channel.exchange_delete(f"{prefix}.gone")


def check_backup(member: Member, prefix: str) -> None:
    assert_browse_backup(member, queue_name(prefix, "all"), [2, 3, 4])
    assert_browse_backup(member, queue_name(prefix, "configuration"), [])
    wait_no_queue(member, f"{prefix}.gone")
    assert queue_name(prefix, "none") not in member.queues()
    for level, found in (("all", True), ("configuration", True), ("none", False)):
        assert exists(member, exchange=f"{prefix}.exchange.{level}", admin=True) is found
    assert not exists(member, exchange=f"{prefix}.gone", admin=True)


def check_promoted(channel, prefix: str) -> None:
    """Bindings are what routing makes of them."""
    publish(channel, "key.2", ["new"], exchange=f"{prefix}.exchange.all")
    with pytest.raises(pika.exceptions.UnroutableError):
        publish(channel, "gone.1", ["lost"], exchange=f"{prefix}.exchange.all")
    assert take(channel, queue_name(prefix, "all"), 4) == ["2", "3", "4", "new"]
    publish(channel, "key.3", ["new"], exchange=f"{prefix}.exchange.configuration")
    assert take(channel, queue_name(prefix, "configuration"), 1) == ["new"]


def test_01_replication(cluster: Cluster) -> None:
    primary, first, late = cluster.ready()
    late.kill()
    with primary.channel() as channel:
        make_objects(channel, "r1.before")
        late.start().wait_status("ready")
        make_objects(channel, "r1.after")
        for member in (first, late):
            check_backup(member, "r1.before")
            check_backup(member, "r1.after")
        for left in ([3, 4], [4], []):
            take(channel, queue_name("r1.before", "all"), 1)
            for member in (first, late):
                assert_browse_backup(member, queue_name("r1.before", "all"), left)
        publish(channel, queue_name("r1.before", "all"), [2, 3, 4])
    cluster.fail_over(to=late)
    with late.channel() as channel:
        check_promoted(channel, "r1.before")
        check_promoted(channel, "r1.after")


def test_02_sync(cluster: Cluster) -> None:
    primary, first, second = cluster.ready()
    first.kill()
    second.kill()
    with primary.channel() as channel:
        channel.queue_declare("r2", durable=True)
        publish(channel, "r2", range(10))
        first.start().wait_status("ready")
        publish(channel, "r2", range(10, 20))
        second.start().wait_status("ready")
        publish(channel, "r2", range(20, 25))
        cluster.restart(first)
        publish(channel, "r2", range(25, 30))
    for member in (first, second):
        assert_browse_backup(member, "r2", range(30))


def test_03_send_receive(cluster: Cluster) -> None:
    """1000 are sent, 990 received at the same time: the backups hold the last ten, and nothing else."""
    _, first, second = cluster.ready()
    with cluster.library() as connection:
        session = connection.session()
        session.declare_queue("r3", durable=True)
        sender = session.sender("r3", capacity=100)
        thread = threading.Thread(target=lambda: [sender.send(str(number), sync=False) for number in range(1, 1001)])
        thread.start()
        receiver = session.receiver("r3", capacity=50)
        received = []
        while len(received) < 990:
            message = receiver.fetch(10)
            received.append(message.content)
            session.acknowledge(message, sync=False)
        thread.join(30)
        session.sync(10)
    assert received == [str(number) for number in range(1, 991)]
    for member in (first, second):
        assert_browse_backup(member, "r3", range(991, 1001))


LAST_VALUE = {"qpid.last_value_queue_key": "key"}


def publish_values(channel, queue: str, *bodies: str) -> None:
    for body in bodies:
        publish(channel, queue, [body], headers={"key": body[0]})


def test_12_last_value_queue(cluster: Cluster) -> None:
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r12", arguments=LAST_VALUE)
        publish_values(channel, "r12", "a1", "b1")
        for body, kept in (("a2", ["b1", "a2"]), ("b2", ["a2", "b2"]), ("c1", ["a2", "b2", "c1"])):
            publish_values(channel, "r12", body)
            for member in (primary, *backups):
                assert_browse_backup(member, "r12", kept)


def test_13_ring(cluster: Cluster) -> None:
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r13", arguments={"x-max-length": 5, "x-overflow": "drop-head"})
        publish(channel, "r13", range(10))
    for member in backups:
        assert_browse_backup(member, "r13", range(5, 10))


def test_14_reject(cluster: Cluster) -> None:
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r14", arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
        publish(channel, "r14", range(5))
        for number in range(5, 10):
            with pytest.raises(pika.exceptions.NackError):
                publish(channel, "r14", [number])
    for member in backups:
        assert_browse_backup(member, "r14", range(5))
        member.wait_status("ready")


PRIORITIES = (8, 9, 5, 1, 2, 2, 3, 4, 9, 7, 8, 9, 9, 2)


def by_priority(numbers) -> list[int]:
    """Positions of messages in the order of delivery: the highest first, equal ones as they came."""
    return sorted(numbers, key=lambda number: -PRIORITIES[number])


def publish_priorities(channel, queue: str) -> None:
    for number, priority in enumerate(PRIORITIES):
        publish(channel, queue, [number], priority=priority)


def test_15_priority(cluster: Cluster) -> None:
    primary, first, second = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r15", arguments={"x-max-priority": 10})
        publish_priorities(channel, "r15")
    expected = by_priority(range(len(PRIORITIES)))
    for member in (first, second):
        assert_browse_backup(member, "r15", expected)
    cluster.fail_over(to=first)
    with first.channel() as channel:
        assert take(channel, "r15", len(PRIORITIES)) == [str(number) for number in expected]


def test_16_priority_fairshare(cluster: Cluster) -> None:
    """Three of each priority in a round."""
    primary, first, _ = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r16", arguments={"x-max-priority": 10, "qpid.fairshare": 3})
        publish_priorities(channel, "r16")
    wait_queue(first, "r16")
    cluster.fail_over(to=first)
    with first.channel() as channel:
        expected = [number for number in by_priority(range(len(PRIORITIES))) if number != 12] + [12]
        assert take(channel, "r16", len(PRIORITIES)) == [str(number) for number in expected]


def test_17_priority_ring(cluster: Cluster) -> None:
    """The five highest are kept, on all brokers; of equal ones the newest."""
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r17", arguments={"x-max-priority": 10, "x-max-length": 5})
        publish_priorities(channel, "r17")
    for member in (primary, *backups):
        assert_browse_backup(member, "r17", [1, 8, 11, 12, 10])


@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-max-length": 5}, {"x-max-priority": 10}],
    ids=["plain", "ring", "priority"],
)
def test_18_backup_acquired(cluster: Cluster, arguments, request) -> None:
    """Delivered and not acknowledged is on every backup, on one that joins later, too."""
    primary, first, late = cluster.ready()
    queue = f"r18.{request.node.callspec.id}"
    with primary.channel() as channel:
        channel.queue_declare(queue, arguments=arguments)
        publish(channel, queue, range(5))
        assert take(channel, queue, 2, ack=False) == ["0", "1"]
        assert_browse_backup(first, queue, range(5))
        cluster.restart(late)
        assert_browse_backup(late, queue, range(5))
        assert primary.queues()[queue]["unacked"] == 2
    # The connection is gone: what it held is on the queue again, everywhere in its old place.
    for member in cluster.members:
        assert_browse_backup(member, queue, range(5))


def test_18_backup_acquired_last_value(cluster: Cluster) -> None:
    """What is held is not replaced; it goes when it comes back, since there is a newer one."""
    primary, first, late = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r18.last-value", arguments=LAST_VALUE)
        publish_values(channel, "r18.last-value", "a1", "b1")
        assert take(channel, "r18.last-value", 1, ack=False) == ["a1"]
        publish_values(channel, "r18.last-value", "a2")
        assert_browse_backup(first, "r18.last-value", ["a1", "b1", "a2"])
        cluster.restart(late)
        assert_browse_backup(late, "r18.last-value", ["a1", "b1", "a2"])
    for member in cluster.members:
        assert_browse_backup(member, "r18.last-value", ["b1", "a2"])


def test_19_replicate_default(make_cluster) -> None:
    """ha-replicate is none if nothing is said; the backup is ready all the same, and what says otherwise is copied."""
    with make_cluster(2, ha_replicate="").start() as cluster:
        primary, backup = cluster.members
        with primary.channel() as channel:
            channel.queue_declare("r19", durable=True)
            channel.exchange_declare("r19", "fanout", durable=True)
            publish(channel, "r19", range(3))
            channel.queue_declare("r19.all", arguments={"qpid.replicate": "all"})
            publish(channel, "r19.all", range(3))
        assert_browse_backup(backup, "r19.all", range(3))
        assert set(backup.queues()) == {"r19.all"}
        assert not exists(backup, exchange="r19", admin=True)
        assert backup.status == "ready"


def test_20_replicate_binding(cluster: Cluster) -> None:
    primary, first, _ = cluster.ready()
    with primary.channel() as channel:
        channel.exchange_declare("r20", "direct")
        channel.queue_declare("r20")
        channel.queue_bind("r20", "r20", "kept")
        channel.queue_bind("r20", "r20", "local", arguments={"qpid.replicate": "none"})
        publish(channel, "local", ["here"], exchange="r20")
    cluster.fail_over(to=first)
    with first.channel() as channel:
        publish(channel, "kept", ["there"], exchange="r20")
        with pytest.raises(pika.exceptions.UnroutableError):
            publish(channel, "local", ["lost"], exchange="r20")
        assert take(channel, "r20", 2) == ["here", "there"]


def test_20_a_local_binding_ends_with_the_process(make_cluster) -> None:
    """With a journal as well: it is in no log, so a restart does not bring it back."""
    cluster = make_cluster(1, journal="yes").start()
    (member,) = cluster.members
    with member.channel() as channel:
        channel.exchange_declare("r20", "direct", durable=True)
        channel.queue_declare("r20", durable=True)
        channel.queue_bind("r20", "r20", "kept")
        channel.queue_bind("r20", "r20", "local", arguments={"qpid.replicate": "none"})
        publish(channel, "local", ["here"], exchange="r20")
    member.kill()
    member.start().promote()
    with member.channel() as channel:
        publish(channel, "kept", ["there"], exchange="r20")
        with pytest.raises(pika.exceptions.UnroutableError):
            publish(channel, "local", ["lost"], exchange="r20")
        assert take(channel, "r20", 2) == ["here", "there"]


def test_21_invalid_replication(cluster: Cluster) -> None:
    primary, *_ = cluster.ready()
    for declare in ("queue_declare", "exchange_declare"):
        with primary.channel() as channel:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                getattr(channel, declare)("r21", arguments={"qpid.replicate": "everything"})
            assert caught.value.reply_code == 406
            assert "qpid.replicate" in caught.value.reply_text
    assert not exists(primary, queue="r21")
    assert not exists(primary, exchange="r21")


def test_22_exclusive_queue(make_cluster, tmp_path) -> None:
    """No other connection may use or read the queue of a connection, or one consumed exclusively; replication does,
    and `ha-username` reads both on all brokers."""
    users = tmp_path / "users.yaml"
    users.write_text(f"bob: {hash_password('bob-password')}\n")
    cluster = make_cluster(3, ha_username="guest", ha_password="guest", user_file=str(users)).start()
    with cluster.primary.channel() as channel, cluster.primary.channel() as other:
        channel.queue_declare("r22.queue", exclusive=True, arguments={"qpid.replicate": "all"})
        channel.queue_declare("r22.consumer")
        channel.basic_consume("r22.consumer", lambda *_: None, exclusive=True)
        publish(channel, "r22.queue", ["exclusive"])
        publish(channel, "r22.consumer", ["consumed"])
        for member in cluster.members:
            assert_browse_backup(member, "r22.queue", ["exclusive"])
            assert_browse_backup(member, "r22.consumer", ["consumed"])
            with pytest.raises(RequestRefused, match=r"'r22\.queue' is exclusive to another connection"):
                member.ask("queue.peek", user="bob", queue="r22.queue")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            other.queue_declare("r22.queue", passive=True)
        assert caught.value.reply_code == 405
        with cluster.primary.channel() as third, pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            third.basic_consume("r22.consumer", lambda *_: None)
        assert caught.value.reply_code == 403


def test_23_auto_delete_exclusive(cluster: Cluster) -> None:
    """Temporary queues stay local unless they have a time limit; replication keeps no auto-delete queue alive."""
    primary, *backups = cluster.ready()
    connection = primary.connect()
    channel = connection.channel()
    server_named = channel.queue_declare("", exclusive=True, auto_delete=True).method.queue
    channel.queue_declare("r23.temporary", exclusive=True, auto_delete=True)
    channel.queue_declare("r23.timed", exclusive=True, auto_delete=True, arguments={"x-expires": 60_000})
    channel.queue_declare("r23.exclusive", exclusive=True, arguments={"qpid.replicate": "all"})
    channel.queue_declare("r23.plain", exclusive=True)
    channel.queue_declare("r23.auto", auto_delete=True)
    for member in backups:
        for name in ("r23.timed", "r23.exclusive", "r23.auto"):
            wait_queue(member, name)
        assert not {server_named, "r23.temporary", "r23.plain"} & member.queues().keys()
    tag = channel.basic_consume("r23.auto", lambda *_: None)
    channel.basic_cancel(tag)
    wait_for(lambda: "r23.auto" not in primary.queues(), 60, "the end of the auto-delete queue")
    connection.close()
    for member in cluster.members:
        for name in ("r23.timed", "r23.exclusive", "r23.auto"):
            wait_no_queue(member, name)
