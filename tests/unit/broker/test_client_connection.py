"""Connections without sockets: time, admission, links, management, and the ends of connections."""

import pamqp.commands as commands
import pamqp.heartbeat
import pytest

from qpidd_py.amqp.codec import decode_properties
from qpidd_py.amqp.sasl import Attempt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.ports import Refusal
from qpidd_py.errors import ChannelException, ConnectionException, ReplyCode
from qpidd_py.logrules import NOTICE
from tests.support.logins import password_check
from tests.support.memory import publish_octets
from tests.unit.broker.peer import Peer

Basic, Connection, Queue = commands.Basic, commands.Connection, commands.Queue


class Hooks:
    """HA that does what the test says."""

    cluster = True

    def __init__(self, refusal=None, take_over=False):
        self.refusal = refusal
        self.take_over = take_over
        self.calls = []

    def admit(self, connection, properties):
        self.calls.append(("admit", dict(properties)))
        return self.refusal

    def limited(self, reason):
        self.calls.append(("limited", reason))

    def alarm(self, name, reason):
        self.calls.append(("alarm", name, reason))

    def damaged(self, reason):
        self.calls.append(("damaged", reason))

    def paging(self, result, reason):
        self.calls.append(("paging", result))

    def opened(self, connection):
        self.calls.append(("opened", connection))
        if self.take_over:
            connection.link = self
            connection.core.switch_to_link()
        return self.take_over

    def connection_closed(self, connection):
        self.calls.append(("connection_closed", connection))

    def request(self, method, arguments, reply, user):
        return False

    def tick(self, now):
        self.calls.append(("tick", now))

    def link_frame(self, kind, position, body):
        self.calls.append(("link_frame", kind, position, body))

    def link_batches(self, position):
        self.calls.append(("link_batches", position))

    def closed(self, reason):
        self.calls.append(("closed", reason))

    def kinds(self):
        return [call[0] for call in self.calls]


# ---------------------------------------------------------------- time


def ticks(connection, start, seconds, step=0.5):
    now = start
    while now < start + seconds:
        now += step
        connection.tick(now)
    return now


def test_heartbeats_go_out_when_nothing_else_does():
    peer = Peer(Broker(), heartbeat=4)
    now = ticks(peer.connection, 0, 2.5)
    assert [type(frame) for frame in peer.frames()] == [pamqp.heartbeat.Heartbeat]
    peer.open_channel()
    now = ticks(peer.connection, now, 1.5)
    assert peer.frames() == []
    ticks(peer.connection, now, 1)
    assert len(peer.frames()) == 1


def test_no_heartbeats_when_none_were_agreed():
    peer = Peer(Broker(), heartbeat=0)
    ticks(peer.connection, 0, 600, 1)
    assert peer.frames() == [] and peer.connection.opened


def test_silence_of_two_heartbeats_ends_the_connection():
    broker = Broker()
    peer = Peer(broker, heartbeat=2)
    now = ticks(peer.connection, 0, 4)
    assert peer.connection.opened
    peer.feed(b"\x08\0\0\0\0\0\0\xce")
    peer.frames()
    now = ticks(peer.connection, now, 4)
    assert peer.connection.opened
    ticks(peer.connection, now, 1)
    assert peer.connection.finished and peer.disconnected == 1
    assert broker.connections == set()


def test_input_that_was_paused_is_no_silence_afterwards():
    """The heartbeats of a publisher that was not read for long lie unread when the pause ends."""
    broker = Broker()
    peer = Peer(broker, heartbeat=2)
    peer.open_channel()
    broker.vhost.declare_queue(None, "a", False, False, False, {})
    peer.send(1, Basic.Publish(routing_key="a"))
    broker.engine.throttle(True, "test")
    assert peer.connection.core.input_paused
    now = ticks(peer.connection, 0, 10)
    broker.engine.throttle(False, "test")
    now = ticks(peer.connection, now, 4)
    assert peer.connection.opened
    ticks(peer.connection, now, 1)
    assert peer.connection.finished


