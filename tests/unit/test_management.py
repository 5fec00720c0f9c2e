"""Management over AMQP, in memory: the real client against the real connection, core and model."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import ClientHandshake, Closed, Login, Opened
from qpidd_py.amqp.codec import decode_properties, encode_content, encode_method
from qpidd_py.amqp.management_client import Answer, ManagementClient, Ready
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.broker.ports import Refusal
from qpidd_py.management.amqp_door import install, read_arguments
from qpidd_py.management.model import BROWSE_OCTETS, Management
from qpidd_py.management.shown import PEEK_BODY, to_json
from tests.unit.broker.peer import Peer, Replicated


class NoTransport:
    waiting = 0

    def disconnect(self) -> None:
        pass

    def output_ready(self) -> None:
        pass


class Wire:
    """A client of any kind and a connection, joined."""

    def __init__(self, broker: Broker, client: Any) -> None:
        self.broker = broker
        self.client = client
        self.connection = ClientConnection(broker, "test:1", NoTransport())
        self.events: list[Any] = []

    def run(self) -> list[Any]:
        """Carry octets to and fro until both are silent; the events since the last time."""
        while True:
            outward = self.client.take_output()
            if outward:
                self.connection.core.feed(outward)
            self.broker.engine.end_turn()
            inward = self.connection.core.take_output()
            if not outward and not inward:
                break
            self.events += self.client.feed(inward)
        taken, self.events = self.events, []
        return taken


class FakeHa:
    """Hooks that answer when told to."""

    cluster = True

    def __init__(self, refusal: Refusal | None = None) -> None:
        self.refusal = refusal
        self.asked: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], None]]] = []

    def admit(self, connection: ClientConnection, properties: Any) -> Refusal | None:
        return None if properties.get("qpid.ha-admin") else self.refusal

    def opened(self, connection: ClientConnection) -> bool:
        return False

    def connection_closed(self, connection: ClientConnection) -> None:
        pass

    def request(
        self, method: str, arguments: dict[str, Any], reply: Callable[[dict[str, Any]], None], user: str
    ) -> bool:
        self.asked.append((method, arguments, reply))
        return method != "ha.nonsense"

    def limited(self, reason: str) -> None:
        pass

    def alarm(self, name: str, reason: str) -> None:
        pass

    def damaged(self, reason: str) -> None:
        pass

    def paging(self, result: str, reason: str) -> None:
        pass

    def tick(self, now: float) -> None:
        pass


@pytest.fixture
def broker() -> Broker:
    broker = Broker("tester", version="1.2")
    install(broker)
    return broker


@pytest.fixture
def wire(broker: Broker) -> Wire:
    wire = Wire(broker, ManagementClient())
    assert [type(event) for event in wire.run()] == [Ready]
    return wire


def ask(wire: Wire, method: str, **arguments: Any) -> Answer:
    number = wire.client.request(method, arguments)
    (answer,) = wire.run()
    assert isinstance(answer, Answer)
    assert answer.number == number
    return answer


def declare(wire: Wire, name: str, *bodies: bytes, **arguments: Any) -> None:
    """Over the management client's own channel, which is an ordinary one."""
    write = wire.client.connection.handshake.write
    write(encode_method(1, commands.Queue.Declare(queue=name, arguments=arguments, nowait=True)))
    for body in bodies:
        properties = {"content_type": "text/plain", "headers": {"n": 1}}
        write(encode_content(1, commands.Basic.Publish(routing_key=name), properties, body, 131072))
    wire.run()


def test_info_tells_name_version_and_counts(wire: Wire) -> None:
    declare(wire, "q")
    result = ask(wire, "broker.info").result
    assert (result["name"], result["version"], result["product"]) == ("tester", "1.2", "qpidd-py")
    assert (result["queues"], result["sessions"], result["ha"], result["blocked"]) == (1, 1, False, "")
    assert result["channels"] == 1
    wire.broker.block("backup b is slow", "throttle")
    assert ask(wire, "broker.info").result["blocked"] == "backup b is slow"


