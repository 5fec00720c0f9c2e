"""The whole client against brokers that misbehave on command."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from client_lib import (
    AuthenticationFailure,
    ConnectError,
    Connection,
    ConnectionClosed,
    Empty,
    InDoubt,
    InsufficientCapacity,
    Message,
    Rejected,
    Returned,
    ServerError,
    Timeout,
)
from client_lib.core.ledger import Disposition
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker, Store

QUICK = {
    "reconnect_interval_min": 0.005,
    "reconnect_interval_max": 0.05,
    "connect_timeout": 10.0,
    "connect_overlap": 2.0,  # as in aio_lab.py
    "heartbeat": 20,
}


class Lab:
    """Brokers that share a store, and connections that are closed at the end."""

    def __init__(self) -> None:
        self.store = Store()
        self.brokers: list[ScriptedBroker] = []
        self.connections: list[Connection] = []
        self.events: list[dict[str, Any]] = []

    def broker(self, mode: str = "normal") -> ScriptedBroker:
        broker = ScriptedBroker(self.store, f"b{len(self.brokers)}", mode)
        self.brokers.append(broker)
        return broker

    def connect(self, *brokers: ScriptedBroker, **options: Any) -> Connection:
        on_event: Any = self.events.append
        connection = Connection([b.url for b in brokers], **{**QUICK, "on_event": on_event, **options})
        self.connections.append(connection)
        return connection.open(timeout=30)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    for connection in lab.connections:
        connection.close(0.2)
    for broker in lab.brokers:
        broker.kill()


def test_send_and_fetch(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    session.declare_queue("q")
    sender = session.queue_sender("q")
    message_id = sender.send(Message("text", properties={"a": 1}, ttl=60, priority=3), timeout=30)
    assert sender.unsettled() == 0
    message = session.queue_receiver("q").fetch(30)
    assert (message.content, message.id, message.priority, message.ttl) == ("text", message_id, 3, 60)
    assert message.properties == {"a": 1} and message.durable and not message.resent
    session.acknowledge(message, sync=False)
    session.sync(30)


def test_unconfirmed_are_sent_again_in_order_with_the_same_ids(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    first.confirm = "hold"
    session = lab.connect(first, second).session()
    sender = session.queue_sender("q", capacity=10)
    ids = [sender.send(Message(str(n), properties={"n": n}), sync=False) for n in range(10)]
    wait_for(lambda: len(lab.store.queues.get("q", ())) == 10)
    assert sender.unsettled() == 10 and sender.available() == 0
    lab.store.queues["q"].clear()  # the first broker loses what it had not confirmed
    first.kill()
    sender.sync(30)
    arrived = list(lab.store.queues["q"])
    assert [properties.message_id for _, properties, _, _ in arrived] == ids
    assert [properties.headers for _, properties, _, _ in arrived] == [{"n": n, "x-resent": True} for n in range(10)]


def test_refused_by_a_backup_goes_to_the_primary_it_names(lab: Lab) -> None:
    backup, unlisted = lab.broker("refuse"), lab.broker()
    backup.refusal = f"CONNECTION_FORCED - b0 is a backup (ready); the primary is {unlisted.url}"
    began = time.monotonic()
    connection = lab.connect(backup, reconnect_interval_min=30.0, reconnect_interval_max=60.0)
    assert time.monotonic() - began < 20, "a refusal must cost no pause"
    assert str(connection.address) == unlisted.url
    refused = [event for event in lab.events if event["kind"] == "connect_refused"]
    assert refused[0]["result"] == "320" and "backup" in refused[0]["reason"]


def test_a_primary_that_steps_down_names_its_successor(lab: Lab) -> None:
    old, new = lab.broker(), lab.broker()
    connection = lab.connect(old)
    old.mode = "refuse"
    old.shut(f"CONNECTION_FORCED - stepping down; the primary is {new.url}")
    wait_for(lambda: connection.failovers == 1 and connection.is_connected)
    assert str(connection.address) == new.url


def test_waits_for_a_promotion(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker("refuse")
    connection = lab.connect(first, second)
    first.kill()
    wait_for(lambda: second.accepted >= 5)
    second.mode = "normal"
    wait_for(lambda: connection.is_connected)


def test_hung_broker_is_noticed_within_two_heartbeats_while_idle(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection = lab.connect(first, second, heartbeat=1)
    first.stop_answering()
    began = time.monotonic()
    wait_for(lambda: connection.is_connected and connection.failovers == 1)
    assert 1.0 < time.monotonic() - began < 20


def test_idle_connection_is_kept(lab: Lab) -> None:
    broker = lab.broker()
    connection = lab.connect(broker, heartbeat=1)
    wait_for(lambda: broker.heartbeats >= 5)
    assert connection.failovers == 0 and connection.is_connected


def test_a_broker_that_accepts_and_hangs_is_not_waited_for(lab: Lab) -> None:
    began = time.monotonic()
    second = lab.broker()
    assert str(lab.connect(lab.broker("hang"), second, connect_timeout=60).address) == second.url
    assert time.monotonic() - began < 20


def test_capacity_blocks(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    sender = lab.connect(broker).session().queue_sender("q", capacity=2)
    sender.send("1", sync=False)
    sender.send("2", sync=False)
    with pytest.raises(InsufficientCapacity):
        sender.send("3", timeout=0.05, sync=False)
    assert sender.unsettled() == 2
    with pytest.raises(InDoubt):
        sender.sync(0.05)


def test_sync_send_without_confirm_is_in_doubt(lab: Lab) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = lab.connect(broker)
    message = Message("1")
    with pytest.raises(InDoubt):
        connection.session().queue_sender("q").send(message, timeout=0.05)
    assert connection.close(0.1) == [message]


def test_nack_and_return_raise_with_the_message(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker).session()
    broker.confirm = "nack"
    message = Message("1")
    with pytest.raises(Rejected) as rejected:
        session.queue_sender("q").send(message, timeout=30)
    assert rejected.value.message is message
    broker.confirm, broker.unroutable = "ack", True
    sender = session.queue_sender("q", mandatory=True)
    sender.send(message, sync=False)
    with pytest.raises(Returned) as returned:
        sender.sync(30)
    assert (returned.value.message, returned.value.reply_code) == (message, 312)
    broker.unroutable = False
    sender.send(message, timeout=30)
    wait_for(lambda: "return" in lab.kinds() and "nack" in lab.kinds())


def test_callback_gets_confirms_and_failures(lab: Lab) -> None:
    broker = lab.broker()
    outcomes: list[tuple[str, bool]] = []
    session = lab.connect(broker).session()
    sender = session.queue_sender(
        "q", on_settled=lambda message, message_id, error: outcomes.append((message_id, not error))
    )
    one = sender.send("1", timeout=30)
    broker.confirm = "nack"
    two = sender.send("2", sync=False)
    wait_for(lambda: outcomes == [(one, True), (two, False)])
    sender.sync(30)


def test_topology_comes_back_in_order(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = lab.connect(first, second).session()
    queue = session.declare_queue(exclusive=True)
    session.declare_exchange("x", "fanout")
    session.bind_queue(queue, "x")
    receiver = session.queue_receiver(queue)
    first.kill()
    wait_for(lambda: "Basic.Consume" in lab.store.methods("b1"))
    wanted = ["Queue.Declare", "Exchange.Declare", "Queue.Bind", "Basic.Qos", "Basic.Consume"]
    assert [method for method in lab.store.methods("b1") if method in wanted] == wanted
    session.queue_sender(queue).send("1", timeout=30)
    assert receiver.fetch(30).content == "1"


def test_restoring_is_tried_again_while_a_queue_is_locked(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = lab.connect(first, second).session()
    session.declare_queue("mine", exclusive=True)
    refusals = iter([(405, "RESOURCE_LOCKED")] * 2)
    second.refuse_declare = lambda queue: next(refusals, None)
    first.kill()
    session.queue_sender("mine").send("1", timeout=30)
    assert lab.store.methods("b1").count("Queue.Declare") == 3


def test_channel_error_fails_the_session_only(lab: Lab) -> None:
    broker = lab.broker()
    connection = lab.connect(broker)
    session = connection.session()
    broker.refuse_declare = lambda queue: (406, "PRECONDITION_FAILED")
    with pytest.raises(ServerError) as failed:
        session.declare_queue("q")
    assert failed.value.reply_code == 406
    with pytest.raises(ServerError):
        session.queue_sender("q")
    connection.session().queue_sender("q").send("1", timeout=30)


def test_acknowledgements_of_a_lost_connection_are_dropped(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = lab.connect(first, second).session()
    session.queue_sender("q").send("1", timeout=30)
    receiver = session.queue_receiver("q")
    message = receiver.fetch(30)
    first.kill()
    again = receiver.fetch(30)
    session.acknowledge(message, sync=False)
    assert again.redelivered and again.id == message.id
    session.acknowledge(again, sync=False)
    session.sync(30)
    wait_for(lambda: lab.store.methods("b1").count("Basic.Ack") == 1)
    assert not lab.store.queues["q"] and not second.peers[-1].unacked


def test_duplicate_filter_attaches_the_second_copy_to_the_first(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    session = lab.connect(first, second).session()
    session.queue_sender("q").send("1", timeout=30)
    receiver = session.queue_receiver("q", drop_duplicates=True)
    message = receiver.fetch(30)
    first.kill()
    with pytest.raises(Empty):
        receiver.fetch(0.3)
    assert second.peers[-1].unacked, "the copy must not be acknowledged before the application has done so"
    session.acknowledge(message, sync=False)
    wait_for(lambda: not second.peers[-1].unacked)
    second.drop()
    with pytest.raises(Empty):
        receiver.fetch(0.3)


def test_duplicate_that_was_finished_is_acknowledged_for_the_application(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    receiver = session.queue_receiver("q", drop_duplicates=5)
    sender = session.queue_sender("q")
    for resent in (False, True):
        sender.send(Message("1", id="same", properties={"x-resent": resent}), timeout=30)
        sender.send(Message("2"), timeout=30)
    contents = []
    for _ in range(3):
        message = receiver.fetch(30)
        contents.append(message.content)
        session.acknowledge(message, sync=False)
    assert contents == ["1", "2", "2"]
    with pytest.raises(Empty):
        receiver.fetch(0.05)
    wait_for(lambda: not lab.brokers[0].peers[-1].unacked)


def test_released_message_comes_again(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    session.queue_sender("q").send("1", timeout=30)
    receiver = session.queue_receiver("q", drop_duplicates=True)
    session.release(receiver.fetch(30))
    assert receiver.fetch(30).redelivered


def test_many_threads_and_many_failovers_lose_nothing(lab: Lab) -> None:
    brokers = [lab.broker() for _ in range(3)]
    connection = lab.connect(*brokers)
    session = connection.session()
    sender, receiver = (
        session.queue_sender("q", capacity=50),
        session.queue_receiver("q", capacity=20, drop_duplicates=True),
    )
    got: list[str | None] = []

    def produce() -> None:
        for _ in range(300):
            sender.send(b"x", timeout=20, sync=False)

    def consume() -> None:
        for message in receiver:
            got.append(message.id)
            session.acknowledge(message, sync=False)

    threads = [threading.Thread(target=produce, daemon=True) for _ in range(4)]
    consumer = threading.Thread(target=consume, daemon=True)
    for thread in [*threads, consumer]:
        thread.start()
    for number in range(6):
        wait_for(lambda: connection.failovers == number and connection.is_connected)  # noqa: B023
        wait_for(lambda: len(got) >= 150 * number)  # noqa: B023
        next(broker for broker in brokers if broker.url == str(connection.address)).drop()
    for thread in threads:
        thread.join(20)
    sender.sync(20)
    wait_for(lambda: len(got) >= 1200)
    assert len(got) == len(set(got)) == 1200
    assert connection.failovers == 6


def test_gives_up_at_the_limit(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker, reconnect_limit=3).session()
    broker.confirm = "hold"
    sender = session.queue_sender("q")
    sender.send("1", sync=False)
    broker.kill()
    with pytest.raises(ConnectError, match="reconnect_limit"):
        sender.sync(30)


def test_without_reconnect_the_loss_is_final(lab: Lab) -> None:
    broker = lab.broker()
    session = lab.connect(broker, reconnect=False).session()
    receiver = session.queue_receiver("q")
    broker.drop()
    with pytest.raises(ConnectError):
        receiver.fetch(30)


def test_wrong_password_is_final(lab: Lab) -> None:
    with pytest.raises(AuthenticationFailure):
        lab.connect(lab.broker("deny"))


def test_open_times_out_and_close_ends_it(lab: Lab) -> None:
    broker = lab.broker("refuse")
    connection = Connection(broker.url, **QUICK)
    lab.connections.append(connection)
    with pytest.raises(Timeout):
        connection.open(timeout=0.1)
    began = time.monotonic()
    assert connection.close(60) == []
    assert time.monotonic() - began < 20
    with pytest.raises(ConnectionClosed):
        connection.session()


@pytest.mark.parametrize("hang", [False, True])
def test_close_never_hangs(lab: Lab, hang: bool) -> None:
    broker = lab.broker()
    broker.confirm = "hold"
    connection = lab.connect(broker)
    session = connection.session()
    sender = session.queue_sender("q", capacity=1)
    message = Message("1")
    sender.send(message, sync=False)
    errors: list[BaseException] = []

    def blocked() -> None:
        try:
            sender.send("2", sync=False)
        except ConnectionClosed as error:
            errors.append(error)

    thread = threading.Thread(target=blocked, daemon=True)
    thread.start()
    if hang:
        broker.stop_answering()
    began = time.monotonic()
    assert connection.close(0.3) == [message]
    assert time.monotonic() - began < 20
    thread.join(30)
    assert len(errors) == 1
    assert connection.close() == []


def test_blocking_calls_in_a_callback_are_refused(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    errors: list[BaseException] = []

    def settled(message: Message, message_id: str, error: Exception | None) -> None:
        try:
            sender.sync()
        except RuntimeError as refused:
            errors.append(refused)

    sender = session.queue_sender("q", on_settled=settled)
    sender.send("1", sync=False)
    wait_for(lambda: len(errors) == 1)


def test_large_message_is_cut_into_frames(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    body = bytes(range(256)) * 2000
    session.queue_sender("q").send(body, timeout=30)
    assert lab.store.queues["q"][0][2] == body


def test_a_value_amqp_cannot_carry_raises_at_the_caller(lab: Lab) -> None:
    sender = lab.connect(lab.broker()).session().queue_sender("q")
    with pytest.raises(Exception, match="object"):
        sender.send(Message("1", properties={"a": object()}), sync=False)
    assert sender.unsettled() == 0
    sender.send("1", timeout=30)


@pytest.mark.parametrize("settle", [Disposition.ACCEPT, Disposition.REJECT, Disposition.RELEASE])
def test_a_message_that_comes_back_from_a_retry_queue_is_no_duplicate(lab: Lab, settle: Disposition) -> None:
    """It has its id still, and no mark of a second copy unless the broker redelivers it."""
    session = lab.connect(lab.broker()).session()
    sender, receiver = session.queue_sender("q"), session.queue_receiver("q", drop_duplicates=True)
    sender.send(Message("1", id="a"), timeout=30)
    session.acknowledge(receiver.fetch(30), settle)
    if settle is not Disposition.RELEASE:
        sender.send(Message("1", id="a"), timeout=30)
    assert receiver.fetch(30).id == "a"


def test_a_marked_copy_of_what_was_accepted_is_dropped(lab: Lab) -> None:
    session = lab.connect(lab.broker()).session()
    sender, receiver = session.queue_sender("q"), session.queue_receiver("q", drop_duplicates=True)
    sender.send(Message("1", id="a"), timeout=30)
    session.acknowledge(receiver.fetch(30))
    sender.send(Message("1", id="a", properties={"x-resent": True}), timeout=30)
    sender.send(Message("2", id="b"), timeout=30)
    assert receiver.fetch(30).id == "b"
