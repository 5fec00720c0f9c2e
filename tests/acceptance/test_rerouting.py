"""Rows 26, 27, 30, 31: alternate exchanges and dead letters, queues that go by themselves, and fail-overs between."""

import pika
import pytest

from tests.acceptance.clients import assert_browse_backup, publish, take, wait_no_queue
from tests.acceptance.cluster import Cluster, Member
from tests.support.wait import wait_for


def alternate(channel, name: str) -> dict[str, str]:
    """A fanout exchange with a queue of the same name behind it; the arguments that make it somebody's alternate."""
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name)
    return {"alternate-exchange": name}


def check_rerouting(member: Member, prefix: str) -> None:
    """All three ways to the alternate queue, on a broker that has just been promoted."""
    with member.channel() as channel:
        publish(channel, "unknown", ["unroutable"], exchange=f"{prefix}.exchange")
        publish(channel, f"{prefix}.queue", ["rejected", "left over"])
        method, _, body = channel.basic_get(f"{prefix}.queue")
        assert body == b"rejected"
        channel.basic_reject(method.delivery_tag, requeue=False)
        wait_for(lambda: len(member.peek(f"{prefix}.alternate")) == 2, what="the rejected message")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.exchange_delete(f"{prefix}.alternate", if_unused=True)
        assert caught.value.reply_code == 406
    with member.channel() as channel:
        channel.queue_delete(f"{prefix}.queue")


@pytest.mark.parametrize("kind", ["steady", "joined"])
def test_26_alternate_exchange(cluster: Cluster, kind: str) -> None:
    """Of exchanges and queues, on a backup that saw them made and on one that joined later, among 200 others."""
    primary, promoted, other = cluster.ready()
    prefix = f"r26.{kind}"
    with primary.channel() as channel:
        arguments = alternate(channel, f"{prefix}.alternate")
        for number in range(200):
            channel.exchange_declare(f"{prefix}.{number}", "topic")
        channel.exchange_declare(f"{prefix}.exchange", "direct", durable=True, arguments=arguments)
        letters = {"x-dead-letter-exchange": f"{prefix}.alternate"}
        channel.queue_declare(f"{prefix}.queue", durable=True, arguments=arguments | letters)
        if kind == "joined":
            cluster.restart(promoted)
        for number in range(200):
            channel.exchange_delete(f"{prefix}.{number}")
    cluster.fail_over(to=promoted)
    check_rerouting(promoted, prefix)
    for member in (promoted, other):
        assert_browse_backup(member, f"{prefix}.alternate", ["unroutable", "rejected", "left over"])


def test_27_priority_reroute(cluster: Cluster) -> None:
    """A hundred messages of a priority queue are moved to itself through a fanout exchange: none is lost or doubled,
    the order is that of their priorities, on all brokers."""
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        channel.queue_declare("r27", arguments={"x-max-priority": 10})
        channel.exchange_declare("r27", "fanout")
        channel.queue_bind("r27", "r27")
        for number in range(100):
            publish(channel, "r27", [number], priority=number % 10)
        before = primary.peek("r27")
        assert primary.ask("queue.move", source="r27", exchange="r27") == {"moved": 100}
        for member in (primary, *backups):
            assert_browse_backup(member, "r27", before)
        assert take(channel, "r27", 100) == before


AUTO_DELETE = {
    "plain": {},
    "timed": {"qpid.auto_delete_timeout": 1},
    "expires": {"x-expires": 1000},
}


def make_auto_delete(channel, prefix: str) -> None:
    """One queue of each kind, each with an alternate exchange and two messages."""
    for kind, arguments in AUTO_DELETE.items():
        name = f"{prefix}.{kind}"
        spare = alternate(channel, f"{name}.alternate")
        channel.queue_declare(name, auto_delete=True, arguments={**arguments, **spare})
        publish(channel, name, ["a", "b"])


def test_30_auto_delete_failover(cluster: Cluster) -> None:
    """Used ones go when the primary dies, the timed ones after their time, each message to the alternate exchange
    exactly once.  One that was not used stays, until its first user leaves."""
    primary, promoted, other = cluster.ready()
    with primary.channel() as channel:
        make_auto_delete(channel, "r30")
        channel.queue_declare("r30.never", auto_delete=True, arguments=alternate(channel, "r30.never.alternate"))
        publish(channel, "r30.never", ["a", "b"])
        for kind in AUTO_DELETE:
            channel.basic_consume(f"r30.{kind}", lambda *_: None)
        cluster.fail_over(to=promoted)
    assert "r30.plain" not in promoted.queues()
    assert {"r30.timed", "r30.expires", "r30.never"} <= promoted.queues().keys()
    for member in (promoted, other):
        for kind in AUTO_DELETE:
            wait_no_queue(member, f"r30.{kind}")
            assert_browse_backup(member, f"r30.{kind}.alternate", ["a", "b"])
        assert_browse_backup(member, "r30.never", ["a", "b"])
    with promoted.channel() as channel:
        channel.basic_cancel(channel.basic_consume("r30.never", lambda *_: None))
    for member in (promoted, other):
        wait_no_queue(member, "r30.never")
        assert_browse_backup(member, "r30.never.alternate", ["a", "b"])


def test_31_auto_delete_close(cluster: Cluster) -> None:
    """The last consumer closes: the queue goes on the backups, too, and its content is re-routed once, not once by each
    broker."""
    primary, *backups = cluster.ready()
    with primary.channel() as channel:
        make_auto_delete(channel, "r31")
        tags = [channel.basic_consume(f"r31.{kind}", lambda *_: None) for kind in AUTO_DELETE]
        for member in backups:
            assert_browse_backup(member, "r31.plain", ["a", "b"])
        for tag in tags:
            channel.basic_cancel(tag)
    for member in (primary, *backups):
        for kind in AUTO_DELETE:
            wait_no_queue(member, f"r31.{kind}")
            assert_browse_backup(member, f"r31.{kind}.alternate", ["a", "b"])
