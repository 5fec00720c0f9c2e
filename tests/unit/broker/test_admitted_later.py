"""Admission that decides later: what a client sends meanwhile is kept, and who has gone is forgotten."""

import logging

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_method
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.ports import Later, Refusal
from tests.unit.broker.peer import Peer
from tests.unit.broker.test_client_connection import Hooks

Connection, Channel = commands.Connection, commands.Channel
ELSEWHERE = Refusal(320, "CONNECTION_FORCED - NODE is a backup (ready); the primary is OTHER")


@pytest.fixture
def hooks():
    return Hooks(Later())


@pytest.fixture
def peer(hooks):
    broker = Broker()
    broker.hooks = hooks
    peer = Peer(broker, opened=False)
    assert [frame.name for frame in peer.handshake()] == ["Connection.Start", "Connection.Tune"]
    return peer


def names(peer):
    return [frame.name for frame in peer.frames()]


def decide(peer, hooks, refusal):
    hooks.refusal = refusal
    peer.connection.ask_again()


def test_a_client_is_admitted_later_and_what_it_has_sent_is_carried_out_then(peer, hooks):
    peer.feed(encode_method(1, Channel.Open()) + encode_method(2, Channel.Open()))
    assert names(peer) == []
    decide(peer, hooks, None)
    assert names(peer) == ["Connection.OpenOk", "Channel.OpenOk", "Channel.OpenOk"]
    assert hooks.kinds() == ["admit", "admit", "opened"]


def test_a_client_is_refused_later(peer, hooks):
    peer.feed(encode_method(1, Channel.Open()))
    decide(peer, hooks, ELSEWHERE)
    (close,) = peer.frames()
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (320, ELSEWHERE.text, 10, 40)
    peer.send(0, Connection.CloseOk())
    assert peer.connection.finished and hooks.kinds() == ["admit", "admit"]


def test_it_may_be_put_off_again(peer, hooks):
    decide(peer, hooks, Later())
    peer.feed(encode_method(1, Channel.Open()))
    assert names(peer) == [] and peer.connection.put_off
    decide(peer, hooks, None)
    assert names(peer) == ["Connection.OpenOk", "Channel.OpenOk"]


def test_a_virtual_host_that_is_gone_is_noticed_later(hooks):
    broker = Broker()
    broker.hooks = hooks
    peer = Peer(broker, opened=False, vhost="nowhere")
    peer.handshake()
    decide(peer, hooks, None)
    (close,) = peer.frames()
    assert (close.reply_code, close.reply_text) == (530, "NOT_ALLOWED - vhost nowhere not found")


def test_who_has_gone_meanwhile_is_not_opened(peer, hooks, caplog):
    caplog.set_level(logging.INFO)
    peer.connection.closed("reset")
    assert peer.connection.finished
    decide(peer, hooks, None)
    assert hooks.kinds() == ["admit"] and peer.disconnected == 1


def test_the_time_for_opening_goes_on(peer, hooks):
    for second in range(13):
        peer.broker.tick(float(second))
        peer.connection.tick(float(second))
    assert peer.connection.finished and peer.connection.end_reason == "no admission within 10 s"
    decide(peer, hooks, None)
    assert hooks.kinds().count("opened") == 0


def test_who_is_put_off_is_logged_in_and_no_newcomer(peer):
    """`max-newcomers` is for those of whom nobody knows who they are."""
    assert peer.connection.put_off and not peer.connection.negotiating


def test_a_broker_that_closes_its_clients_tells_who_is_put_off(peer, hooks):
    peer.connection.close(320, "CONNECTION_FORCED - bye")
    (close,) = peer.frames()
    assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - bye")
    decide(peer, hooks, None)
    peer.send(0, Connection.CloseOk())
    assert names(peer) == [] and peer.connection.finished and hooks.kinds() == ["admit"]