def test_queues_are_listed_by_name(wire: Wire) -> None:
    declare(wire, "b", b"12", b"345")
    declare(wire, "a", **{"x-expires": 60000})
    first, second = ask(wire, "queue.list").result
    assert (first["name"], first["messages"]) == ("a", 0)
    assert first["arguments"]["x-expires"] == 60000
    assert (second["name"], second["ready"], second["unacked"], second["consumers"]) == ("b", 2, 0, 0)


def test_peek_shows_messages_and_leaves_them(wire: Wire) -> None:
    declare(wire, "q", "grün".encode(), b"\xff\x00", b"third")
    for _ in range(2):
        text, binary = ask(wire, "queue.peek", queue="q", limit=2).result
        assert (text["body"], text["size"], text["routing_key"], text["redelivered"]) == ("grün", 5, "q", False)
        assert text["properties"] == {"content_type": "text/plain", "headers": {"n": 1}}
        assert binary["body"] == {"base64": "/wA="}


def test_peek_cuts_long_bodies_between_characters(wire: Wire) -> None:
    declare(wire, "q", b"x" + "ü".encode() * PEEK_BODY)
    (message,) = ask(wire, "queue.peek", queue="q").result
    assert message["cut"]
    assert message["body"] == "x" + "ü" * ((PEEK_BODY - 1) // 2)
    assert message["size"] == 1 + 2 * PEEK_BODY


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"queue": "none"}, "no queue 'none'"),
        ({}, "no queue None"),
        ({"queue": "q", "limit": 0}, "limit 0"),
        ({"queue": "q", "limit": True}, "limit True"),
        ({"queue": "q", "limit": "3"}, "limit '3'"),
    ],
)
def test_peek_says_what_is_wrong(wire: Wire, arguments: dict[str, Any], text: str) -> None:
    declare(wire, "q")
    answer = ask(wire, "queue.peek", **arguments)
    assert not answer.ok
    assert text in answer.error


def test_connections_are_listed(wire: Wire) -> None:
    (listed,) = ask(wire, "session.list").result
    assert (listed["peer"], listed["user"], listed["admin"], listed["channels"]) == ("test:1", "guest", True, 1)
    assert listed["client_properties"]["qpid.ha-admin"] == 1


def test_unknown_methods_and_a_missing_plugin_are_told(wire: Wire) -> None:
    assert ask(wire, "queue.destroy-all").error == "unknown method 'queue.destroy-all'"
    assert ask(wire, "ha.status").error == "HA module is not loaded on broker at tester"


def test_ha_may_answer_late_and_in_any_order(broker: Broker, wire: Wire) -> None:
    hooks = FakeHa()
    broker.hooks = hooks
    first, second = wire.client.request("ha.promote", {"force": True}), wire.client.request("ha.status")
    assert wire.run() == []
    assert [(method, arguments) for method, arguments, _ in hooks.asked] == [
        ("ha.promote", {"force": True}),
        ("ha.status", {}),
    ]
    hooks.asked[1][2]({"ok": True, "result": {"state": "ready"}})
    assert wire.run() == [Answer(second, True, {"state": "ready"}, "")]
    hooks.asked[0][2]({"ok": False, "error": "still catching up"})
    assert wire.run() == [Answer(first, False, None, "still catching up")]
    assert not wire.client.outstanding
    assert ask(wire, "ha.nonsense").error == "unknown method 'ha.nonsense'"


def test_an_answer_after_the_end_of_the_connection_is_dropped(broker: Broker, wire: Wire) -> None:
    hooks = FakeHa()
    broker.hooks = hooks
    wire.client.request("ha.promote")
    wire.run()
    wire.connection.closed("cable pulled")
    hooks.asked[0][2]({"ok": True, "result": {}})


def test_a_defect_costs_one_answer(broker: Broker, wire: Wire) -> None:
    class Broken(FakeHa):
        def request(self, method: str, arguments: Any, reply: Any, user: str) -> bool:
            raise ZeroDivisionError("oops")

    broker.hooks = Broken()
    answer = ask(wire, "ha.status")
    assert (answer.error, answer.code) == ("internal error: ZeroDivisionError: oops", 541)
    assert ask(wire, "broker.info").ok


