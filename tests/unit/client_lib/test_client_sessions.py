"""Sessions, senders and receivers: their ends, use after it, and what a broker's refusal costs."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands, frame

from client_lib import (
    RELEASED,
    Connection,
    ConnectionClosed,
    Disposition,
    Empty,
    InDoubt,
    LinkClosed,
    Message,
    MessagingError,
    ReceiverCancelled,
    Rejected,
    ServerError,
    SessionClosed,
    Timeout,
)
from client_lib.core.subscription import Subscription
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import Peer, ScriptedBroker
from tests.unit.client_lib.test_client_failover import QUICK, Lab, lab

__all__ = ["lab"]  # a fixture


def closing(peer: Peer, reply_code: int, text: str) -> None:
    peer.send(0, commands.Connection.Close(reply_code, text, 50, 10))
    peer.broker.peers.remove(peer)


# -- receiving


def test_next_receiver_follows_the_order_of_arrival(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    senders = {name: session.queue_sender(name) for name in ("a", "b")}
    receivers = {name: session.queue_receiver(name) for name in ("a", "b")}
    order = ["a", "b", "b", "a", "b", "a", "a"]
    for name in order:
        senders[name].send(name, timeout=30)
    wait_for(lambda: sum(receiver.available() for receiver in receivers.values()) == len(order))
    found = []
    for _ in order:
        receiver = session.next_receiver(5)
        found.append(receiver.fetch(0).content)
    assert found == order
    with pytest.raises(Empty):
        session.next_receiver(0.05)
    waiting: list[Any] = []
    thread = threading.Thread(target=lambda: waiting.append(session.next_receiver(5)))
    thread.start()
    wait_for(lambda: session._waiting.worker.subscribing.waiting_for_any == 1)
    senders["b"].send("late", timeout=30)
    thread.join(30)
    assert waiting == [receivers["b"]]
    assert session.receivers == list(receivers.values()) and session.senders == list(senders.values())


def test_get(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection = lab.connect(first, second)
    session = connection.session()
    assert session.get("q", timeout=30) is None
    for number in range(20):
        session.queue_sender("q").send(str(number), timeout=30)
    message = session.get("q", timeout=30)
    assert message is not None and message.content == "0"
    session.acknowledge(message)
    threads = [threading.Thread(target=session.get, args=("q", True, 5)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    again = session.get("q", timeout=30)
    assert again is not None and again.content == "9"
    first.kill()
    repeated = session.get("q", timeout=30)
    assert repeated is not None and (repeated.content, repeated.redelivered) == ("9", True)
    session.acknowledge(again, sync=False)  # of the lost connection: ignored
    session.acknowledge(repeated)
    assert len(lab.store.queues["q"]) == 10


def test_capacity_can_be_changed(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    sender, receiver = session.queue_sender("q", capacity=1), session.queue_receiver("q", capacity=1)
    sender.capacity = 10
    for number in range(10):
        sender.send(str(number), sync=False)
    sender.sync(30)
    wait_for(lambda: receiver.available() == 1)
    receiver.capacity = 6
    wait_for(lambda: receiver.available() == 6)
    assert [receiver.fetch(0).content for _ in range(6)] == [str(number) for number in range(6)]
    for change in (sender, receiver):
        with pytest.raises(ValueError, match="at least 0"):
            change.capacity = -1


def test_settled_twice_unreceived_and_without_acknowledgement(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    for _ in range(2):
        session.queue_sender("q").send("1", timeout=30)
    message = session.queue_receiver("q", capacity=1).fetch(30)
    session.acknowledge(message, Disposition(RELEASED))
    session.acknowledge(message)
    assert "Basic.Ack" not in broker.store.methods(broker.name)
    with pytest.raises(ValueError, match="not a received message"):
        session.acknowledge(Message("mine"))
    session.queue_sender("other").send("2", timeout=30)
    session.acknowledge(session.queue_receiver("other", no_ack=True).fetch(30))


def test_the_buffer_of_a_receiver_without_acknowledgements_survives(lab: Lab) -> None:
    """The broker has forgotten these messages; they would not be delivered again."""
    first, second = lab.broker(), lab.broker()
    connection = lab.connect(first, second)
    session = connection.session()
    receiver, sender = session.queue_receiver("q", no_ack=True), session.queue_sender("q")
    for number in range(5):
        sender.send(str(number), timeout=30)
    wait_for(lambda: receiver.available() == 5)
    for peer in first.peers:
        peer.unacked.clear()
    first.kill()
    wait_for(lambda: connection.failovers == 1 and connection.is_connected)
    assert [receiver.fetch(30).content for _ in range(5)] == [str(number) for number in range(5)]


def test_a_duplicate_filter_does_not_remember_what_was_lost_in_the_buffer(lab: Lab) -> None:
    broker = lab.broker()
    connection = lab.connect(broker)
    session = connection.session()
    for number in range(2):
        session.queue_sender("q").send(str(number), timeout=30)
    receiver = session.queue_receiver("q", drop_duplicates=True)
    wait_for(lambda: receiver.available() == 2)
    first = receiver.fetch(30)
    broker.drop()
    assert receiver.fetch(30).content == "1", "the copy of what is being worked on is held back"
    session.acknowledge(first)
    with pytest.raises(Empty):
        receiver.fetch(0.05)
    session.acknowledge()
    wait_for(lambda: not any(peer.unacked for peer in broker.peers) and not lab.store.queues["q"])


# -- what a refusal costs


@pytest.mark.parametrize("code", [503, 530, 540])
def test_a_command_that_costs_the_connection_is_not_repeated(lab: Lab, code: int) -> None:
    broker = lab.broker()
    connection = lab.connect(broker)
    poisoned, other = connection.session(), connection.session()
    other.declare_queue("there")

    def refuse(queue: str) -> None:
        if queue == "poison":
            closing(next(peer for peer in broker.peers if not peer.gone), code, "COMMAND_INVALID")
            raise OSError("closed")

    broker.refuse_declare = refuse
    with pytest.raises(ServerError, match="COMMAND_INVALID") as failed:
        poisoned.declare_queue("poison", timeout=30)
    assert failed.value.reply_code == code
    wait_for(lambda: connection.is_connected)
    poisoned.declare_queue("harmless", timeout=30)
    other.queue_sender("there").send("1", timeout=30)
    assert connection.failovers == 1


def test_a_command_survives_a_broker_that_steps_down(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection = lab.connect(first, second)

    def step_down(queue: str) -> None:
        first.mode = "refuse"
        first.shut("CONNECTION_FORCED - stepping down")
        raise OSError("closed")

    session = connection.session()
    session.declare_queue("before")
    first.refuse_declare = step_down
    assert session.declare_queue("q", timeout=30) == "q"
    assert lab.store.methods("b1").count("Queue.Declare") == 2


def test_topology_that_costs_every_connection_ends_the_session(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection = lab.connect(first, second)
    session, other = connection.session(), connection.session()
    session.declare_queue("q")

    def refuse(queue: str) -> None:
        closing(next(peer for peer in second.peers if not peer.gone), 540, "NOT_IMPLEMENTED")
        raise OSError("closed")

    second.refuse_declare = refuse
    first.kill()
    with pytest.raises(ServerError, match="540"):
        session.queue_sender("q").send("1", timeout=30)
    with pytest.raises(MessagingError):
        session.sync(1)
    wait_for(lambda: connection.is_connected)
    assert other is not session and connection.opened()


def test_what_cannot_be_restored_ends_the_session_with_a_clear_text(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection = lab.connect(first, second, restore_timeout=0.2)
    session, other = connection.session(), connection.session()
    session.declare_queue("q")
    second.refuse_declare = lambda queue: (406, "PRECONDITION_FAILED - inequivalent arg 'durable'")
    message = Message("1")
    settled: list[Any] = []
    first.confirm = "hold"
    sender = session.queue_sender("q", on_settled=lambda message, _id, error: settled.append((message, error)))
    sender.send(message, sync=False)
    first.kill()
    with pytest.raises(ServerError, match=r"406 PRECONDITION_FAILED.*durable.*still so 0.2 s after") as failed:
        session.sync(30)
    assert failed.value.reply_code == 406
    wait_for(lambda: [(found, type(error)) for found, error in settled] == [(message, ServerError)])
    other.queue_sender("elsewhere").send("2", timeout=30)


def test_a_refused_subscription_ends_its_session_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = lab.broker()
    connection = lab.connect(broker)
    session, other = connection.session(), connection.session()
    session.declare_queue("q")

    def refuse(peer: Peer, channel: int, method: Any) -> None:
        peer.send(channel, commands.Channel.Close(404, "NOT_FOUND", 60, 20))

    monkeypatch.setattr(Peer, "_on_basic_consume", refuse)
    with pytest.raises(ServerError, match="NOT_FOUND"):
        session.queue_receiver("nowhere", timeout=30)
    assert session.receivers == []
    other.queue_sender("q").send("1", timeout=30)


def test_a_subscription_that_timed_out_leaves_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    session.declare_queue("q")
    consumed: list[Any] = []
    monkeypatch.setattr(Peer, "_on_basic_consume", lambda peer, channel, method: consumed.append(method))
    with pytest.raises(MessagingError, match="no answer"):
        session.queue_receiver("q", timeout=0.1)
    peer = broker.peers[0]
    peer.send(1, commands.Basic.ConsumeOk(consumed[0].consumer_tag))
    wait_for(lambda: "Basic.Cancel" in broker.store.methods(broker.name))
    assert session.receivers == []


def test_a_receiver_closed_before_it_was_subscribed(lab: Lab) -> None:
    broker = lab.broker("refuse")
    connection = Connection(broker.url, **QUICK)
    lab.connections.append(connection)
    with pytest.raises(Timeout):
        connection.open(0.05)
    session = connection.session()
    receiver, receivers = session._receiver("q", 1, False, False, None, False), session._core.receivers
    answer = receivers.start(receiver)
    receivers.close(receiver)
    broker.mode = "normal"
    answer.result(5)
    assert "Basic.Consume" not in broker.store.methods(broker.name)


def test_watcher_hears_of_everything(lab: Lab) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def lost(self) -> None:
            self.heard.append("lost")

        def ready(self) -> None:
            self.heard.append("ready")

        def ended(self, error: MessagingError) -> None:
            self.heard.append(type(error).__name__)

        def cancelled(self, subscription: Subscription) -> None:
            self.heard.append(subscription.queue)

    first, second = lab.broker(), lab.broker()
    session = lab.connect(first, second).session()
    receiver = session.queue_receiver("q")
    watcher = session._waiting.worker.watcher = Watcher()
    first.kill()
    wait_for(lambda: watcher.heard == ["lost", "ready"])
    second.peers[-1].send(1, commands.Basic.Cancel(receiver.consumer_tag))
    with pytest.raises(ReceiverCancelled):
        receiver.fetch(30)
    session.close()
    assert watcher.heard == ["lost", "ready", "q", "SessionClosed"]


def test_recovered_is_told_when_the_last_message_is_confirmed(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    first.confirm = second.confirm = "hold"
    connection = lab.connect(first, second)
    session, other = connection.session(), connection.session()
    sender = session.queue_sender("q")
    for number in range(3):
        sender.send(str(number), sync=False)
    wait_for(lambda: len(lab.store.queues.get("q", ())) == 3)
    other.declare_queue("x")
    first.kill()
    wait_for(lambda: second.peers and second.peers[-1].publishes == 3)
    other.declare_queue("y")
    assert "recovered" not in lab.kinds()
    second.peers[-1].send(1, commands.Basic.Ack(2, True))
    session.declare_queue("z")
    assert "recovered" not in lab.kinds()
    second.peers[-1].send(1, commands.Basic.Ack(3, False))
    sender.sync(30)
    wait_for(lambda: "recovered" in lab.kinds())
    event = next(event for event in lab.events if event["kind"] == "recovered")
    assert event["attrs"]["resent"] == "3" and int(event["attrs"]["outage_us"]) > 0


def test_a_confirm_read_together_with_the_close_counts(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    first.confirm = "hold"
    session = lab.connect(first, second).session()
    sender = session.queue_sender("q")
    for number in range(4):
        sender.send(str(number), sync=False)
    wait_for(lambda: first.peers[0].publishes == 4)
    first.mode = "refuse"
    first.peers[0].sock.sendall(
        frame.marshal(commands.Basic.Ack(3, True), 1)
        + frame.marshal(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), 0)
    )
    sender.sync(30)
    assert second.peers[-1].publishes == 1


# -- ends


def test_use_after_close_raises_the_right_class(lab: Lab) -> None:
    connection = lab.connect(lab.broker())
    session = connection.session()
    sender, receiver = session.queue_sender("q"), session.queue_receiver("q")
    for link in (sender, receiver):
        link.close(5)
        link.close(5)
    calls: list[Callable[[], object]] = [lambda: sender.send("1"), sender.sync, receiver.fetch]
    for call in calls:
        with pytest.raises(LinkClosed):
            call()
    assert session.senders == session.receivers == [] and list(receiver) == []
    other = session.queue_sender("q")
    session.close()
    session.close()
    calls = [lambda: other.send("1"), session.sync, session.declare_queue, session.acknowledge]
    for call in calls:
        with pytest.raises(SessionClosed):
            call()
    other.close()
    assert connection.opened() and connection.attached() and connection.sessions == []
    last = connection.session("last")
    connection.close()
    calls = [last.sync, connection.session, connection.open, lambda: last.queue_sender("q")]
    for call in calls:
        with pytest.raises(ConnectionClosed):
            call()
    last.close(None)
    assert not connection.opened() and not connection.attached()


def test_closed_names_can_be_used_again(lab: Lab) -> None:
    connection = lab.connect(lab.broker())
    one = connection.session("name")
    one.close()
    assert connection.session("name") is not one


@pytest.mark.parametrize("hang", [False, True])
def test_everything_closed_by_many_threads_at_once(lab: Lab, hang: bool) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = lab.connect(broker)
    sessions = [connection.session() for _ in range(4)]
    senders = [session.queue_sender("q") for session in sessions]
    receivers = [session.queue_receiver("q") for session in sessions]
    messages = [Message(str(number)) for number in range(4)]
    for sender, message in zip(senders, messages, strict=True):
        sender.send(message, sync=False)
    if hang:
        broker.stop_answering()
    left: list[list[Message]] = []
    errors: list[BaseException] = []

    def close(thing: Any) -> None:
        try:
            result = thing.close(2.0)
        except InDoubt:
            pass
        except BaseException as error:
            errors.append(error)
        else:
            if thing is connection:
                left.append(result)

    threads = [
        threading.Thread(target=close, args=(thing,)) for thing in [*senders, *receivers, *sessions] + [connection] * 4
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - began < 20 and not any(thread.is_alive() for thread in threads)
    if not hang:
        assert not errors


def test_close_in_a_callback(lab: Lab) -> None:
    connection = lab.connect(lab.broker())
    session, other = connection.session(), connection.session()
    sender, receiver = session.queue_sender("q"), session.queue_receiver("q")
    done: list[Any] = []

    def settled(message: Message, message_id: str, error: Exception | None) -> None:
        if error is None:
            for thing in (sender, receiver, session):
                thing.close()
            done.append(connection.close())

    sender._on_settled = settled
    sender.send("1", sync=False)
    wait_for(lambda: done == [[]])
    wait_for(lambda: connection._thread is not None and not connection._thread.is_alive())
    with pytest.raises(ConnectionClosed):
        other.sync()


def test_close_of_a_sender_in_doubt(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    sender = lab.connect(broker).session().queue_sender("q")
    sender.send("1", sync=False)
    with pytest.raises(InDoubt):
        sender.close(0.05)
    with pytest.raises(LinkClosed):
        sender.send("2")
    assert sender.unsettled() == 1


# -- processes


PROGRAM = """
    import logging, os, sys
    from client_lib import Connection
    connection = Connection(sys.argv[1], heartbeat=1).open(30)
    sender = connection.session().queue_sender("q")
    for number in range(20):
        sender.send(str(number), sync=False)
    {end}
