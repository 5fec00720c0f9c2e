"""Every method of AMQP 0-9-1 as pika, an unmodified client, uses it."""

import threading
import time

import pika
import pytest
from pika.exceptions import (
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)


def wait_for(condition, connection=None, timeout=60.0):
    """Polls `condition`, serving `connection` meanwhile."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        if connection is not None:
            connection.process_data_events(0.01)
        else:
            threading.Event().wait(0.005)


def closed_with(code):
    """Expects a channel exception with this reply code."""
    return pytest.raises(ChannelClosedByBroker, match=rf"\({code}, ")


def drain(channel, queue, **options):
    """All bodies that are there."""
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


# ---------------------------------------------------------------- connection


def test_open_and_close(server):
    connection = server.connect()
    properties = connection._impl.server_properties
    assert properties["product"] == "qpidd-py"
    for name in (
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "exchange_exchange_bindings",
        "connection.blocked",
        "per_consumer_qos",
        "authentication_failure_close",
    ):
        assert properties["capabilities"][name] is True
    assert connection.publisher_confirms_supported
    connection.close()
    wait_for(lambda: not server.broker.connections)


def test_wrong_password(server):
    with pytest.raises((AuthenticationError, ProbableAuthenticationError)):
        server.connect(credentials=pika.PlainCredentials("guest", "wrong"))
    wait_for(lambda: not server.broker.connections)


def test_unknown_vhost(server):
    with pytest.raises(ProbableAccessDeniedError, match=r"\(530\) 'NOT_ALLOWED - vhost elsewhere not found'"):
        server.connect(virtual_host="elsewhere")


def test_tune_is_respected(server):
    connection = server.connect(frame_max=4096, channel_max=5)
    channel = connection.channel()
    channel.queue_declare("q")
    body = bytes(range(256)) * 100
    channel.basic_publish("", "q", body)
    assert drain(channel, "q") == [body]
    connection.close()


def test_broker_closes_clients(server, connection, channel):
    server.call(lambda: server.broker.close_clients(320, "going down"))
    with pytest.raises(ConnectionClosedByBroker) as info:
        wait_for(lambda: False, connection)
    assert info.value.reply_code == 320
    assert info.value.reply_text == "CONNECTION_FORCED - going down"
    wait_for(lambda: not server.broker.connections)


def test_blocked(server, connection, channel):
    seen = []
    channel.basic_publish("", "nowhere", b"this one publishes")
    wait_for(lambda: any(each.core.publisher for each in server.broker.connections), connection)
    connection.add_on_connection_blocked_callback(lambda _, frame: seen.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda *_: seen.append("unblocked"))
    server.call(lambda: server.broker.block("memory"))
    server.call(server.broker.unblock)
    wait_for(lambda: len(seen) == 2, connection)
    assert seen == ["memory", "unblocked"]


# ---------------------------------------------------------------- channel


def test_channel_close_and_reuse(connection):
    channel = connection.channel(7)
    channel.close()
    again = connection.channel(7)
    again.queue_declare("q")
    assert again.channel_number == 7


def test_many_channels(connection):
    channels = [connection.channel() for _ in range(50)]
    for number, channel in enumerate(channels):
        channel.queue_declare(f"q{number}")
        channel.basic_publish("", f"q{number}", b"%d" % number)
    for number, channel in enumerate(channels):
        assert drain(channel, f"q{number}") == [b"%d" % number]


def test_channel_exception_costs_the_channel_only(connection):
    other = connection.channel()
    channel = connection.channel()
    with closed_with(404):
        channel.queue_declare("nowhere", passive=True)
    other.queue_declare("q")
    again = connection.channel(channel.channel_number)
    again.queue_declare("q", passive=True)


def test_failed_channel_gives_back_what_it_held(connection):
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    assert channel.basic_get("q")[2] == b"x"
    with closed_with(404):
        channel.queue_declare("nowhere", passive=True)
    method, _, body = connection.channel().basic_get("q")
    assert body == b"x" and method.redelivered


def test_flow(connection, channel):
    channel.queue_declare("q")
    got = []
    channel.basic_consume("q", lambda *a: got.append(a[3]), auto_ack=True)
    assert channel.flow(False) is False
    connection.channel().basic_publish("", "q", b"x")
    connection.process_data_events(0.1)
    assert got == []
    assert channel.flow(True) is True
    wait_for(lambda: got == [b"x"], connection)


# ---------------------------------------------------------------- exchanges


@pytest.mark.parametrize("name", ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"])
def test_predeclared(channel, name):
    channel.exchange_declare(name, passive=True)
    channel.exchange_declare(name, name[4:].replace("match", "headers"), durable=True)


def test_exchange_declare_rules(connection):
    channel = connection.channel()
    channel.exchange_declare("e", "direct")
    channel.exchange_declare("e", "direct")
    for options in ({"exchange_type": "fanout"}, {"exchange_type": "direct", "durable": True}):
        with closed_with(406):
            connection.channel().exchange_declare("e", **options)
    with closed_with(404):
        connection.channel().exchange_declare("none", passive=True)
    with closed_with(403):
        connection.channel().exchange_declare("amq.mine", "direct")
    with closed_with(403):
        connection.channel().exchange_declare("", "direct")


def test_unknown_exchange_type(channel):
    with pytest.raises(ConnectionClosedByBroker) as info:
        channel.exchange_declare("e", "x-strange")
    assert info.value.reply_code == 503


def test_exchange_delete(connection):
    channel = connection.channel()
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "e")
    with closed_with(406):
        connection.channel().exchange_delete("e", if_unused=True)
    channel.exchange_delete("e")
    channel.exchange_delete("e")
    with closed_with(404):
        channel.basic_publish("e", "", b"")
        channel.queue_declare("q", passive=True)
    with closed_with(403):
        connection.channel().exchange_delete("amq.direct")


def test_direct_and_default(channel):
    channel.exchange_declare("e", "direct")
    for name in "ab":
        channel.queue_declare(name)
        channel.queue_bind(name, "e", "both")
    channel.queue_bind("a", "e", "only a")
    channel.basic_publish("e", "both", b"1")
    channel.basic_publish("e", "only a", b"2")
    channel.basic_publish("e", "nobody", b"3")
    channel.basic_publish("", "b", b"4")
    assert drain(channel, "a") == [b"1", b"2"]
    assert drain(channel, "b") == [b"1", b"4"]


def test_fanout_delivers_once_to_a_queue_with_two_bindings(channel):
    channel.exchange_declare("e", "fanout")
    channel.queue_declare("q")
    channel.queue_bind("q", "e", "x")
    channel.queue_bind("q", "e", "y")
    channel.basic_publish("e", "z", b"1")
    assert drain(channel, "q") == [b"1"]


def test_topic(channel):
    for name, key in {"all": "#", "one": "a.*", "deep": "a.#.z", "exact": "a.b"}.items():
        channel.queue_declare(name)
        channel.queue_bind(name, "amq.topic", key)
    for key in ("a.b", "a.z", "a.b.c.z", "b"):
        channel.basic_publish("amq.topic", key, key.encode())
    assert drain(channel, "all") == [b"a.b", b"a.z", b"a.b.c.z", b"b"]
    assert drain(channel, "one") == [b"a.b", b"a.z"]
    assert drain(channel, "deep") == [b"a.z", b"a.b.c.z"]
    assert drain(channel, "exact") == [b"a.b"]


def test_headers(channel):
    for name, arguments in {
        "both": {"x-match": "all", "kind": "a", "n": 1},
        "any": {"x-match": "any", "kind": "a", "n": 1},
        "present": {"kind": None},
    }.items():
        channel.queue_declare(name)
        channel.queue_bind(name, "amq.headers", arguments=arguments)
    for body, headers in {b"1": {"kind": "a", "n": 1}, b"2": {"kind": "a"}, b"3": {"n": 1}, b"4": {}}.items():
        channel.basic_publish("amq.headers", "", body, pika.BasicProperties(headers=headers))
    channel.basic_publish("amq.headers", "", b"5")
    assert drain(channel, "both") == [b"1"]
    assert drain(channel, "any") == [b"1", b"2", b"3"]
    assert drain(channel, "present") == [b"1", b"2"]


def test_exchange_to_exchange(channel):
    channel.exchange_declare("first", "topic")
    channel.exchange_declare("second", "fanout", internal=True)
    channel.queue_declare("q")
    channel.queue_bind("q", "second")
    channel.exchange_bind("second", "first", "a.#")
    channel.basic_publish("first", "a.b", b"1")
    channel.exchange_unbind("second", "first", "a.#")
    channel.basic_publish("first", "a.b", b"2")
    assert drain(channel, "q") == [b"1"]
    with closed_with(403):
        channel.basic_publish("second", "", b"3")
        channel.queue_declare("q", passive=True)


def test_alternate_exchange(channel):
    channel.exchange_declare("e", "direct", arguments={"alternate-exchange": "rest"})
    channel.queue_declare("hit")
    channel.queue_declare("left")
    channel.queue_bind("hit", "e", "hit")
    channel.basic_publish("e", "other", b"too early: the alternate does not exist")
    channel.exchange_declare("rest", "fanout")
    channel.queue_bind("left", "rest")
    channel.basic_publish("e", "hit", b"1")
    channel.basic_publish("e", "other", b"2")
    assert drain(channel, "hit") == [b"1"]
    assert drain(channel, "left") == [b"2"]


def test_auto_delete_exchange(channel):
    channel.exchange_declare("e", "direct", auto_delete=True)
    channel.queue_declare("q")
    channel.queue_bind("q", "e", "k")
    channel.exchange_declare("e", passive=True)
    channel.queue_unbind("q", "e", "k")
    with closed_with(404):
        channel.exchange_declare("e", passive=True)


# ---------------------------------------------------------------- queues


def test_queue_declare_rules(server, connection):
    channel = connection.channel()
    ok = channel.queue_declare("q", durable=True, arguments={"x-mine": "kept"}).method
    assert (ok.queue, ok.message_count, ok.consumer_count) == ("q", 0, 0)
    channel.basic_publish("", "q", b"x")
    assert channel.queue_declare("q", durable=True, arguments={"x-mine": "kept"}).method.message_count == 1
    assert channel.queue_declare("q", durable=True, arguments={"x-queue-type": "classic"}).method.message_count == 1
    for options in ({}, {"durable": True, "auto_delete": True}, {"durable": True, "arguments": {"x-max-length": 1}}):
        with closed_with(406):
            connection.channel().queue_declare("q", **options)
    with closed_with(405):
        connection.channel().queue_declare("q", durable=True, exclusive=True)
    with closed_with(404):
        connection.channel().queue_declare("none", passive=True)
    with closed_with(403):
        connection.channel().queue_declare("amq.mine")
    assert server.broker.vhost.queues["q"].arguments == {"x-mine": "kept", "qpid.replicate": "none"}


def test_bad_arguments(connection):
    for arguments in (
        {"qpid.replicate": "some"},
        {"x-expires": 0},
        {"x-message-ttl": "soon"},
        {"x-dead-letter-exchange": 1},
        {"x-dead-letter-exchange": "x" * 256},
        {"x-dead-letter-routing-key": "without an exchange"},
        {"alternate-exchange": True},
    ):
        with closed_with(406):
            connection.channel().queue_declare("q", arguments=arguments)


def test_server_named_queue(channel):
    first = channel.queue_declare("").method.queue
    second = channel.queue_declare("").method.queue
    assert first.startswith("amq.gen-") and first != second
    channel.basic_publish("", second, b"x")
    assert channel.queue_declare("", passive=True).method.queue == second
    assert channel.basic_get("")[2] == b"x"
    channel.queue_bind("", "amq.direct")
    channel.basic_publish("amq.direct", second, b"y")
    assert channel.basic_get(second)[2] == b"y"


def test_no_queue_declared_before(channel):
    with closed_with(404):
        channel.queue_purge("")


def test_exclusive_queue(server, connection):
    channel = connection.channel()
    channel.queue_declare("mine", exclusive=True)
    other = server.connect()
    for use in (
        lambda c: c.queue_declare("mine", exclusive=True),
        lambda c: c.queue_declare("mine", passive=True),
        lambda c: c.basic_get("mine"),
        lambda c: c.basic_consume("mine", print),
        lambda c: c.queue_bind("mine", "amq.direct", "k"),
        lambda c: c.queue_purge("mine"),
        lambda c: c.queue_delete("mine"),
    ):
        with closed_with(405):
            use(other.channel())
    channel.queue_declare("mine", exclusive=True)
    connection.close()
    wait_for(lambda: "mine" not in server.broker.vhost.queues)
    other.channel().queue_declare("mine")
    other.close()


def test_auto_delete_queue(server, connection):
    channel = connection.channel()
    channel.queue_declare("a", auto_delete=True)
    channel.queue_declare("b", auto_delete=True)
    channel.basic_cancel(channel.basic_consume("a", print))
    with closed_with(404):
        connection.channel().queue_declare("a", passive=True)
    channel.basic_consume("b", print)
    channel.queue_declare("b", passive=True)
    connection.close()
    wait_for(lambda: not server.broker.vhost.queues)


def test_bind_unbind_with_arguments(connection):
    channel = connection.channel()
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.direct", "k", arguments={"a": 1})
    channel.queue_bind("q", "amq.direct", "k", arguments={"a": 2})
    channel.queue_unbind("q", "amq.direct", "k", arguments={"a": 1})
    channel.basic_publish("amq.direct", "k", b"1")
    channel.queue_unbind("q", "amq.direct", "k", arguments={"a": 2})
    channel.queue_unbind("q", "amq.direct", "k", arguments={"a": 2})
    channel.basic_publish("amq.direct", "k", b"2")
    assert drain(channel, "q") == [b"1"]
    with closed_with(404):
        connection.channel().queue_bind("q", "none")
    with closed_with(404):
        connection.channel().queue_bind("none", "amq.direct")
    with closed_with(403):
        connection.channel().queue_bind("q", "", "k")


def test_purge(channel):
    channel.queue_declare("q")
    for _ in range(5):
        channel.basic_publish("", "q", b"x")
    held = channel.basic_get("q")
    assert channel.queue_purge("q").method.message_count == 4
    channel.basic_nack(held[0].delivery_tag)
    assert channel.basic_get("q")[2] == b"x"


def test_delete(connection):
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    with closed_with(406):
        connection.channel().queue_delete("q", if_empty=True)
    tag = channel.basic_consume("q", lambda *_: None)
    with closed_with(406):
        connection.channel().queue_delete("q", if_unused=True)
    channel.basic_cancel(tag)
    channel.queue_declare("p")
    channel.queue_delete("p", if_unused=True, if_empty=True)
    assert channel.queue_delete("q").method.message_count in (0, 1)
    assert channel.queue_delete("q").method.message_count == 0


def test_queue_names_that_pamqp_would_refuse(channel):
    for name in ("with blank", "grüße", "a" * 255):
        assert channel.queue_declare(name).method.queue == name


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
