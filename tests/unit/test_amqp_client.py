"""The client's side of the handshake against frames made by pamqp."""

from typing import Any

import pytest
from pamqp import commands, frame
from pamqp.heartbeat import Heartbeat

from qpidd_py.amqp.client import AmqpClient
from qpidd_py.amqp.client_handshake import (
    ClientHandshake,
    ClientState,
    CloseAnswered,
    Closed,
    ContentReceived,
    Event,
    Login,
    MethodReceived,
    Opened,
    PeerSilent,
    VersionRefused,
)
from qpidd_py.amqp.constants import HEARTBEAT_FRAME, PROTOCOL_HEADER
from qpidd_py.errors import ConnectionException


def marshal(command: Any, channel: int = 0) -> bytes:
    return frame.marshal(command, channel)


START = marshal(commands.Connection.Start(0, 9, {"product": "x", "capabilities": {"a": True}}, "AMQPLAIN PLAIN"))
TUNE = marshal(commands.Connection.Tune(2047, 131072, 60))
OPEN_OK = marshal(commands.Connection.OpenOk())


def sent(connection: AmqpClient) -> list[Any]:
    """What the client wrote, decoded by pamqp."""
    output, found = connection.take_output(), []
    while output:
        consumed, _, command = frame.unmarshal(output)
        found.append(command)
        output = output[consumed:]
    return found


def opened(**options: Any) -> AmqpClient:
    stop = options.pop("stop_when_open", False)
    connection = AmqpClient(ClientHandshake(**options), stop_when_open=stop)
    connection.feed(START + TUNE + OPEN_OK)
    connection.take_output()
    assert connection.state is ClientState.OPEN
    return connection


def test_the_whole_handshake() -> None:
    handshake = ClientHandshake(Login("me", "secret"), {"qpid.ha-admin": 1}, virtual_host="/v", heartbeat=10)
    connection = AmqpClient(handshake)
    assert connection.take_output() == PROTOCOL_HEADER
    assert connection.feed(START) == []
    (start_ok,) = sent(connection)
    assert (start_ok.mechanism, start_ok.response, start_ok.locale) == ("PLAIN", "\0me\0secret", "en_US")
    assert start_ok.client_properties["qpid.ha-admin"] == 1
    assert start_ok.client_properties["capabilities"]["authentication_failure_close"] is True
    assert connection.feed(TUNE) == []
    tune_ok, open_ = sent(connection)
    assert (tune_ok.channel_max, tune_ok.frame_max, tune_ok.heartbeat) == (2047, 131072, 10)
    assert open_.virtual_host == "/v"
    properties = {"product": "x", "capabilities": {"a": True}}
    assert connection.feed(OPEN_OK) == [Opened(properties, 131072, 2047, 10)]


def test_octet_by_octet() -> None:
    connection = AmqpClient(ClientHandshake())
    found: list[Event] = []
    for octet in START + TUNE + OPEN_OK + marshal(commands.Channel.OpenOk(), 3):
        found += connection.feed(bytes([octet]))
    assert [type(event) for event in found] == [Opened, MethodReceived]


def test_amqplain() -> None:
    connection = AmqpClient(ClientHandshake(Login("me", "secret", "amqplain")))
    connection.take_output()
    connection.feed(START)
    output = connection.take_output()
    assert b"\x08AMQPLAIN" in output
    assert b"\x05LOGINS\0\0\0\x02me\x08PASSWORDS\0\0\0\x06secret" in output


@pytest.mark.parametrize("challenged", [False, True])
def test_a_server_that_does_not_prove_itself_with_scram(challenged: bool) -> None:
    connection = AmqpClient(ClientHandshake(Login("me", "secret", "SCRAM-SHA-256")))
    connection.take_output()
    connection.feed(marshal(commands.Connection.Start(0, 9, {}, "PLAIN SCRAM-SHA-256")))
    (start_ok,) = sent(connection)
    if challenged:
        nonce = start_ok.response.rpartition("r=")[2]
        connection.feed(marshal(commands.Connection.Secure(f"r={nonce}x,s=c2FsdA==,i=4096")))
        assert ",p=" in sent(connection)[0].response
    with pytest.raises(ConnectionException, match="did not prove"):
        connection.feed(TUNE)
    assert connection.state is ClientState.CLOSED


