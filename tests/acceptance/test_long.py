"""Rows 35 to 38: much of it, for some time.  QPIDD_SOAK_ROUNDS makes row 35 longer (default 3 rounds)."""

import os
import random
import threading
from collections.abc import Callable
from functools import partial

from tests.acceptance.clients import assert_browse_backup, publish
from tests.acceptance.cluster import Cluster, Member
from tests.acceptance.load import LibraryPair, Pair, PlainPair, assert_nothing_lost, progress
from tests.support.wait import wait_for

ROUNDS = int(os.environ.get("QPIDD_SOAK_ROUNDS", "3"))
SEED = int(os.environ.get("QPIDD_SOAK_SEED", "35"))


def in_threads(works: list[Callable[[], None]], timeout: float = 300.0) -> None:
    """All at the same time; the first failure is ours."""
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def test_35_failover_send_receive(make_cluster) -> None:
    """The soak: ten numbered senders and receivers, half of them on plain pika, while the primary or a backup is killed
    at random.  Nothing is lost, no client stalls."""
    cluster = make_cluster(3).start()
    chance = random.Random(SEED)
    ports = [member.port for member in cluster.members]
    pairs: list[Pair] = [PlainPair(ports, f"plain{number}", 60) for number in range(5)]
    pairs += [LibraryPair(cluster.url, f"library{number}", 60) for number in range(5)]
    progress(pairs)
    killed = []
    for round_ in range(ROUNDS):
        # Both kinds occur whatever the seed: the last round makes up for what chance has left out.
        of_primary = chance.random() < 0.5 if round_ < ROUNDS - 1 else "primary" not in killed
        killed.append("primary" if of_primary else "backup")
        if of_primary:
            cluster.bounce()
        else:
            cluster.restart(chance.choice(cluster.backups))
        progress(pairs)
        cluster.settle()
    in_threads([pair.stop for pair in pairs])
    for member in cluster.members:
        for pair in pairs:
            assert_browse_backup(member, pair.queue, [])  # while they receive: a message may come again behind the last
    in_threads([pair.close for pair in pairs])
    for pair in pairs:
        assert_nothing_lost(pair)


def test_36_tx_send_receive(cluster: Cluster) -> None:
    """Batches of ten, sent in transactions, moved from queue to queue in transactions: one end state on all brokers."""
    primary, *backups = cluster.ready()
    batches = 30

    def send() -> None:
        with primary.channel(confirm=False) as channel:
            channel.tx_select()
            for batch in range(batches):
                for number in range(10):
                    channel.basic_publish("", "r36.source", b"%d" % (10 * batch + number))
                channel.tx_commit()

    def move() -> None:
        with primary.channel(confirm=False) as channel:
            channel.tx_select()
            channel.basic_qos(prefetch_count=10)
            for count, (method, _, body) in enumerate(channel.consume("r36.source"), 1):
                channel.basic_publish("", "r36.target", body)
                channel.basic_ack(method.delivery_tag)
                if count % 10 == 0:
                    channel.tx_commit()
                if count == 10 * batches:
                    break

    with primary.channel() as channel:
        for queue in ("r36.source", "r36.target"):
            channel.queue_declare(queue, durable=True)
    in_threads([send, move])
    for member in (primary, *backups):
        assert_browse_backup(member, "r36.source", [])
        assert_browse_backup(member, "r36.target", range(10 * batches))


def test_37_order_of_declarations(cluster: Cluster) -> None:
    """There is no feed of management events.  What the original's protects, the order of declare and delete of one
    name, is the replication log's here: whatever two racing clients did, the backups have what the primary has."""
    primary, *backups = cluster.ready()

    def race() -> None:
        with primary.channel() as channel:
            for _ in range(200):
                for name in ("r37.a", "r37.b"):
                    channel.queue_declare(name)
                    channel.exchange_declare(name, "fanout")
                    channel.queue_delete(name)
                    channel.exchange_delete(name)
                channel.queue_declare("r37.left")

    in_threads([race, race])

    def shown(member: Member) -> list[tuple[str, object]]:
        return [(name, queue["arguments"]) for name, queue in member.queues().items() if name.startswith("r37")]

    wait_for(lambda: [shown(member) for member in backups] == [shown(primary)] * 2, what="the same queues everywhere")
    assert shown(primary)
    with primary.channel() as channel:
        for name in ("r37.a", "r37.b"):
            channel.queue_declare(name)
            publish(channel, name, ["last"])
    for member in backups:
        assert_browse_backup(member, "r37.a", ["last"])
        assert_browse_backup(member, "r37.b", ["last"])


def test_38_many_queues(make_cluster) -> None:
    """The original ends at 65,434 replicated queues, one channel each.  Here all go through one log: no limit of ours.
    Two thousand queues, a backup that copies them, a fail-over: the cluster lives."""
    cluster = make_cluster(2).start()
    primary, backup = cluster.members

    def declare(part: int) -> None:
        with primary.channel() as channel:
            for number in range(part, 2000, 4):
                channel.queue_declare(f"q{number}", durable=True)
                if number % 100 == 0:
                    publish(channel, f"q{number}", [number])

    in_threads([partial(declare, part) for part in range(4)])
    cluster.restart(backup)
    assert len(backup.queues()) == 2000
    primary.kill()
    backup.promote()
    backup.wait_status("active")
    with backup.channel() as channel:
        publish(channel, "q1999", ["on"])
    assert backup.peek("q1900") == ["1900"]
    assert backup.peek("q1999") == ["on"]
