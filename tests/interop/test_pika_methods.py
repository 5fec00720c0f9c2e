"""Every method of AMQP 0-9-1 as pika, an unmodified client, uses it: connections, channels, exchanges, queues."""

import pika
import pytest
from pika.exceptions import (
    AuthenticationError,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tests.interop.pika_lab import closed_with, drain, wait_for

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
