"""Rows 45 to 50: a transaction is on all brokers as a whole, or nowhere."""

import contextlib
import threading

import pika
import pytest

from tests.acceptance.clients import assert_browse_backup, publish, take
from tests.acceptance.cluster import Cluster, Member
from tests.acceptance.load import TROUBLE
from tests.support.wait import wait_for


def begin(channel, prefix: str, count: int = 3) -> None:
    """A source with messages, a target, and a transaction from one to the other that is not committed."""
    channel.queue_declare(f"{prefix}.source", durable=True)
    channel.queue_declare(f"{prefix}.target", durable=True)
    publish(channel, f"{prefix}.source", range(count))
    channel.tx_select()
    bodies = take(channel, f"{prefix}.source", count)
    for body in bodies:
        channel.basic_publish("", f"{prefix}.target", body.encode())
    # A request that is answered behind them: the broker has seen all of it.
    channel.queue_declare(f"{prefix}.target", passive=True)


def check(members: list[Member], prefix: str, source, target) -> None:
    for member in members:
        assert_browse_backup(member, f"{prefix}.source", source)
        assert_browse_backup(member, f"{prefix}.target", target)


def test_45_tx_simple_commit(cluster: Cluster) -> None:
    """Nothing is seen before the commit, everything after it, on all brokers."""
    primary, *backups = cluster.ready()
    with primary.channel(confirm=False) as channel:
        begin(channel, "r45")
        check(backups, "r45", range(3), [])
        assert primary.peek("r45.target") == []
        channel.tx_commit()
        # The answer to the commit waits for the backups: no polling here.
        for member in cluster.members:
            assert member.peek("r45.source") == []
            assert member.peek("r45.target") == ["0", "1", "2"]


def test_46_tx_simple_rollback(cluster: Cluster) -> None:
    """The acknowledgements are undone too: with the channel the messages are back, everywhere as before."""
    primary, *_ = cluster.ready()
    with primary.channel(confirm=False) as channel:
        begin(channel, "r46")
        channel.tx_rollback()
    check(cluster.members, "r46", range(3), [])


def test_47_tx_simple_failure(cluster: Cluster) -> None:
    """The primary dies in the middle: the client learns it with the commit, and no broker has any of it."""
    primary, first, second = cluster.ready()
    with primary.channel(confirm=False) as channel:
        begin(channel, "r47")
        cluster.fail_over(to=first)
        with pytest.raises(TROUBLE):
            channel.tx_commit()
    check([first, second], "r47", range(3), [])
    primary.start()
    cluster.settle()
    check([primary], "r47", range(3), [])


def test_48_tx_join_leave(cluster: Cluster) -> None:
    """A backup leaves and one joins during a transaction: the result is complete on all."""
    primary, first, second = cluster.ready()
    first.kill()
    with primary.channel(confirm=False) as channel:
        begin(channel, "r48")
        second.kill()
        first.start().wait_status("ready")
        channel.basic_publish("", "r48.target", b"late")
        channel.tx_commit()
    second.start().wait_status("ready")
    check(cluster.members, "r48", [], [0, 1, 2, "late"])


def test_49_tx_concurrent_commits(cluster: Cluster) -> None:
    """Ten clients commit at the same time, twenty times each, while a backup stands still for a moment: no commit
    blocks the others for good, none is half done."""
    primary, first, second = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r49", durable=True)
    failed: list[Exception] = []

    def commit(number: int) -> None:
        try:
            with primary.channel(confirm=False) as channel:
                channel.tx_select()
                for batch in range(20):
                    for half in "ab":
                        channel.basic_publish("", "r49", f"{number}.{batch}.{half}".encode())
                    channel.tx_commit()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(primary.peek("r49")) > 20, what="commits")
    first.pause()
    first.resume()
    for thread in threads:
        thread.join(30)
    assert not failed
    found = primary.peek("r49")
    assert sorted(found) == sorted(f"{n}.{batch}.{half}" for n in range(10) for batch in range(20) for half in "ab")
    # A commit is one operation of the log: its messages stand together.
    assert all(a[:-1] == b[:-1] for a, b in zip(found[::2], found[1::2], strict=True))
    for member in (first, second):
        assert_browse_backup(member, "r49", found)


def test_50_commit_without_select(cluster: Cluster) -> None:
    primary, *_ = cluster.ready()
    for method in ("tx_commit", "tx_rollback"):
        with primary.channel(confirm=False) as channel:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                getattr(channel, method)()
            assert caught.value.reply_code == 406


def test_50_select_twice_and_commit_nothing(cluster: Cluster) -> None:
    primary, *_ = cluster.ready()
    with primary.channel(confirm=False) as channel:
        for _ in range(2):
            channel.tx_select()
            channel.tx_commit()
            channel.tx_rollback()


def test_50_confirms_and_transactions_exclude_each_other(cluster: Cluster) -> None:
    primary, *_ = cluster.ready()
    with primary.channel() as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.tx_select()
    assert caught.value.reply_code == 406


def test_50_several_queues_and_exchanges_in_one_transaction(cluster: Cluster) -> None:
    primary, *backups = cluster.ready()
    with primary.channel(confirm=False) as channel:
        channel.exchange_declare("r50", "fanout")
        for name in ("r50.a", "r50.b"):
            channel.queue_declare(name)
            channel.queue_bind(name, "r50")
        channel.tx_select()
        channel.basic_publish("r50", "", b"both")
        channel.basic_publish("", "r50.b", b"one")
        channel.tx_commit()
    for member in backups:
        assert_browse_backup(member, "r50.a", ["both"])
        assert_browse_backup(member, "r50.b", ["both", "one"])


def test_50_reject_in_a_transaction(cluster: Cluster) -> None:
    """What was rejected goes with the commit; what was put back, or not settled at all, stays."""
    primary, *backups = cluster.ready()
    with primary.channel(confirm=False) as channel:
        channel.queue_declare("r50.reject")
        publish(channel, "r50.reject", range(4))
        channel.tx_select()
        tags = [channel.basic_get("r50.reject")[0].delivery_tag for _ in range(4)]
        channel.basic_ack(tags[0])
        channel.basic_reject(tags[1], requeue=False)
        channel.basic_reject(tags[2], requeue=True)
        channel.tx_commit()
    for member in (primary, *backups):
        assert_browse_backup(member, "r50.reject", [2, 3])


def test_50_a_channel_that_closes_takes_its_transaction_along(cluster: Cluster) -> None:
    primary, *backups = cluster.ready()
    connection = primary.connect()
    with contextlib.closing(connection):
        channel = connection.channel()
        begin(channel, "r50.close")
        channel.close()
        check([primary, *backups], "r50.close", range(3), [])
