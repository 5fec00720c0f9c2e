"""Every method of AMQP 0-9-1 as pika, an unmodified client, uses it: messages and transactions."""

import pika
import pytest
from pika.exceptions import (
    ConnectionClosedByBroker,
    UnroutableError,
)

from tests.interop.pika_lab import closed_with, drain, wait_for

# ---------------------------------------------------------------- basic


def test_publish_all_properties(channel):
    channel.queue_declare("q")
    properties = pika.BasicProperties(
        "text/plain",
        "utf-8",
        {"a": 1, "t": {"b": [1, "x", None]}},
        2,
        3,
        "cid",
        "rt",
        "60000",
        "mid",
        1234567890,
        "type",
        "guest",
        "app",
        "cluster",
    )
    channel.basic_publish("", "q", b"body", properties)
    method, found, body = channel.basic_get("q")
    assert (found, body, method.routing_key, method.exchange) == (properties, b"body", "q", "")


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 1_000_000])
def test_body_sizes(channel, size):
    channel.queue_declare("q")
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    channel.basic_publish("", "q", body)
    assert channel.basic_get("q", auto_ack=True)[2] == body


def test_confirms(channel):
    channel.confirm_delivery()
    channel.queue_declare("q")
    for number in range(20):
        channel.basic_publish("", "q", b"%d" % number)
    assert len(drain(channel, "q")) == 20
    channel.basic_publish("", "nowhere", b"dropped, but confirmed")


def test_mandatory(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as info:
        channel.basic_publish("", "nowhere", b"x", mandatory=True)
    (returned,) = info.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.routing_key, returned.body) == ("nowhere", b"x")
    plain = connection.channel()
    seen = []
    plain.add_on_return_callback(lambda *arguments: seen.append(arguments[3]))
    plain.basic_publish("", "nowhere", b"y", mandatory=True)
    wait_for(lambda: seen == [b"y"], connection)


def test_publish_to_missing_exchange(channel):
    channel.confirm_delivery()
    with closed_with(404):
        channel.basic_publish("none", "k", b"x")


def test_consume_ack(connection, channel):
    channel.queue_declare("q")
    for number in range(10):
        channel.basic_publish("", "q", b"%d" % number)
    got = []

    def on_message(chan, method, properties, body):
        got.append(body)
        chan.basic_ack(method.delivery_tag)

    tag = channel.basic_consume("q", on_message, consumer_tag="mine")
    assert tag == "mine"
    wait_for(lambda: len(got) == 10, connection)
    assert got == [b"%d" % number for number in range(10)]
    channel.basic_cancel("mine")
    channel.basic_cancel("mine")
    channel.basic_publish("", "q", b"later")
    connection.process_data_events(0.05)
    assert drain(channel, "q") == [b"later"]


def test_consumer_tags(server, connection):
    channel = connection.channel()
    channel.queue_declare("q")
    assert connection._impl is not None
    raw = channel._impl
    replies: list = []
    raw.basic_consume("q", lambda *_: None, callback=replies.append)
    wait_for(lambda: replies, connection)
    assert replies[0].method.consumer_tag
    assert channel.queue_declare("q", passive=True).method.consumer_count == 1


def test_exclusive_consumer(connection):
    channel = connection.channel()
    channel.queue_declare("q")
    tag = channel.basic_consume("q", print, exclusive=True)
    with closed_with(403):
        connection.channel().basic_consume("q", print)
    channel.basic_cancel(tag)
    channel.basic_consume("q", print)
    with closed_with(403):
        connection.channel().basic_consume("q", print, exclusive=True)


def test_consumer_cancel_notification(connection):
    channel = connection.channel()
    channel.queue_declare("q")
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume("q", print)
    connection.channel().queue_delete("q")
    wait_for(lambda: cancelled == [tag], connection)


