"""A client that goes while frames of it wait for an answer: they are carried out first."""

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_method
from tests.support.memory import publish_octets
from tests.unit.broker.peer import Peer, Replicated

Basic, Connection, Queue = commands.Basic, commands.Connection, commands.Queue
CLOSE = encode_method(0, Connection.Close(200, "bye", 0, 0))


def declare(queue="q", channel=1, **options):
    return encode_method(channel, Queue.Declare(queue=queue, **options))


def pipelined(*frames):
    """A client that has sent this, and has no answer yet."""
    broker = Replicated()
    peer = Peer(broker)
    peer.open_channel()
    peer.feed(b"".join(frames))
    assert peer.frames() == []
    return broker, peer


def safe(broker, peer):
    """All that becomes safe, as one answer may lead to the next."""
    names = []
    for _ in range(5):
        broker.advance()
        names += [frame.name for frame in peer.frames()]
    return names


def ready(broker, queue="q"):
    return broker.vhost.queues[queue].core.ready


def test_close_behind_a_held_answer_comes_after_what_was_sent_before():
    broker, peer = pipelined(declare(), publish_octets(b"1", "q"), declare("r"), publish_octets(b"2", "r"), CLOSE)
    assert not peer.disconnected
    assert safe(broker, peer) == ["Queue.DeclareOk", "Queue.DeclareOk", "Connection.CloseOk"]
    assert (ready(broker), ready(broker, "r"), peer.disconnected) == (1, 1, 1)


def test_frames_before_the_end_of_the_stream_are_carried_out():
    broker, peer = pipelined(declare(), publish_octets(b"1", "q"))
    peer.connection.closed("end of file")
    assert peer.connection in broker.connections
    safe(broker, peer)
    assert ready(broker) == 1
    assert peer.connection not in broker.connections


def test_the_socket_ends_before_close_is_answered():
    broker, peer = pipelined(declare(), publish_octets(b"1", "q"), CLOSE)
    peer.connection.closed("reset")
    safe(broker, peer)
    assert (ready(broker), peer.disconnected) == (1, 1)


def test_without_frames_that_wait_the_end_is_at_once():
    broker, peer = pipelined(declare())
    peer.connection.closed("end of file")
    assert peer.connection not in broker.connections


@pytest.mark.parametrize("cut", [True, False])
def test_nothing_counts_behind_close(cut):
    late = publish_octets(b"late", "q", channel=2) + b"garbage that is no frame at all"
    broker, peer = pipelined(declare(), CLOSE + (late if cut else b""))
    if not cut:
        peer.feed(late)
    assert safe(broker, peer) == ["Queue.DeclareOk", "Connection.CloseOk"]
    assert ready(broker) == 0


def test_two_channels_are_answered_before_close():
    broker = Replicated()
    peer = Peer(broker)
    for number in (1, 2):
        peer.open_channel(number)
    peer.feed(declare("q", 1) + declare("r", 2) + publish_octets(b"1", "r", channel=2) + CLOSE)
    assert safe(broker, peer) == ["Queue.DeclareOk", "Queue.DeclareOk", "Connection.CloseOk"]
    assert ready(broker, "r") == 1


def test_nothing_is_delivered_to_a_client_that_goes():
    broker = Replicated()
    peer, other = Peer(broker), Peer(broker)
    for each in (peer, other):
        each.open_channel()
    peer.send(1, Queue.Declare(queue="q"))
    broker.advance()
    peer.frames()
    peer.call(1, Basic.Consume(queue="q", consumer_tag="t"))
    peer.feed(declare("r") + publish_octets(b"1", "r"))
    peer.connection.closed("end of file")
    other.publish(b"m", "q")
    broker.engine.end_turn()
    assert ready(broker) == 1
    safe(broker, peer)
    other.send(1, Basic.Get(queue="q"))
    answer = other.frames()[0]
    assert answer.name == "Basic.GetOk" and not answer.redelivered


def test_a_broker_that_stops_waits_for_nobody_who_goes():
    broker, peer = pipelined(declare(), publish_octets(b"1", "q"), CLOSE)
    peer.connection.close(320, "stops")
    assert peer.connection not in broker.connections


def test_a_deposed_primary_drops_what_waits():
    broker, peer = pipelined(declare(), publish_octets(b"1", "q"))
    peer.connection.closed("end of file")
    for connection in list(broker.connections):
        connection.close(320, "deposed")
    broker.engine.demote()
    broker.engine.passive = True
    safe(broker, peer)
    assert not broker.connections