def test_no_common_mechanism_is_an_access_refusal() -> None:
    connection = AmqpClient(ClientHandshake(Login(mechanism="EXTERNAL")))
    with pytest.raises(ConnectionException, match="wanted EXTERNAL, offered AMQPLAIN PLAIN") as caught:
        connection.feed(START)
    assert caught.value.reply_code == 403
    assert connection.state is ClientState.CLOSED


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [
        ((0, 131072, 2047), (0, 0, 0), (0, 131072, 2047)),
        ((10, 131072, 2047), (0, 4096, 7), (10, 4096, 7)),
        ((10, 8192, 2047), (5, 131072, 65535), (5, 8192, 2047)),
        ((0, 8192, 2047), (5, 131072, 65535), (0, 8192, 2047)),
        ((10, 0, 0), (60, 131072, 2047), (10, 131072, 2047)),
    ],
)
def test_tuning(ours: tuple[int, int, int], theirs: tuple[int, int, int], agreed: tuple[int, int, int]) -> None:
    connection = AmqpClient(ClientHandshake(heartbeat=ours[0], frame_max=ours[1], channel_max=ours[2]))
    connection.take_output()
    connection.feed(START)
    connection.take_output()
    connection.feed(marshal(commands.Connection.Tune(theirs[2], theirs[1], theirs[0])))
    tune_ok = sent(connection)[0]
    assert (tune_ok.heartbeat, tune_ok.frame_max, tune_ok.channel_max) == agreed


def test_what_follows_open_ok_is_handed_out() -> None:
    connection = AmqpClient(ClientHandshake(), stop_when_open=True)
    events = connection.feed(START + TUNE + OPEN_OK + b"LINK1")
    assert isinstance(events[0], Opened)
    assert connection.feed(b"LINK2") == []
    assert connection.left_over() == b"LINK1LINK2"
    assert connection.left_over() == b""


@pytest.mark.parametrize("before", [b"", START, START + TUNE, START + TUNE + OPEN_OK])
def test_the_peer_closes_in_any_state(before: bytes) -> None:
    connection = AmqpClient(ClientHandshake())
    close = marshal(commands.Connection.Close(320, "CONNECTION_FORCED - go away", 10, 40))
    events = connection.feed(before + close + b"rubbish")
    assert events[-1] == Closed(320, "CONNECTION_FORCED - go away", 10, 40)
    assert connection.take_output().endswith(marshal(commands.Connection.CloseOk()))
    assert connection.state is ClientState.CLOSED
    assert connection.feed(b"more") == []


def test_we_close() -> None:
    connection = opened()
    connection.handshake.close(200, "bye")
    connection.handshake.close()
    (close,) = sent(connection)
    assert (close.reply_code, close.reply_text) == (200, "bye")
    late = marshal(commands.Basic.CancelOk("x"), 1) + marshal(commands.Connection.Blocked("r"))
    assert connection.feed(late + marshal(commands.Connection.CloseOk())) == [CloseAnswered()]
    assert connection.state is ClientState.CLOSED


def test_both_sides_close_at_once() -> None:
    connection = opened()
    connection.handshake.close()
    events = connection.feed(marshal(commands.Connection.Close(320, "me too", 0, 0)))
    assert events == [Closed(320, "me too", 0, 0)]
    assert isinstance(sent(connection)[-1], commands.Connection.CloseOk)


def test_another_version_is_refused_with_its_header() -> None:
    connection = AmqpClient(ClientHandshake())
    assert connection.feed(b"AMQ") == []
    (event,) = connection.feed(b"P\x00\x01\x00\x00")
    assert isinstance(event, VersionRefused)
    assert str(event) == "the peer speaks AMQP 1-0-0, wanted 0-9-1"
    assert connection.state is ClientState.CLOSED