def test_input_that_waits_for_its_slice_is_no_silence():
    """The heartbeats of a client stay in the socket while a flood of new routing keys that it has sent is parsed."""
    broker = Broker()
    broker.engine.schedule = lambda: None
    peer = Peer(broker, heartbeat=2)
    peer.open_channel()
    peer.feed(b"".join(publish_octets(b"", f"key{number}") for number in range(1000)))
    assert peer.connection.core.unfinished
    now = ticks(peer.connection, 0, 10)
    assert peer.connection.opened
    while peer.connection.core.unfinished:
        broker.engine.end_turn()
    now = ticks(peer.connection, now, 4)
    assert peer.connection.opened
    ticks(peer.connection, now, 1)
    assert peer.connection.finished


def test_a_broker_that_slept_does_not_blame_its_clients():
    peer = Peer(Broker(), heartbeat=2)
    peer.connection.tick(0)
    peer.connection.tick(0.5)
    peer.connection.tick(3600)
    assert peer.connection.opened


def test_handshake_has_a_time_limit():
    peer = Peer(Broker(), opened=False)
    ticks(peer.connection, 0, 9)
    assert not peer.connection.finished
    ticks(peer.connection, 9, 3)
    assert peer.disconnected == 1


def test_close_ok_has_a_time_limit():
    peer = Peer(Broker())
    peer.connection.close(320, "go")
    assert peer.frames()[0].reply_text == "CONNECTION_FORCED - go"
    ticks(peer.connection, 0, 7)
    assert peer.connection.finished and peer.disconnected == 1


def test_expiring_queue():
    broker = Broker()
    peer = Peer(broker)
    peer.open_channel()
    peer.call(1, Queue.Declare(queue="q", arguments={"x-expires": 1000}))
    peer.call(1, Basic.Consume(queue="q", consumer_tag="t"))
    for now in range(5):
        broker.tick(now)
    peer.call(1, Basic.Cancel(consumer_tag="t"))
    broker.tick(5)
    broker.tick(5.9)
    assert "q" in broker.vhost.queues
    peer.call(1, Basic.Get(queue="q"))
    broker.tick(6)
    broker.tick(6.9)
    assert "q" in broker.vhost.queues
    broker.tick(7)
    assert "q" not in broker.vhost.queues


# ---------------------------------------------------------------- admission and links


def test_admission_sees_the_properties_and_may_refuse():
    broker = Broker()
    broker.hooks = Hooks(Refusal(320, "NODE is a backup (ready); the primary is not known"))
    peer = Peer(broker, opened=False)
    close = peer.handshake(properties={"product": "test"})[-1]
    assert (close.reply_code, close.class_id, close.method_id) == (320, 10, 40)
    assert close.reply_text == "CONNECTION_FORCED - NODE is a backup (ready); the primary is not known"
    assert broker.hooks.calls == [("admit", {"product": "test"})]
    peer.send(0, Connection.CloseOk())
    assert peer.connection.finished and "connection_closed" not in broker.hooks.kinds()


def test_refusal_by_admission_is_told_without_the_capability():
    broker = Broker()
    broker.hooks = Hooks(Refusal(403, "not you"))
    peer = Peer(broker, opened=False)
    assert peer.handshake()[-1].reply_code == 403


def test_opened_and_closed_are_told():
    broker = Broker()
    broker.hooks = hooks = Hooks()
    peer = Peer(broker)
    peer.frames()
    assert peer.call(0, Connection.Close(200, "bye", 0, 0)).name == "Connection.CloseOk"
    broker.tick(1.0)
    assert hooks.kinds() == ["admit", "opened", "connection_closed", "tick"]
    assert peer.disconnected == 1


