"""A queue whose content a plug-in keeps to itself: clients look, but neither take messages out nor put any in."""

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from tests.unit.broker.peer import Peer

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue
REASON = "is a replica"


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def peer(broker):
    peer = Peer(broker)
    peer.open_channel()
    peer.call(1, Queue.Declare(queue="q"))
    peer.publish(b"there before", "q")
    peer.frames()
    return peer


def reserve(broker, reason=REASON):
    broker.vhost.queues["q"].reserved = reason
    broker.engine.forget_routes()


def bodies(broker, name="q"):
    return [message[5] for message in broker.vhost.queues[name].core.peek(100)]


@pytest.mark.parametrize(
    "method",
    [
        Basic.Get(queue="q"),
        Basic.Consume(queue="q"),
        Queue.Purge(queue="q"),
        Queue.Delete(queue="q"),
    ],
)
def test_nothing_is_taken_out(broker, peer, method):
    reserve(broker)
    answer = peer.call(1, method)
    assert (answer.reply_code, answer.reply_text) == (403, "ACCESS_REFUSED - queue 'q' in vhost '/' is a replica")
    assert bodies(broker) == [b"there before"]


@pytest.mark.parametrize("exchange", ["", "amq.fanout", "amq.match"])
def test_nothing_is_published_to_it(broker, peer, exchange):
    if exchange:
        peer.call(1, Queue.Bind(queue="q", exchange=exchange, routing_key=""))
        peer.publish(b"cached route", "q", exchange)
    reserve(broker)
    before = bodies(broker)
    peer.publish(b"one more", "q", exchange)
    (answer,) = peer.frames()
    assert (answer.reply_code, "is a replica" in answer.reply_text) == (403, True)
    assert bodies(broker) == before


def test_the_brokers_own_messages_pass_it_by(broker, peer):
    """Dead letters go to the other queues of their exchange."""
    peer.call(1, Queue.Declare(queue="other"))
    for name in ("q", "other"):
        peer.call(1, Queue.Bind(queue=name, exchange="amq.fanout", routing_key=""))
    peer.call(1, Queue.Declare(queue="full", arguments={"x-max-length": 1, "x-dead-letter-exchange": "amq.fanout"}))
    reserve(broker)
    peer.publish(b"first", "full")
    peer.publish(b"second", "full")
    assert peer.frames() == []
    assert bodies(broker, "other") == [b"first"]
    assert bodies(broker) == [b"there before"]


def test_everybody_may_look_and_bind(broker, peer):
    reserve(broker)
    assert peer.call(1, Queue.Declare(queue="q", passive=True)).message_count == 1
    assert peer.call(1, Queue.Declare(queue="q")).message_count == 1
    assert isinstance(peer.call(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="k")), Queue.BindOk)


def test_it_becomes_an_ordinary_queue_again(broker, peer):
    reserve(broker)
    reserve(broker, "")
    peer.publish(b"new", "q")
    assert peer.frames() == []
    assert bodies(broker) == [b"there before", b"new"]
    assert peer.call(1, Queue.Purge(queue="q")).message_count == 2
