"""What no library does: wrong frames, wrong order, garbage.  Reply code, class and method id are the specification's,
and a client next to it notices nothing."""

import random
import struct

import pamqp.commands as commands
import pytest
from pamqp.encode import field_table

from tests.interop.raw import HEADER, RawClient, frame, method, publish, raw_method, shortstr

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue


@pytest.fixture
def bystander(server):
    """Works before, and must work after."""
    connection = server.connect()
    channel = connection.channel()
    channel.queue_declare("bystander")
    yield channel
    channel.basic_publish("", "bystander", b"still here")
    assert channel.basic_get("bystander", auto_ack=True)[2] == b"still here"
    connection.close()


@pytest.fixture
def raw(server, bystander):
    client = RawClient(server.port)
    yield client
    client.close()


# ---------------------------------------------------------------- handshake


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(8)],
)
def test_wrong_protocol_header(raw, header):
    raw.send(header)
    assert raw.read_to_end() == HEADER


def test_start_names_what_we_speak(raw):
    start = raw.start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms.split() == ["PLAIN", "AMQPLAIN"]
    assert "en_US" in start.locales


def test_amqplain(raw):
    response = field_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:].decode("latin-1")
    raw.open(mechanism="AMQPLAIN", response=response)


def test_response_on_request(raw):
    raw.start()
    raw.start_ok(response="")
    raw.expect(Connection.Secure)
    raw.send(method(0, Connection.SecureOk("\0guest\0guest")))
    raw.expect(Connection.Tune)


def test_tune_proposes_our_limits(raw):
    tune = raw.login()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@pytest.mark.parametrize("response", ["\0guest\0wrong", "\0nobody\0guest", "garbage", "\0\0"])
def test_refused_login(server, response):
    told = RawClient(server.port)
    told.start()
    told.start_ok(response=response, properties={"capabilities": {"authentication_failure_close": True}})
    assert told.expect_close(403, 10, 11).startswith("ACCESS_REFUSED - ")
    silent = RawClient(server.port)
    silent.start()
    silent.start_ok(response=response)
    assert silent.read_to_end() == b""


def test_unknown_mechanism(raw):
    raw.start()
    raw.start_ok(mechanism="EXTERNAL")
    raw.expect_close(503, 10, 11)


@pytest.mark.parametrize("limits", [(0, 100), (0, 4095), (0, 131073), (2048, 0)])
def test_limits_that_cannot_be(raw, limits):
    raw.login()
    raw.send(method(0, Connection.TuneOk(limits[0], limits[1], 0)))
    raw.expect_close(530, 10, 31)


def test_unknown_vhost(raw):
    raw.login()
    raw.send(method(0, Connection.TuneOk(0, 0, 0)), method(0, Connection.Open("/other")))
    raw.expect_close(530, 10, 40)


def test_wrong_order(raw):
    raw.start()
    raw.send(method(0, Connection.Open()))
    raw.expect_close(503, 10, 40)


def test_channel_before_open(raw):
    raw.login()
    raw.send(method(1, Channel.Open()))
    raw.expect_close(504, 20, 10)


def test_close_inside_the_handshake(raw):
    raw.start()
    raw.send(method(0, Connection.Close(200, "no, thanks", 0, 0)))
    raw.expect(Connection.CloseOk)
    assert raw.read() is None


# ---------------------------------------------------------------- frames

_DECLARE = b"\0\0" + shortstr(b"q") + b"\0"

