"""The states of a connection and of its channels, without a socket: octets in, octets and calls out."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import exceptions, spec
from pika.frame import Body, Header, Heartbeat, Method, ProtocolHeader, decode_frame

from client_lib.connecting.conversation import TIME, AnotherProtocol, ConnectionState, Conversation, Host
from client_lib.connecting.methods import Channel
from client_lib.connecting.parameters import connection_parameters
from client_lib.errors import AuthenticationFailure
from client_lib.options import Options
from client_lib.urls.url import Endpoint
from tests.support.slow import few

START = spec.Connection.Start(
    0, 9, {"capabilities": {"publisher_confirms": True, "basic.nack": True}, TIME: 5_000_000}, b"PLAIN", b"en_US"
)
TUNE = spec.Connection.Tune(10, 4096, 60)


class Lab:
    """A conversation, what it wrote and what it called."""

    def __init__(self, **options: Any) -> None:
        self.out = b""
        self.calls: list[str] = []
        self.clock = 1000
        self.aside: list[Any] = []
        host = Host(
            self._write,
            lambda: self.calls.append("opened"),
            lambda seconds: self.calls.append(f"tuned {seconds}"),
            lambda: self.calls.append("blocked"),
            lambda: self.calls.append("finished"),
            lambda: self.clock,
            lambda: 7_000_000,
            self._aside,
        )
        parameters = connection_parameters(Endpoint("h", 1, "u", "p"), Options(**options))
        self.talk = Conversation(parameters, {"qpid.conn_id": "me#1"}, host)

    def _aside(self, work: Any, done: Any) -> None:
        self.aside.append(lambda: done(work()))

    def _write(self, data: bytes) -> None:
        self.out += data

    def hear(self, method: Any, channel: int = 0) -> None:
        self.talk.received(Method(channel, method).marshal())

    def said(self) -> list[Any]:
        """The methods written since the last call."""
        found = []
        while self.out:
            used, frame = decode_frame(self.out)
            self.out = self.out[used:]
            found.append(getattr(frame, "method", frame))
        return found

    def names(self) -> list[str]:
        return [method.NAME for method in self.said()]

    def open(self) -> Lab:
        self.talk.begin()
        for method in (START, TUNE, spec.Connection.OpenOk()):
            self.hear(method)
        self.said()
        return self

    def channel(self) -> Channel:
        """An open one."""
        channel = self.talk.channel(lambda _: self.calls.append("channel"))
        self.hear(spec.Channel.OpenOk(), int(channel))
        self.said()
        return channel


def challenged(mechanism: str) -> tuple[Lab, bytes]:
    """A conversation that has begun to log in, and a challenge for it."""
    lab = Lab(sasl_mechanisms=mechanism)
    lab.talk.begin()
    lab.hear(spec.Connection.Start(0, 9, {}, b"PLAIN SCRAM-SHA-256", b"en_US"))
    hello = lab.said()[-1]
    assert hello.mechanism == mechanism
    return lab, b"r=%bx,s=c2FsdA==,i=4096" % hello.response.rpartition(b"r=")[2]


def test_a_broker_that_leaves_out_its_part_of_the_login() -> None:
    lab, challenge = challenged("SCRAM-SHA-256")
    lab.hear(spec.Connection.Secure(challenge))
    assert not lab.said(), "it is computed in another thread"
    lab.aside.pop()()
    assert b",p=" in lab.said()[0].response
    with pytest.raises(AuthenticationFailure, match="did not prove"):
        lab.hear(TUNE)
    assert not lab.said()


@pytest.mark.parametrize(("mechanism", "text"), [("SCRAM-SHA-256", "challenge is b'no'"), ("PLAIN", "does not have")])
def test_a_challenge_that_is_none(mechanism: str, text: str) -> None:
    lab, _ = challenged(mechanism)
    lab.hear(spec.Connection.Secure(b"no"))
    lab.aside.pop()()
    assert lab.calls == ["finished"] and not lab.said()
    lab.talk.ended(None)
    assert isinstance(lab.talk.error, AuthenticationFailure) and text in str(lab.talk.error)


def test_one_challenge_at_a_time_and_none_after_the_end() -> None:
    lab, challenge = challenged("SCRAM-SHA-256")
    lab.hear(spec.Connection.Secure(challenge))
    with pytest.raises(AuthenticationFailure, match="two challenges"):
        lab.hear(spec.Connection.Secure(challenge))
    lab.talk.ended(None)
    lab.aside.pop()()
    assert not lab.said()


def test_from_the_greeting_to_open() -> None:
    lab = Lab(heartbeat=3)
    lab.talk.begin()
    assert isinstance(lab.said()[0], ProtocolHeader)
    lab.hear(START)
    (start_ok,) = lab.said()
    assert (start_ok.mechanism, start_ok.response) == ("PLAIN", b"\0u\0p")
    properties = start_ok.client_properties
    assert properties["capabilities"]["consumer_cancel_notify"] and properties[TIME] == 7_000_000
    assert properties["qpid.conn_id"] == "me#1"
    lab.hear(TUNE)
    tune_ok, opening = lab.said()
    assert (tune_ok.channel_max, tune_ok.frame_max, tune_ok.heartbeat) == (10, 4096, 3)
    assert (opening.virtual_host, lab.talk.state) == ("/", ConnectionState.TUNED)
    lab.hear(spec.Connection.OpenOk())
    assert lab.talk.is_open and lab.calls == ["tuned 3", "opened"]
    lab.clock += 10
    assert lab.talk.broker_wall() == 5_000_010 and lab.talk.supports_confirms


@pytest.mark.parametrize(
    ("heard", "kind"),
    [
        ((), exceptions.IncompatibleProtocolError),
        ((START,), exceptions.ProbableAuthenticationError),
        ((START, TUNE), exceptions.ProbableAccessDeniedError),
        ((START, TUNE, spec.Connection.OpenOk()), exceptions.StreamLostError),
    ],
)
def test_when_the_broker_leaves_without_a_word(heard: tuple[Any, ...], kind: type[Exception]) -> None:
    lab = Lab()
    lab.talk.begin()
    for method in heard:
        lab.hear(method)
    assert lab.talk.ended(exceptions.StreamLostError("gone")) == (len(heard) == 3)
    assert isinstance(lab.talk.error, kind)


def test_the_broker_closes() -> None:
    lab = Lab().open()
    reasons: list[Exception] = []
    lab.channel().add_on_close_callback(lambda _, reason: reasons.append(reason))
    lab.hear(spec.Connection.Close(320, "forced", 0, 0))
    assert lab.names() == ["Connection.CloseOk"] and lab.calls[-1] == "finished"
    assert lab.talk.ended(None) and lab.talk.refusal == (320, "forced")
    assert reasons == [lab.talk.error] and isinstance(reasons[0], exceptions.ConnectionClosedByBroker)


def test_we_close_and_hear_nothing_more_but_the_answer() -> None:
    lab = Lab().open()
    channel = lab.channel()
    lab.talk.close()
    assert lab.names() == ["Connection.Close"] and not lab.talk.is_open
    lab.hear(spec.Channel.Close(404, "late", 0, 0), int(channel))
    assert lab.said() == [] and "finished" not in lab.calls
    lab.hear(spec.Connection.CloseOk())
    assert lab.calls[-1] == "finished" and lab.talk.ended(None)
    with pytest.raises(exceptions.ConnectionWrongStateError):
        lab.talk.channel(lambda _: None)


def test_blocked_and_heartbeats() -> None:
    lab = Lab().open()
    lab.hear(spec.Connection.Blocked("memory"))
    assert lab.talk.blocked == "memory"
    lab.hear(spec.Connection.Unblocked())
    lab.talk.received(Heartbeat().marshal() * 2)
    assert (lab.talk.blocked, lab.talk.heartbeats_received) == ("", 2)


def test_another_protocol() -> None:
    lab = Lab()
    lab.talk.begin()
    with pytest.raises(AnotherProtocol, match="AMQP"):
        lab.talk.received(b"AMQP\x00\x01\x00\x00")


def test_channels_are_numbered_up_to_the_limit_and_again() -> None:
    lab = Lab().open()
    channels = [lab.channel() for _ in range(10)]
    with pytest.raises(exceptions.NoFreeChannels):
        lab.talk.channel(lambda _: None)
    channels[3].close()
    lab.hear(spec.Channel.CloseOk(), 4)
    assert int(lab.channel()) == 4


# -- channels


def test_one_request_at_a_time() -> None:
    lab = Lab().open()
    channel, answers = lab.channel(), []
    channel.queue_declare("a", callback=lambda frame: answers.append(frame.method.queue))
    channel.queue_bind("a", "x")
    channel.queue_declare("b", callback=lambda frame: answers.append(frame.method.queue))
    channel.basic_reject(7)
    assert lab.names() == ["Queue.Declare", "Basic.Reject"]
    lab.hear(spec.Queue.DeclareOk("a", 0, 0), 1)
    bind, declare = lab.said()
    assert bind.nowait and not declare.nowait and answers == ["a"]
    lab.hear(spec.Queue.DeclareOk("b", 0, 0), 1)
    assert answers == ["a", "b"]


@pytest.mark.parametrize("empty", [True, False])
def test_basic_get(empty: bool) -> None:
    lab = Lab().open()
    channel, got = lab.channel(), []
    channel.basic_get("q", lambda *answer: got.append(answer))
    if empty:
        lab.hear(spec.Basic.GetEmpty(), 1)
        assert got == [(None, None, b"")]
    else:
        lab.hear(spec.Basic.GetOk(1, False, "", "q", 0), 1)
        lab.talk.received(Header(1, 4, pika.BasicProperties(message_id="m")).marshal())
        lab.talk.received(Body(1, b"ab").marshal() + Body(1, b"cd").marshal())
        ((method, properties, body),) = got
        assert (method.delivery_tag, properties.message_id, body) == (1, "m", b"abcd")


def test_the_broker_closes_a_channel_and_what_is_held_back_is_not_sent() -> None:
    lab = Lab().open()
    channel, seen = lab.channel(), []
    channel.ending = lambda: seen.append(lab.out)
    channel.add_on_close_callback(lambda _, reason: seen.append(reason.args[0]))
    channel.queue_declare("a", callback=seen.append)
    channel.queue_delete("b", callback=seen.append)
    lab.said()
    lab.hear(spec.Channel.Close(406, "no", 0, 0), 1)
    assert lab.names() == ["Channel.CloseOk"] and seen == [b"", 406]
    with pytest.raises(exceptions.ChannelWrongStateError, match="closed"):
        channel.basic_qos(prefetch_count=1)


def test_both_sides_close_a_channel() -> None:
    lab = Lab().open()
    channel, seen = lab.channel(), []
    channel.add_on_close_callback(lambda *_: seen.append("closed"))
    channel.close()
    lab.hear(spec.Channel.Close(406, "no", 0, 0), 1)
    lab.hear(spec.Channel.CloseOk(), 1)
    assert lab.names() == ["Channel.Close", "Channel.CloseOk"] and seen == ["closed"]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda channel: channel.queue_declare(7), TypeError),
        (lambda channel: channel.queue_declare("q" * 256), Exception),
        (lambda channel: channel.queue_declare("q", arguments={"x": object()}), Exception),
        (lambda channel: channel.queue_declare("q", arguments={"x": "y" * 5000}), ValueError),
        (lambda channel: channel.basic_consume("q" * 300, print), Exception),
        (lambda channel: channel.basic_get("\ud800", print), Exception),
    ],
)
def test_what_cannot_be_sent_is_refused_in_the_call(call: Any, kind: type[Exception]) -> None:
    lab = Lab().open()
    channel = lab.channel()
    with pytest.raises(kind):
        call(channel)
    assert lab.said() == [] and not channel.consumer_tags
    channel.queue_declare("good", callback=print)
    assert lab.names() == ["Queue.Declare"]


def test_a_body_without_a_header_ends_the_connection() -> None:
    lab = Lab().open()
    lab.channel()
    with pytest.raises(exceptions.UnexpectedFrameError):
        lab.talk.received(Body(1, b"x").marshal())


def test_a_body_that_is_too_long() -> None:
    lab = Lab().open()
    lab.channel()
    lab.hear(spec.Basic.Return(312, "NO_ROUTE", "", "q"), 1)
    lab.talk.received(Header(1, 1, pika.BasicProperties()).marshal())
    with pytest.raises(exceptions.BodyTooLongError):
        lab.talk.received(Body(1, b"xx").marshal())


METHODS = [
    START, TUNE, spec.Connection.OpenOk(), spec.Connection.Blocked(""), spec.Connection.CloseOk(),
    spec.Connection.Close(320, "", 0, 0), spec.Channel.OpenOk(), spec.Channel.Close(404, "", 0, 0),
    spec.Channel.CloseOk(), spec.Channel.Flow(True), spec.Basic.Ack(1, True), spec.Basic.Cancel("c"),
    spec.Queue.DeclareOk("q", 0, 0), spec.Basic.Deliver("c", 1, False, "", "q"), spec.Basic.GetEmpty(),
    spec.Basic.GetOk(1, False, "", "q", 0),
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(METHODS), st.integers(0, 2)), max_size=few(25)))
def test_any_order_of_methods_is_survived(heard: list[tuple[Any, int]]) -> None:
    """A broker out of its mind: an error that ends the connection, or nothing; the end is told once to each channel."""
    lab = Lab()
    lab.talk.begin()
    ends: list[int] = []
    try:
        for method, channel in heard:
            lab.hear(method, channel)
            if lab.talk.is_open and len(ends) < 3:
                made = lab.talk.channel(lambda _: None)
                made.add_on_close_callback(lambda channel, _: ends.append(int(channel)))
    except exceptions.AMQPError:
        pass
    lab.talk.ended(None)
    assert lab.talk.state is ConnectionState.ENDED and not lab.talk._channels