def test_long_answers_come_in_several_frames(wire: Wire) -> None:
    declare(wire, "q", *[b"y" * 60_000] * 5)
    result = ask(wire, "queue.peek", queue="q").result
    assert [message["size"] for message in result] == [60_000] * 5


def test_several_requests_are_outstanding_before_the_connection_is_open(broker: Broker) -> None:
    wire = Wire(broker, ManagementClient())
    numbers = [wire.client.request("broker.info") for _ in range(3)]
    ready, *answers = wire.run()
    assert isinstance(ready, Ready)
    assert [answer.number for answer in answers] == numbers


def test_a_ping_needs_no_management(broker: Broker) -> None:
    broker.management = None
    wire = Wire(broker, ManagementClient(consume=False))
    assert [type(event) for event in wire.run()] == [Ready]


def test_a_backup_refuses_plain_clients_with_its_text_and_admits_administrators(broker: Broker) -> None:
    broker.hooks = FakeHa(Refusal(320, "CONNECTION_FORCED - b is a backup (ready); the primary is a:1"))
    (closed,) = Wire(broker, ManagementClient(properties={})).run()
    assert closed == Closed(320, "CONNECTION_FORCED - b is a backup (ready); the primary is a:1", 10, 40)
    assert isinstance(Wire(broker, ManagementClient()).run()[0], Ready)


@pytest.mark.parametrize("mechanism", ["", "PLAIN", "AMQPLAIN"])
def test_the_handshake_works_with_our_own_server(broker: Broker, mechanism: str) -> None:
    handshake = ClientHandshake(Login("guest", "guest", mechanism), heartbeat=7, frame_max=8192)
    (opened,) = Wire(broker, AmqpClient(handshake)).run()
    assert isinstance(opened, Opened)
    assert (opened.frame_max, opened.heartbeat) == (8192, 7)
    assert opened.server_properties["capabilities"]["publisher_confirms"] is True


def test_closing_in_an_orderly_way(wire: Wire) -> None:
    wire.client.close()
    wire.run()
    assert wire.client.closed
    assert wire.connection.finished