FRAME_ERRORS = {
    "unknown frame type": (frame(4, 1, b"1234"), 501, 0, 0),
    "wrong frame end": (frame(1, 1, b"12345678", b"\xcd"), 501, 0, 0),
    "frame above frame_max": (struct.pack(">BHI", 1, 1, 131065), 501, 0, 0),
    "frame of four gigabytes": (struct.pack(">BHI", 3, 1, 0xFFFFFFFF), 501, 0, 0),
    "method without ids": (frame(1, 1, b"\0\x32"), 501, 0, 0),
    "empty method frame": (frame(1, 0, b""), 501, 0, 0),
    "heartbeat on a channel": (frame(8, 1, b""), 505, 0, 0),
    "heartbeat with content": (frame(8, 0, b"x"), 501, 0, 0),
    "unknown class": (raw_method(1, 99, 10), 540, 99, 10),
    "unknown method": (raw_method(1, 50, 99), 540, 50, 99),
    "unknown method on channel 0": (raw_method(0, 10, 99), 540, 10, 99),
    "cut off": (raw_method(1, 50, 10, b"\0\0\x20abc"), 501, 50, 10),
    "no arguments at all": (raw_method(1, 50, 10), 501, 50, 10),
    "something left over": (raw_method(1, 20, 20, b"\1\1"), 501, 20, 20),
    "table longer than its frame": (raw_method(1, 50, 10, _DECLARE + b"\xff\xff\xff\xff"), 501, 50, 10),
    "table cut in a name": (raw_method(1, 50, 10, _DECLARE + b"\0\0\0\x03\x20ab"), 501, 50, 10),
    "unknown field type": (raw_method(1, 50, 10, _DECLARE + b"\0\0\0\x03\x01aZ"), 501, 50, 10),
    "nested too deep": (raw_method(1, 50, 10, _DECLARE), 501, 50, 10),
    "name is not UTF-8": (raw_method(1, 50, 10, b"\0\0\x01\xff\0\0\0\0\0"), 501, 50, 10),
    "queue.declare on channel 0": (method(0, Queue.Declare(queue="q")), 504, 50, 10),
    "queue.declare on a channel that is not open": (method(9, Queue.Declare(queue="q")), 504, 50, 10),
    "basic.publish on a channel that is not open": (method(9, Basic.Publish()), 504, 60, 40),
    "content on a channel that is not open": (frame(3, 9, b"x"), 505, 0, 0),
    "channel opened twice": (method(1, Channel.Open()), 504, 20, 10),
    "channel beyond channel_max": (method(2048, Channel.Open()), 530, 20, 10),
    "connection method on a channel": (method(1, Connection.Open()), 503, 10, 40),
    "start-ok again": (method(0, Connection.StartOk({}, "PLAIN", "", "")), 504, 10, 11),
    "a method that only servers send": (method(1, Queue.BindOk()), 503, 50, 21),
    "a delivery from the client": (method(1, Basic.Deliver("t", 1, False, "", "q")), 503, 60, 60),
    "update-secret": (method(0, Connection.UpdateSecret("wrong", "r")), 530, 10, 70),
    "immediate": (method(1, Basic.Publish(routing_key="q", immediate=True)), 540, 60, 40),
    "publish with lengths that do not fit": (raw_method(1, 60, 40, b"\0\0\x20abc"), 501, 60, 40),
    "header without publish": (frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0)), 505, 0, 0),
    "body without publish": (frame(3, 1, b"x"), 505, 0, 0),
    "body without header": (method(1, Basic.Publish(routing_key="q")) + frame(3, 1, b"x"), 505, 60, 40),
    "method inside content": (method(1, Basic.Publish(routing_key="q")) + method(1, Basic.Get()), 505, 60, 40),
    "publish inside content": (method(1, Basic.Publish(routing_key="q")) * 2, 505, 60, 40),
    "header of another class": (
        method(1, Basic.Publish(routing_key="q")) + frame(2, 1, struct.pack(">HHQH", 50, 0, 1, 0)),
        505,
        60,
        40,
    ),
    "body longer than announced": (
        method(1, Basic.Publish(routing_key="q")) + frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0)) + frame(3, 1, b"xx"),
        501,
        60,
        40,
    ),
    "ack cut off": (raw_method(1, 60, 80, b"\0\0\0\0"), 501, 60, 80),
    "prefetch_size": (method(1, Basic.Qos(1, 0, False)), 540, 60, 10),
    "exchange type": (method(1, commands.Exchange.Declare(exchange="e", exchange_type="odd")), 503, 40, 10),
}
_deep = b"\x01aV"
for _ in range(100):
    _deep = b"\x01aF" + struct.pack(">I", len(_deep)) + _deep
FRAME_ERRORS["nested too deep"] = (
    raw_method(1, 50, 10, _DECLARE + struct.pack(">I", len(_deep)) + _deep),
    501,
    50,
    10,
)


@pytest.mark.parametrize("name", FRAME_ERRORS)
def test_connection_exceptions(server, raw, name):
    octets, code, class_id, method_id = FRAME_ERRORS[name]
    raw.open()
    raw.send(octets)
    text = raw.expect_close(code, class_id, method_id)
    assert " - " in text and text.split(" - ")[0].isupper()


def test_garbage_of_all_kinds(server, bystander):
    """Random octets, before and inside the conversation: every connection ends, no other client notices."""
    rng = random.Random(1)
    for round_number in range(30):
        client = RawClient(server.port)
        if round_number % 3:
            client.open()
        client.send(rng.randbytes(rng.randrange(8, 3000)))
        client.sock.shutdown(1)
        client.read_to_end()
        client.close()


def test_client_vanishes_inside_a_frame(server, raw, bystander):
    raw.open()
    raw.call(1, Queue.Declare(queue="mine", exclusive=True), Queue.DeclareOk)
    raw.send(publish(b"x" * 100, "mine")[:-50])
    raw.close()
    while "mine" in server.broker.vhost.queues:
        bystander.connection.process_data_events(0.01)