def test_methods_and_content_of_channels_are_passed_on() -> None:
    connection = opened()
    deliver = commands.Basic.Deliver("tag", 1, False, "", "key")
    body = b"\x03\x00\x01\x00\x00\x00\x02hi\xce"
    method, content = connection.feed(marshal(deliver, 1) + body)
    assert isinstance(method, MethodReceived)
    assert (method.channel, method.payload[:4]) == (1, b"\x00\x3c\x00\x3c")
    assert content == ContentReceived(1, False, b"hi")


def test_blocked_is_nothing_to_us() -> None:
    data = marshal(commands.Connection.Blocked("memory")) + marshal(commands.Connection.Unblocked())
    assert opened().feed(data) == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", 501),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 501),
        (TUNE, 503),
        (OPEN_OK, 503),
        (START + START, 503),
        (START + OPEN_OK, 503),
        (marshal(commands.Channel.OpenOk(), 1), 503),
        (marshal(commands.Channel.OpenOk(), 0), 503),
        (START[:-1] + b"\x00", 501),
        (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a\xce", 502),
        (b"\x01\x00\x00\x00\x00\x00\x01\x00\xce", 502),
        (b"\x05\x00\x00\x00\x00\x00\x00\xce", 505),
        (b"\x03\x00\x01\x00\x00\x00\x00\xce", 505),
        (marshal(commands.Connection.Start(1, 0, {}, "PLAIN")), 540),
        (START + marshal(commands.Connection.Tune(1, 100, 0)), 530),
        (START + TUNE + OPEN_OK + b"\x01\x00\x00\x00\x10\x00\x00", 501),
    ],
)
def test_what_a_broken_peer_costs(data: bytes, code: int) -> None:
    connection = AmqpClient(ClientHandshake())
    with pytest.raises(ConnectionException) as caught:
        connection.feed(data)
    assert caught.value.reply_code == code
    assert connection.state is ClientState.CLOSED
    assert connection.feed(START) == []


def test_the_handshake_alone_serves_who_splits_frames_itself() -> None:
    handshake = ClientHandshake(properties={"qpid.ha-backup": {"id": "x", "epoch": 1 << 40}})
    handshake.begin()
    events = [handshake.method(0, data[7:-1]) for data in (START, TUNE, OPEN_OK)]
    assert isinstance(events[-1], Opened)
    assert events[:2] == [None, None]
    assert b"qpid.ha-backup" in handshake.take_output()


def test_begin_is_done_once() -> None:
    handshake = ClientHandshake()
    handshake.begin()
    with pytest.raises(RuntimeError, match="wanted state idle, found start"):
        handshake.begin()


class TestHeartbeats:
    def test_we_send_when_we_are_silent(self) -> None:
        connection = opened(heartbeat=10)
        assert connection.tick(0.0) is None
        connection.tick(4.9)
        assert connection.take_output() == b""
        connection.tick(5.0)
        assert connection.take_output() == HEARTBEAT_FRAME
        connection.tick(6.0)
        connection.tick(10.9)
        assert connection.take_output() == b""
        connection.tick(11.0)
        assert connection.take_output() == HEARTBEAT_FRAME

    def test_a_silent_peer_is_given_up_after_two_intervals(self) -> None:
        connection = opened(heartbeat=1)
        connection.tick(0.0)
        assert connection.tick(2.0) is None
        assert connection.tick(2.5) == PeerSilent(2.5)

    def test_any_octet_of_the_peer_counts(self) -> None:
        connection = opened(heartbeat=1)
        connection.tick(0.0)
        assert connection.feed(marshal(Heartbeat())) == []
        assert connection.tick(3.0) is None
        connection.feed(marshal(Heartbeat())[:2])
        assert connection.tick(6.0) is None
        assert connection.tick(9.0) == PeerSilent(3.0)

    def test_none_without_agreement(self) -> None:
        connection = opened(heartbeat=0)
        connection.tick(0.0)
        assert connection.tick(1e6) is None
        assert connection.take_output() == b""