def test_a_link_leaves_amqp():
    broker = Broker()
    broker.hooks = hooks = Hooks(take_over=True)
    peer = Peer(broker)
    assert peer.connection.state.value == "link"
    other = Broker()
    sender = Peer(other)
    sender.frames()
    sender.connection.core.switch_to_link()
    sender.connection.core.send_frame(2, 17, b"hello")
    other.engine.end_turn()
    peer.feed(sender.connection.core.take_output())
    assert ("link_frame", 2, 17, b"hello") in hooks.calls
    broker.close_clients(320, "clients only")
    assert not peer.connection.finished
    peer.feed(b"x" * 100)
    assert hooks.kinds()[-2:] == ["closed", "connection_closed"]
    assert peer.disconnected == 1


def test_lost_connection_is_told_to_its_link():
    broker = Broker()
    broker.hooks = hooks = Hooks(take_over=True)
    peer = Peer(broker)
    peer.connection.closed("reset by peer")
    peer.connection.closed("reset by peer")
    assert hooks.calls.count(("closed", "reset by peer")) == 1 and peer.disconnected == 1


def test_admin():
    assert Peer(Broker(), **{"qpid.ha-admin": 1}).connection.client.admin
    assert not Peer(Broker()).connection.client.admin


# ---------------------------------------------------------------- management


def management_peer(door):
    broker = Broker()
    broker.management = door
    peer = Peer(broker)
    peer.open_channel()
    peer.send(1, Basic.Consume(queue="qpid.management", consumer_tag="answers", no_ack=True))
    assert peer.frames()[-1].consumer_tag == "answers"
    return peer


def test_management_request_and_answer():
    seen = []

    def door(connection, channel, routing_key, header, body):
        seen.append((routing_key, body))
        connection.answer(channel, decode_properties(header)["correlation_id"], b'{"ok":true}')

    peer = management_peer(door)
    for number in (1, 2):
        peer.publish(b"{}", "broker.info", "qpid.management", correlation_id="17")
        deliver, header, body = peer.frames()
        assert (deliver.consumer_tag, deliver.delivery_tag, deliver.exchange) == ("answers", number, "qpid.management")
        assert (header.properties.correlation_id, body.value) == ("17", b'{"ok":true}')
    assert seen == [(b"broker.info", b"{}")] * 2
    assert peer.call(1, Basic.Cancel(consumer_tag="answers")).name == "Basic.CancelOk"
    peer.publish(b"{}", "broker.info", "qpid.management", correlation_id="18")
    assert peer.frames() == []


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ChannelException(ReplyCode.PRECONDITION_FAILED, "no correlation id"), "Channel.Close"),
        (ConnectionException(ReplyCode.SYNTAX_ERROR, "not a header"), "Connection.Close"),
    ],
)
def test_management_request_that_breaks_the_rules(error, name):
    def door(*_):
        raise error

    peer = management_peer(door)
    peer.publish(b"{}", "broker.info", "qpid.management")
    (close,) = peer.frames()
    assert (close.name, close.reply_code, close.class_id, close.method_id) == (name, error.reply_code, 60, 40)


def test_late_answers_find_no_connection():
    peer = management_peer(lambda *_: None)
    connection = peer.connection
    peer.call(1, commands.Channel.Close(200, "", 0, 0))
    connection.answer(1, "1", b"")
    peer.call(0, Connection.Close(200, "", 0, 0))
    connection.answer(1, "1", b"")
    assert peer.connection.finished


def test_management_names_are_reserved():
    peer = Peer(Broker())
    for number, method in enumerate(
        [
            Queue.Declare(queue="qpid.management"),
            commands.Exchange.Declare(exchange="qpid.management"),
            commands.Exchange.Delete(exchange="qpid.management"),
        ],
        1,
    ):
        peer.open_channel(number)
        assert peer.call(number, method).reply_code == 403
    peer.open_channel(9)
    assert (
        peer.call(9, commands.Exchange.Declare(exchange="qpid.management", passive=True)).name == "Exchange.DeclareOk"
    )
    assert peer.call(9, Queue.Declare(queue="qpid.management", passive=True)).message_count == 0
    assert peer.call(9, Basic.Consume(queue="qpid.management")).reply_code == 406