def test_one_octet_at_a_time(raw):
    octets = b"".join(
        [
            HEADER,
            method(0, Connection.StartOk({"a": {"b": [1]}}, "PLAIN", "\0guest\0guest", "en_US")),
            method(0, Connection.TuneOk(0, 0, 0)),
            method(0, Connection.Open()),
            method(1, Channel.Open()),
            method(1, Queue.Declare(queue="q")),
            publish(b"body", "q"),
            method(1, Basic.Get(queue="q", no_ack=True)),
        ]
    )
    for position in range(len(octets)):
        raw.send(octets[position : position + 1])
    for expected in (
        Connection.Start,
        Connection.Tune,
        Connection.OpenOk,
        Channel.OpenOk,
        Queue.DeclareOk,
        Basic.GetOk,
    ):
        raw.expect(expected)
    raw.read()
    assert raw.read()[1].value == b"body"


# ---------------------------------------------------------------- channel exceptions

CHANNEL_ERRORS = {
    "no such queue": (Queue.Declare(queue="none", passive=True), 404, 50, 10),
    "no such exchange": (commands.Exchange.Declare(exchange="none", passive=True), 404, 40, 10),
    "bind to nothing": (Queue.Bind(queue="q", exchange="none", routing_key=""), 404, 50, 20),
    "unbind from the default exchange": (Queue.Unbind(queue="q", exchange="", routing_key=""), 403, 50, 50),
    "exchange bind": (commands.Exchange.Bind(destination="none", source="amq.direct"), 404, 40, 30),
    "the default exchange": (commands.Exchange.Declare(exchange="", passive=True), 403, 40, 10),
    "no headers exchange decides": (
        Queue.Bind(queue="q", exchange="amq.headers", arguments={"x-match": "odd"}),
        406,
        50,
        20,
    ),
    "default exchange": (commands.Exchange.Bind(destination="amq.direct", source=""), 403, 40, 30),
    "purge of nothing": (Queue.Purge(queue="none"), 404, 50, 30),
    "get from nothing": (Basic.Get(queue="none"), 404, 60, 70),
    "consume from nothing": (Basic.Consume(queue="none"), 404, 60, 20),
    "reserved queue name": (Queue.Declare(queue="amq.mine"), 403, 50, 10),
    "reserved exchange name": (commands.Exchange.Declare(exchange="amq.mine"), 403, 40, 10),
    "delete of a predeclared exchange": (commands.Exchange.Delete(exchange="amq.topic"), 403, 40, 20),
    "other properties": (Queue.Declare(queue="q", durable=True), 406, 50, 10),
    "level of replication": (Queue.Declare(queue="r", arguments={"qpid.replicate": "maybe"}), 406, 50, 10),
    "delivery tag": (Basic.Ack(7), 406, 60, 80),
    "delivery tag of nack": (Basic.Nack(7), 406, 60, 120),
    "delivery tag of reject": (Basic.Reject(7), 406, 60, 90),
    "commit": (commands.Tx.Commit(), 406, 90, 20),
    "rollback": (commands.Tx.Rollback(), 406, 90, 30),
}


@pytest.mark.parametrize("name", CHANNEL_ERRORS)
def test_channel_exceptions(raw, name):
    command, code, class_id, method_id = CHANNEL_ERRORS[name]
    raw.open()
    raw.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    raw.send(method(1, command))
    raw.expect_channel_close(code, class_id, method_id)
    raw.send(method(1, Channel.CloseOk()))
    raw.open_channel(1)


def test_publish_to_missing_exchange(raw):
    raw.open()
    raw.send(publish(b"x", "k", exchange="none"))
    raw.expect_channel_close(404, 60, 40)


def test_closing_channel_ignores_what_was_under_way(raw):
    raw.open()
    raw.send(method(1, Basic.Get(queue="none")))
    raw.send(method(1, Queue.Declare(queue="late")), publish(b"x", "late"), method(1, Basic.Ack(3)))
    raw.expect_channel_close(404, 60, 70)
    raw.send(raw_method(1, 99, 99), method(1, Channel.CloseOk()))
    raw.open_channel(1)
    raw.send(method(1, Queue.Declare(queue="late", passive=True)))
    raw.expect_channel_close(404, 50, 10)


def test_both_sides_close_a_channel(raw):
    raw.open()
    raw.send(method(1, Basic.Get(queue="none")), method(1, Channel.Close(200, "bye", 0, 0)))
    raw.expect_channel_close(404, 60, 70)
    raw.expect(Channel.CloseOk)
    raw.send(method(1, Channel.CloseOk()))
    raw.open_channel(1)


def test_both_sides_close_the_connection(server, raw):
    raw.open()
    raw.send(method(9, Queue.Declare(queue="q")), method(0, Connection.Close(200, "bye", 0, 0)))
    raw.expect(Connection.Close)
    raw.expect(Connection.CloseOk)
    assert raw.read() is None


