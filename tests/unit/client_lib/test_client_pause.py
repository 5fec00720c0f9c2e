"""The client when the broker asks it to pause: connection.blocked and channel.flow."""

from typing import Any

from pamqp import commands

from client_lib import Sender
from client_lib.connecting.parameters import connection_parameters as parameters
from client_lib.options import Options
from client_lib.urls.url import parse_url
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.test_client_failover import Lab, lab

__all__ = ["lab"]  # a fixture


def say(broker: ScriptedBroker, *methods: Any, channel: int = 0) -> None:
    for peer in list(broker.peers):
        if not peer.gone:
            peer.send(channel, *methods)


def published(broker: ScriptedBroker) -> int:
    return broker.store.methods(broker.name).count("Basic.Publish")


def paused_by_flow(sender: Sender, broker: ScriptedBroker) -> None:
    sender.send("before", timeout=30)
    say(broker, commands.Channel.Flow(False), channel=1)
    wait_for(lambda: "Channel.FlowOk" in broker.store.methods(broker.name))


def test_messages_wait_while_the_connection_is_blocked(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    sender = session.queue_sender("q")
    sender.send("before", timeout=30)
    say(broker, commands.Connection.Blocked("memory"))
    wait_for(lambda: "blocked" in lab.kinds())
    for number in range(10):
        sender.send(str(number), sync=False)
    # What needs an answer still gets one, so by then a publish would have been seen.
    session.declare_queue("other")
    assert (published(broker), sender.unsettled()) == (1, 10)
    say(broker, commands.Connection.Unblocked())
    sender.sync(30)
    assert published(broker) == 11
    blocked, unblocked = (event for event in lab.events if "blocked" in event["kind"])
    assert (blocked["kind"], blocked["reason"], unblocked["kind"]) == ("blocked", "memory", "unblocked")


def test_channel_flow_is_obeyed_and_answered(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    sender = session.queue_sender("q")
    paused_by_flow(sender, broker)
    sender.send("waits", sync=False)
    session.declare_queue("other")
    assert broker.store.methods(broker.name)[-2:] == ["Channel.FlowOk", "Queue.Declare"]
    assert published(broker) == 1
    say(broker, commands.Channel.Flow(True), channel=1)
    sender.sync(30)
    assert broker.store.methods(broker.name)[-2:] == ["Channel.FlowOk", "Basic.Publish"]


def test_acknowledgements_go_before_the_answer(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    session.declare_queue("q")
    receiver, sender = session.queue_receiver("q"), session.queue_sender("q")
    sender.send("one", timeout=30)
    message = receiver.fetch(30)
    with broker.store.lock:  # the broker answers nothing until both are on their way
        session.acknowledge(message, sync=False)
        say(broker, commands.Channel.Flow(False), channel=1)
    wait_for(lambda: "Channel.FlowOk" in broker.store.methods(broker.name))
    methods = broker.store.methods(broker.name)
    assert methods.index("Basic.Ack") < methods.index("Channel.FlowOk")


def test_a_paused_client_sends_on_the_next_connection_and_nothing_twice(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker("refuse")
    sender = lab.connect(first, second).session().queue_sender("q")
    paused_by_flow(sender, first)
    for number in range(5):
        sender.send(str(number), sync=False)
    second.mode = "normal"
    first.mode = "refuse"
    first.shut(f"CONNECTION_FORCED - b0 is a backup (joining); the primary is {second.url}")
    sender.sync(30)
    assert (published(first), published(second)) == (1, 5)
    assert "resend" not in lab.kinds()
    attempts = [event for event in lab.events if event["kind"] == "connect"]
    assert attempts[1]["peer"] == second.url
    assert float(attempts[1]["attrs"]["delay_s"]) == 0.0


def test_the_client_says_that_it_knows_channel_flow(lab: Lab) -> None:
    assert parameters(parse_url("h"), Options()).client_properties["qpid.channel_flow"] is True