# ---------------------------------------------------------------- errors


def test_our_own_fault_is_541_and_costs_one_connection(monkeypatch):
    broker = Broker()
    peer, other = Peer(broker), Peer(broker)
    peer.open_channel()
    other.open_channel()
    monkeypatch.setattr(broker.vhost, "declare_queue", lambda *_: 1 / 0)
    close = peer.call(1, Queue.Declare(queue="q"))
    assert (close.reply_code, close.class_id, close.method_id) == (541, 50, 10)
    assert other.call(1, Queue.Declare(queue="qpid.management", passive=True)).queue == "qpid.management"


def test_long_reply_texts_are_cut():
    peer = Peer(Broker())
    peer.connection.close(320, "ü" * 300)
    text = peer.frames()[0].reply_text
    assert len(text.encode()) <= 255 and text.startswith("CONNECTION_FORCED - ü")


def test_headers_that_cannot_be_read():
    peer = Peer(Broker())
    peer.open_channel()
    peer.call(1, Queue.Declare(queue="q"))
    peer.call(1, Queue.Bind(queue="q", exchange="amq.headers", routing_key=""))
    peer.send(1, Basic.Publish(exchange="amq.headers"))
    header = b"\0\x3c\0\0" + (0).to_bytes(8, "big") + b"\x20\0" + b"\0\0\0\x03\x20ab"
    peer.feed(b"\x02\0\x01" + len(header).to_bytes(4, "big") + header + b"\xce")
    (close,) = peer.frames()
    assert (close.reply_code, close.class_id, close.method_id) == (501, 60, 40)


def test_users():
    check = password_check({"a": "b"})
    found = []

    def login(mechanism, response):
        check(Attempt("127.0.0.1:1", mechanism, response), found.append)
        return found.pop()

    assert login("PLAIN", b"\0a\0b") == "a"
    assert login("PLAIN", b"someone\0a\0b") == "a"
    for mechanism, response in (("PLAIN", b"\0a\0c"), ("PLAIN", b"a"), ("AMQPLAIN", b"\xff"), ("PLAIN", b"\0\xff\0b")):
        assert login(mechanism, response) is None


class TestLines:
    """What an operator reads at the default level."""

    @staticmethod
    def read(caplog):
        return [record.getMessage() for record in caplog.records if record.levelno >= NOTICE]

    def test_clients_come_and_go_with_address_user_and_reason(self, caplog):
        caplog.set_level(1)
        peer = Peer(Broker(), product="pika" * 40)
        peer.send(0, Connection.Close(200, "bye\nforged", 0, 0))
        opened, closed = self.read(caplog)
        assert opened == f"connection opened: memory, user 'guest', '{'pika' * 16}'..."
        assert closed == "connection closed: memory, user 'guest': closed by the client: 200 bye\nforged"

    def test_administrators_and_who_never_opens_are_not_told(self, caplog):
        caplog.set_level(1)
        broker = Broker()
        peer = Peer(broker, **{"qpid.ha-admin": 1})
        peer.send(0, Connection.Close(200, "bye", 0, 0))
        Peer(broker, opened=False).connection.closed("port scan")
        assert self.read(caplog) == []

    def test_a_flood_is_summed_up(self, caplog):
        caplog.set_level(1)
        broker = Broker()
        broker.tick(100.0)
        for _ in range(1254):
            Peer(broker).connection.closed("reset")
        broker.tick(105.0)
        assert len(self.read(caplog)) == 40
        broker.tick(110.0)
        sums = self.read(caplog)[40:]
        assert sums == [f"connection {what}: and 1,234 more in the last 10 s" for what in ("opened", "closed")]
        broker.tick(120.0)
        Peer(broker)
        assert len(self.read(caplog)) == 43