def test_reused_consumer_tag(raw):
    raw.open()
    raw.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    raw.call(1, Basic.Consume(queue="q", consumer_tag="t"), Basic.ConsumeOk)
    raw.send(method(1, Basic.Consume(queue="q", consumer_tag="t")))
    raw.expect_close(530, 60, 20)


# ---------------------------------------------------------------- no-wait


def test_no_wait_everywhere(raw):
    """None of them is answered; the order still holds."""
    Exchange = commands.Exchange
    raw.open()
    raw.send(
        method(1, Exchange.Declare(exchange="e", exchange_type="fanout", nowait=True)),
        method(1, Exchange.Declare(exchange="f", exchange_type="direct", nowait=True)),
        method(1, Exchange.Declare(exchange="e", passive=True, nowait=True)),
        method(1, Exchange.Bind(destination="e", source="f", routing_key="k", nowait=True)),
        method(1, Queue.Declare(queue="q", nowait=True)),
        method(1, Queue.Declare(queue="q", passive=True, nowait=True)),
        method(1, Queue.Bind(queue="q", exchange="e", routing_key="", nowait=True)),
        publish(b"1", "k", exchange="f"),
        method(1, Queue.Purge(queue="q", nowait=True)),
        publish(b"2", "k", exchange="f"),
        method(1, Exchange.Unbind(destination="e", source="f", routing_key="k", nowait=True)),
        publish(b"lost", "k", exchange="f"),
        method(1, Basic.Consume(queue="q", consumer_tag="t", no_ack=True, nowait=True)),
    )
    deliver = raw.expect(Basic.Deliver)
    assert (deliver.consumer_tag, deliver.exchange, deliver.routing_key) == ("t", "f", "k")
    raw.read()
    assert raw.read()[1].value == b"2"
    raw.send(
        method(1, Basic.Cancel(consumer_tag="t", nowait=True)),
        method(1, Exchange.Delete(exchange="e", nowait=True)),
        method(1, Queue.Delete(queue="q", nowait=True)),
        method(1, commands.Confirm.Select(nowait=True)),
        publish(b"3", "nowhere"),
    )
    ack = raw.expect(Basic.Ack)
    assert ack.delivery_tag == 1
    raw.send(method(1, Queue.Declare(queue="q", passive=True)))
    raw.expect_channel_close(404, 50, 10)


def test_recover_async_has_no_answer(raw):
    raw.open()
    raw.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    raw.send(publish(b"x", "q"), method(1, Basic.Get(queue="q")))
    for _ in range(3):
        raw.read()
    raw.send(method(1, Basic.RecoverAsync(True)), method(1, Basic.Get(queue="q")))
    assert raw.expect(Basic.GetOk).redelivered


def test_recover_without_requeue_delivers_again_to_the_same_consumer(raw):
    raw.open()
    raw.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    raw.call(1, Basic.Consume(queue="q", consumer_tag="t"), Basic.ConsumeOk)
    raw.send(publish(b"x", "q"))
    assert raw.expect(Basic.Deliver).redelivered is False
    raw.read(), raw.read()
    raw.send(method(1, Basic.Recover(False)))
    raw.expect(Basic.RecoverOk)
    again = raw.expect(Basic.Deliver)
    assert again.redelivered and again.consumer_tag == "t"


def test_cancel_notification_only_for_those_who_asked(server, raw, bystander):
    raw.open()
    raw.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    raw.call(1, Basic.Consume(queue="q", consumer_tag="t"), Basic.ConsumeOk)
    bystander.queue_delete("q")
    raw.call(1, Queue.Declare(queue="p"), Queue.DeclareOk)
    asked = RawClient(server.port).open(properties={"capabilities": {"consumer_cancel_notify": True}})
    asked.call(1, Basic.Consume(queue="p", consumer_tag="t"), Basic.ConsumeOk)
    bystander.queue_delete("p")
    assert asked.expect(Basic.Cancel).consumer_tag == "t"


def test_routing_keys_are_octets(raw):
    raw.open()
    raw.call(1, Queue.Declare(queue="q"), Queue.DeclareOk)
    key = b"\xff\x00\xfe"
    raw.send(
        raw_method(1, 50, 20, b"\0\0" + shortstr(b"q") + shortstr(b"amq.direct") + shortstr(key) + b"\0" + bytes(4))
    )
    raw.expect(Queue.BindOk)
    header = struct.pack(">HHQH", 60, 0, 1, 0)
    raw.send(raw_method(1, 60, 40, b"\0\0" + shortstr(b"amq.direct") + shortstr(key) + b"\0"))
    raw.send(frame(2, 1, header), frame(3, 1, b"x"))
    assert raw.call(1, Queue.Declare(queue="q", passive=True), Queue.DeclareOk).message_count == 1