"""


def run_program(end: str, broker: ScriptedBroker) -> subprocess.CompletedProcess[str]:
    text = textwrap.dedent(PROGRAM).format(end=end)
    command = [sys.executable, "-c", text, broker.url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_exit_with_unconfirmed_messages_says_so_and_is_quick(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    began = time.monotonic()
    ended = run_program("", broker)
    assert time.monotonic() - began < 20
    assert ended.returncode == 0
    assert "20 messages in doubt" in ended.stderr and ":1, " in ended.stderr


def test_exit_waits_for_the_confirms(lab: Lab) -> None:
    broker = lab.broker()
    ended = run_program("", broker)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(lab.store.queues["q"]) == 20


FORK = """
    import threading
    sender.sync(30)
    child = os.fork()
    if child == 0:
        failed = []
        session = connection.sessions[0]
        for call in (connection.session, session.sync, lambda: sender.send("child"), session.declare_queue,
                     lambda: session.queue_receiver("q")):
            try:
                call()
            except ConnectionError as error:
                failed.append("parent" in str(error))
        session.close()
        assert connection.close() == []
        with Connection(sys.argv[1], heartbeat=1) as own:
            own.session().queue_sender("q").send("own", timeout=30)
        os._exit(0 if failed == [True] * 5 else 9)
    assert os.waitpid(child, 0)[1] == 0
    for number in range(5):
        sender.send("parent", timeout=30)
    assert connection.failovers == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_use_the_connection(lab: Lab) -> None:
    broker = lab.broker()
    ended = run_program(textwrap.dedent(FORK), broker)
    assert (ended.returncode, ended.stderr) == (0, "")
    bodies = [body for _, _, body, _ in lab.store.queues["q"]]
    assert len(bodies) == 26 and bodies.count(b"own") == 1 and bodies.count(b"child") == 0