def test_nack_and_reject(channel):
    channel.queue_declare("q")
    for number in range(4):
        channel.basic_publish("", "q", b"%d" % number)
    tags = [channel.basic_get("q")[0].delivery_tag for _ in range(4)]
    channel.basic_reject(tags[0], requeue=False)
    channel.basic_reject(tags[1], requeue=True)
    channel.basic_nack(tags[3], multiple=True, requeue=True)
    got = [channel.basic_get("q", auto_ack=True) for _ in range(3)]
    assert [body for _, _, body in got] == [b"1", b"2", b"3"]
    assert all(method.redelivered for method, _, _ in got)
    assert channel.basic_get("q") == (None, None, None)


def test_unknown_delivery_tag(channel):
    channel.basic_ack(99)
    with closed_with(406):
        channel.queue_declare("q")


def test_ack_multiple_zero_means_all(channel):
    channel.queue_declare("q")
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    for _ in range(3):
        channel.basic_get("q")
    channel.basic_ack(0, multiple=True)
    assert channel.queue_delete("q", if_empty=True)


def test_recover(connection, channel):
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    assert channel.basic_get("q")[2] == b"x"
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get("q")
    assert body == b"x" and method.redelivered


def test_qos_per_consumer(connection, channel):
    channel.queue_declare("q")
    for _ in range(10):
        channel.basic_publish("", "q", b"x")
    channel.basic_qos(prefetch_count=3)
    tags = []
    channel.basic_consume("q", lambda c, m, p, b: tags.append(m.delivery_tag))
    wait_for(lambda: len(tags) == 3, connection)
    connection.process_data_events(0.05)
    assert len(tags) == 3
    channel.basic_ack(tags[1], multiple=True)
    wait_for(lambda: len(tags) == 5, connection)


def test_qos_of_the_channel(connection, channel):
    for name in "ab":
        channel.queue_declare(name)
        for _ in range(10):
            channel.basic_publish("", name, b"x")
    channel.basic_qos(prefetch_count=4, global_qos=True)
    tags = []
    for name in "ab":
        channel.basic_consume(name, lambda c, m, p, b: tags.append(m.delivery_tag))
    wait_for(lambda: len(tags) == 4, connection)
    connection.process_data_events(0.05)
    assert len(tags) == 4
    channel.basic_qos(prefetch_count=6, global_qos=True)
    wait_for(lambda: len(tags) == 6, connection)


def test_prefetch_size_is_refused(channel):
    with pytest.raises(ConnectionClosedByBroker) as info:
        channel.basic_qos(prefetch_size=1)
    assert info.value.reply_code == 540


# ---------------------------------------------------------------- transactions


def test_tx_commit_and_rollback(server, channel):
    channel.queue_declare("q")
    channel.tx_select()
    other = server.connect()
    channel.basic_publish("", "q", b"1")
    assert other.channel().basic_get("q") == (None, None, None)
    channel.tx_commit()
    assert other.channel().basic_get("q", auto_ack=True)[2] == b"1"
    channel.basic_publish("", "q", b"2")
    channel.tx_rollback()
    channel.tx_commit()
    assert other.channel().basic_get("q") == (None, None, None)
    other.close()


def test_tx_acks(server, connection, channel):
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"1")
    channel.tx_select()
    tag = channel.basic_get("q")[0].delivery_tag
    channel.basic_ack(tag)
    channel.tx_rollback()
    channel.basic_ack(tag)
    channel.tx_commit()
    channel.close()
    assert connection.channel().basic_get("q") == (None, None, None)


def test_tx_and_confirms_exclude_each_other(connection):
    channel = connection.channel()
    channel.tx_select()
    with closed_with(406):
        channel.confirm_delivery()
    channel = connection.channel()
    channel.confirm_delivery()
    with closed_with(406):
        channel.tx_select()
    for method in ("tx_commit", "tx_rollback"):
        with closed_with(406):
            getattr(connection.channel(), method)()


def test_tx_commit_after_exchange_is_gone(server, connection, channel):
    """The commit fails as a whole channel; the broker survives it."""
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"held")
    channel.tx_select()
    channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    channel.basic_publish("e", "", b"1")
    connection.channel().exchange_delete("e")
    with closed_with(404):
        channel.tx_commit()
    connection.channel().queue_declare("q", passive=True)
