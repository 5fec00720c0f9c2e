"""A pause of all clients: who is asked, who has answered, what goes on afterwards."""

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.pause import FLOW, Pause
from tests.unit.broker.peer import Peer

Basic, Channel, Connection, Queue = commands.Basic, commands.Channel, commands.Connection, commands.Queue


@pytest.fixture
def broker():
    return Broker()


def client(broker, **properties):
    peer = Peer(broker, capabilities={"connection.blocked": True}, **properties)
    peer.open_channel()
    peer.call(1, Queue.Declare(queue="q"))
    return peer


def publish(peer, count=1):
    for _ in range(count):
        peer.publish(b"x", "q")
    broker_turn(peer)


def broker_turn(peer):
    peer.connection.broker.engine.end_turn()


def names(peer):
    return [type(frame) for frame in peer.frames()]


def test_publishers_are_blocked_and_let_go(broker):
    peer = client(broker)
    publish(peer)
    peer.frames()
    pause = Pause(broker, "moving")
    (blocked,) = peer.frames()
    assert (type(blocked), blocked.reason) == (Connection.Blocked, "moving")
    assert (pause.unanswered, pause.unacknowledged) == (0, 0)
    pause.end()
    assert names(peer) == [Connection.Unblocked]


def test_a_client_that_knows_channel_flow_answers(broker):
    peer = client(broker, **{FLOW: True})
    pause = Pause(broker, "moving")
    (flow,) = peer.frames()
    assert (type(flow), flow.active, pause.unanswered) == (Channel.Flow, False, 1)
    peer.send(1, Channel.FlowOk(False))
    assert pause.unanswered == 0
    pause.end()
    (flow,) = peer.frames()
    assert (type(flow), flow.active) == (Channel.Flow, True)


def test_a_channel_that_has_gone_needs_no_answer(broker):
    peer = client(broker, **{FLOW: True})
    pause = Pause(broker, "moving")
    peer.connection.closed("reset")
    assert pause.unanswered == 0
    pause.end()


def test_consumers_get_nothing_until_it_is_over(broker):
    consumer, producer = client(broker), client(broker)
    consumer.call(1, Basic.Consume(queue="q", consumer_tag="t"))
    publish(producer, 2)
    deliveries = [frame for frame in consumer.frames() if isinstance(frame, Basic.Deliver)]
    assert len(deliveries) == 2
    pause = Pause(broker, "moving")
    publish(producer)
    assert Basic.Deliver not in names(consumer)
    assert pause.unacknowledged == 2
    consumer.send(1, Basic.Ack(2, True))
    assert pause.unacknowledged == 0
    pause.end()
    broker_turn(consumer)
    assert names(consumer).count(Basic.Deliver) == 1


def test_a_flow_that_the_client_stopped_itself_stays_stopped(broker):
    consumer, producer = client(broker), client(broker)
    consumer.call(1, Basic.Consume(queue="q", consumer_tag="t"))
    consumer.send(1, Channel.Flow(False))
    Pause(broker, "moving").end()
    publish(producer)
    assert Basic.Deliver not in names(consumer)


def test_a_publisher_that_comes_while_others_wait_is_told_although_its_route_is_known(broker):
    first = client(broker)
    publish(first)
    Pause(broker, "moving")
    second = client(broker)
    assert Connection.Blocked not in names(second)
    publish(second)
    assert names(second) == [Connection.Blocked]