def test_connection_names_of_qpid(lab: Lab) -> None:
    broker = lab.broker()
    connection = Connection.establish(broker.url, heartbeat=1)
    lab.connections.append(connection)
    assert connection.attach() is connection and connection.attached()
    connection.detach()
    assert not connection.attached()


def test_a_nack_right_after_a_failover_is_tried_again_on_another_channel(lab: Lab) -> None:
    """RabbitMQ refuses everything on a channel that was opened before a queue had found its new leader."""
    first, second = lab.broker(), lab.broker()
    first.confirm, second.confirm = "hold", "nack"
    connection = lab.connect(first, second)
    sender = connection.session().queue_sender("q")
    for number in range(5):
        sender.send(str(number), sync=False)
    wait_for(lambda: first.peers[0].publishes == 5)
    lab.store.queues["q"].clear()
    first.kill()
    wait_for(lambda: lab.store.methods("b1").count("Channel.Open") >= 3)
    assert sender.unsettled() == 5
    second.confirm = "ack"
    sender.sync(30)
    arrived = [body for _, _, body, _ in lab.store.queues["q"]]  # some on the last channel that nacked others
    assert arrived[-5:] == [str(number).encode() for number in range(5)]
    second.confirm = "nack"
    with pytest.raises(Rejected):
        sender.send("5", timeout=30)


def test_nacks_that_do_not_end_are_told_after_restore_timeout(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    second.confirm = "nack"
    connection = lab.connect(first, second, restore_timeout=0.3)
    sender = connection.session().queue_sender("q")
    sender.send("0", timeout=30)
    first.kill()
    with pytest.raises(Rejected):
        sender.send("1", timeout=30)
