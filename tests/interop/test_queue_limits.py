"""Queue arguments that decide what stays in a queue and in which order it leaves, through pika; and on a backup."""

import pika
import pytest
from pika.exceptions import NackError

from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from tests.support.wait import wait_for


def bodies(channel, queue):
    found = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        found.append(body)
    return found


def publish(channel, queue, *messages, **properties):
    for body in messages:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def test_a_ring_keeps_the_newest(channel):
    channel.queue_declare("ring", arguments={"x-max-length": 5, "x-overflow": "drop-head"})
    publish(channel, "ring", *(b"%d" % i for i in range(10)))
    assert bodies(channel, "ring") == [b"%d" % i for i in range(5, 10)]


def test_a_ring_of_octets(channel):
    channel.queue_declare("ring", arguments={"x-max-length-bytes": 10})
    publish(channel, "ring", b"1234", b"5678", b"90ab")
    assert bodies(channel, "ring") == [b"5678", b"90ab"]


def test_a_full_queue_refuses_the_newest(channel):
    channel.queue_declare("full", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    publish(channel, "full", b"0", b"1")
    with pytest.raises(NackError):
        publish(channel, "full", b"2")
    assert bodies(channel, "full") == [b"0", b"1"]
    publish(channel, "full", b"3")
    assert bodies(channel, "full") == [b"3"]


def test_the_higher_priority_leaves_first(channel):
    channel.queue_declare("p", arguments={"x-max-priority": 9, "x-max-length": 5})
    for priority in (3, 1, 4, 1, 5, 9, 2, 6):
        publish(channel, "p", b"%d" % priority, priority=priority)
    assert bodies(channel, "p") == [b"9", b"6", b"5", b"4", b"3"]


def test_time_to_live(channel, server):
    channel.queue_declare("ttl", arguments={"x-message-ttl": 1})
    channel.queue_declare("own")
    publish(channel, "ttl", b"gone")
    publish(channel, "own", b"gone", expiration="1")
    publish(channel, "own", b"stays", expiration="60000")
    core = {name: server.broker.vhost.queues[name].core for name in ("ttl", "own")}
    wait_for(lambda: (core["ttl"].enqueued, core["own"].enqueued) == (1, 2))  # all have come
    wait_for(lambda: core["ttl"].ready == 0 and core["own"].ready == 1, timeout=60)
    assert bodies(channel, "own") == [b"stays"]


def test_a_backup_knows_the_limits_when_it_is_promoted():
    primary, backup = Broker(), Broker()
    primary.vhosts.rules.default_replicate, backup.passive = "all", True
    arguments = {"x-max-length": 7, "x-message-ttl": 99, "x-max-priority": 2, "x-overflow": "reject-publish"}
    primary.vhost.declare_queue(None, "q", True, False, False, arguments)
    adopt(backup.configurations, primary.configurations.snapshot())
    core = backup.vhost.queues["q"].core
    assert (core.max_count, core.ttl, core.rejects, len(core.levels or ())) == (7, 99, True, 3)