@pytest.mark.parametrize(
    ("body", "text"), [(b"{", "not JSON"), (b"[]", "JSON list"), (b"\xff", "not JSON"), (b"[" * 100_000, "not JSON")]
)
def test_arguments_must_be_an_object(body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read_arguments(body)


def test_values_of_tables_are_shown_as_json() -> None:
    value = {"a": [1, None, b"ok"], "b": bytearray(b"\xff"), "c": float("nan"), "d": "\udcff", "e": {"f": True}}
    shown = to_json(value)
    assert json.loads(json.dumps(shown, allow_nan=False)) == {
        "a": [1, None, "ok"],
        "b": {"base64": "/w=="},
        "c": "nan",
        "d": {"base64": "/w=="},
        "e": {"f": True},
    }


# ---- peek with `after`: browsing


def browse(wire: Wire, after: int = 0, **arguments: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = ask(wire, "queue.peek", queue="q", after=after, **arguments).result
    return result


def bodies(shown: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(message["body"]) for message in shown]


def test_browsing_goes_on_where_it_was_and_shows_each_message_whole(wire: Wire) -> None:
    large = bytes(range(256)) * (PEEK_BODY // 128)
    declare(wire, "q", b"one", large)
    first = browse(wire, limit=1)
    assert bodies(first) == [b"one"]
    second = browse(wire, first[0]["position"])
    assert bodies(second) == [large]
    assert decode_properties(base64.b64decode(second[0]["header"])) == {
        "content_type": "text/plain",
        "headers": {"n": 1},
    }
    assert (second[0]["routing_key"], second[0]["exchange"], second[0]["redelivered"]) == ("q", "", False)
    assert browse(wire, second[0]["position"]) == []
    declare(wire, "q", b"three")
    assert bodies(browse(wire, second[0]["position"])) == [b"three"]
    assert ask(wire, "queue.list").result[0]["ready"] == 3


def test_an_answer_to_browsing_is_bounded_by_number_and_octets(wire: Wire) -> None:
    declare(wire, "q", *[b"%d" % n for n in range(40)])
    assert bodies(browse(wire, limit=33)) == [b"%d" % n for n in range(33)]
    assert len(browse(wire)) == 10
    half = b"x" * (BROWSE_OCTETS // 2)
    last = browse(wire, limit=1000)[-1]["position"]
    declare(wire, "q", half, half, b"x" * (2 * BROWSE_OCTETS), b"end")
    counts = []
    while shown := browse(wire, last, limit=1000):
        counts.append(len(shown))
        last = shown[-1]["position"]
    assert counts == [1, 1, 1, 1]  # the headers count, too: two halves are more than the whole


def test_browsing_is_in_order_of_position_whatever_the_priority(wire: Wire) -> None:
    declare(wire, "q", **{"x-max-priority": 3})
    for priority in (1, 3, 0, 2):
        content = commands.Basic.Publish(routing_key="q")
        write = wire.client.connection.handshake.write
        write(encode_content(1, content, {"priority": priority}, b"%d" % priority, 131072))
        wire.run()
    assert bodies(browse(wire)) == [b"1", b"3", b"0", b"2"]


def test_a_position_that_was_never_reached_is_the_beginning(wire: Wire) -> None:
    declare(wire, "q", b"1")
    (message,) = browse(wire, 1 << 62)
    assert browse(wire, message["position"]) == []


@pytest.mark.parametrize("after", [-1, True, "0", None, 1 << 64, 1.5])
def test_browsing_refuses_what_is_no_position(wire: Wire, after: Any) -> None:
    declare(wire, "q", b"1")
    answer = ask(wire, "queue.peek", queue="q", after=after)
    assert not answer.ok
    assert f"after {after!r}" in answer.error


def test_channels(broker: Broker, wire: Wire) -> None:
    peer = Peer(broker)
    peer.call(1, commands.Channel.Open())
    peer.call(1, commands.Confirm.Select())
    peer.call(1, commands.Basic.Qos(0, 9, True))
    peer.call(1, commands.Basic.Qos(0, 2, False))
    peer.call(1, commands.Queue.Declare(queue="q"))
    peer.call(1, commands.Basic.Consume(queue="q", consumer_tag="c"))
    for _ in range(3):
        peer.publish(b"", "q")
    assert len(peer.frames()) == 5, "two deliveries with their headers, and a confirm"
    peer.call(2, commands.Channel.Open())
    peer.call(2, commands.Tx.Select())
    peer.call(2, commands.Channel.Flow(False))
    found = [item for item in ask(wire, "channel.list").result if item["peer"] == "memory"]
    told = {"connection": peer.connection.number, "peer": "memory", "user": "guest", "vhost": "/"}
    used = {"prefetch": 2, "global_prefetch": 9, "consumers": 1, "unacked": 2, "unconfirmed": 0, "active": True}
    unused = {**dict.fromkeys(used, 0), "active": False}
    assert found == [
        {**told, "number": 1, "confirm": True, "transactional": False, **used},
        {**told, "number": 2, "confirm": False, "transactional": True, **unused},
    ]


def test_what_a_channel_waits_for() -> None:
    broker = Replicated()
    broker.vhost.declare_queue(None, "q", True, False, False, {})
    broker.advance()
    peer = Peer(broker)
    peer.call(1, commands.Channel.Open())
    peer.call(1, commands.Confirm.Select())
    for _ in range(3):
        peer.publish(b"", "q")
    peer.frames()
    assert unconfirmed(broker) == 3
    broker.advance()
    assert unconfirmed(broker) == 0


def test_a_refused_publish_waits_for_nothing(broker: Broker) -> None:
    broker.vhost.declare_queue(None, "q", True, False, False, {"x-max-length": 1, "x-overflow": "reject-publish"})
    peer = Peer(broker)
    peer.call(1, commands.Channel.Open())
    peer.call(1, commands.Confirm.Select())
    for _ in range(3):
        peer.publish(b"", "q")
    assert any(isinstance(frame, commands.Basic.Nack) for frame in peer.frames())
    assert unconfirmed(broker) == 0


def unconfirmed(broker: Broker) -> int:
    """Of the only channel."""
    answers: list[dict[str, Any]] = []
    Management(broker).request("channel.list", {}, answers.append)
    (channel,) = answers[0]["result"]
    return int(channel["unconfirmed"])
