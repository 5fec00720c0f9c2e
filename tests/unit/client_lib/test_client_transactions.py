"""Transactional sessions against brokers that lose the connection at every moment of a transaction."""

import threading
from typing import Any

import pytest
from pamqp import commands

from client_lib import (
    REJECTED,
    Connection,
    ConnectionClosed,
    Disposition,
    Empty,
    Message,
    NontransactionalSession,
    Returned,
    Session,
    SessionClosed,
    Timeout,
    TransactionAborted,
    TransactionError,
    TransactionUnknown,
)
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.test_client_failover import Lab, lab

__all__ = ["lab"]  # a fixture


def stored(lab: Lab, queue: str = "q") -> list[bytes]:
    with lab.store.lock:
        return [body for _, _, body, _ in lab.store.queues.get(queue, ())]


def begun(lab: Lab, *brokers: ScriptedBroker) -> tuple[Connection, Session]:
    connection = lab.connect(*brokers)
    return connection, connection.session(transactional=True)


def lose(connection: Connection, broker: ScriptedBroker) -> None:
    before = connection.failovers
    broker.drop()
    wait_for(lambda: connection.failovers > before and connection.is_connected)


def test_everything_is_on_the_wire_before_the_commit(lab: Lab) -> None:
    broker = lab.broker()
    _, session = begun(lab, broker)
    sender, receiver = session.queue_sender("q", capacity=5), session.queue_receiver("in")
    other = lab.connect(broker).session()
    other.queue_sender("in").send("request", timeout=30)
    request = receiver.fetch(30)
    for number in range(600):  # more than the capacity, and than one turn writes
        sender.send(str(number))
    assert stored(lab) == [] and session.unsettled() == 600 and sender.unsettled() == 600
    session.acknowledge(request, sync=False)
    session.commit(30)
    assert stored(lab) == [str(number).encode() for number in range(600)]
    assert session.unsettled() == 0 and not broker.peers[0].unacked
    methods = broker.store.methods(broker.name)
    assert methods.index("Tx.Commit") > methods.index("Basic.Ack")
    assert "Confirm.Select" in methods  # the other session's
    session.commit(30)
    assert broker.store.methods(broker.name).count("Tx.Commit") == 1, "an empty transaction asks nothing"


def test_a_loss_before_the_commit_aborts_until_rollback(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection, session = begun(lab, first, second)
    settled: list[Any] = []
    sender = session.queue_sender("q", on_settled=lambda message, id, error: settled.append(type(error)))
    sender.send("lost")
    sender.sync(30)
    first.kill()
    wait_for(lambda: connection.failovers == 1 and connection.is_connected)
    for call in (session.commit, session.sync, session.declare_queue, lambda: sender.send("more"), session.acknowledge):
        with pytest.raises(TransactionAborted):
            call()
    assert settled == [TransactionAborted] and session.unsettled() == 0
    session.rollback(30)
    sender.send("kept")
    session.commit(30)
    assert stored(lab) == [b"kept"] and settled == [TransactionAborted, type(None)]
    assert "Tx.Rollback" not in lab.store.methods("b1")


def test_an_empty_transaction_survives(lab: Lab) -> None:
    first, second = lab.broker(), lab.broker()
    connection, session = begun(lab, first, second)
    sender = session.queue_sender("q")
    sender.send("one")
    session.commit(30)
    first.kill()
    wait_for(lambda: connection.failovers == 1 and connection.is_connected)
    sender.send("two")
    session.commit(30)
    assert stored(lab) == [b"one", b"two"]


def test_what_was_only_fetched_aborts_too(lab: Lab) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    lab.connect(broker).session().queue_sender("in").send("1", timeout=30)
    receiver = session.queue_receiver("in")
    message = receiver.fetch(30)
    lose(connection, broker)
    with pytest.raises(TransactionAborted):
        receiver.fetch(30)
    session.rollback(30)
    with pytest.raises(TransactionAborted, match="comes again"):
        session.acknowledge(message)
    again = receiver.fetch(30)
    assert again.id == message.id and again.redelivered
    session.acknowledge(again, sync=False)
    session.commit(30)
    assert stored(lab, "in") == [] and not any(peer.unacked for peer in broker.peers)


@pytest.mark.parametrize(("mode", "result"), [("drop", []), ("drop_after", [b"1", b"2"])])
def test_a_loss_during_the_commit_is_unknown_once(lab: Lab, mode: str, result: list[bytes]) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    sender = session.queue_sender("q")
    sender.send("1")
    sender.send("2")
    broker.commit = mode
    with pytest.raises(TransactionUnknown):
        session.commit(30)
    broker.commit = "ok"
    assert stored(lab) == result
    wait_for(lambda: connection.is_connected)
    sender.send("3")
    session.commit(30)
    assert stored(lab) == [*result, b"3"]


def test_a_commit_that_times_out_unwritten_is_withdrawn(lab: Lab) -> None:
    broker = lab.broker()
    _, session = begun(lab, broker)
    sender = session.queue_sender("q")
    session.declare_queue("there")  # the channel is open
    for peer in broker.peers:
        peer.send(0, commands.Connection.Blocked("memory"))
    wait_for(lambda: "blocked" in lab.kinds())
    sender.send("1")
    with pytest.raises(Timeout, match="still open"):
        session.commit(0.05)
    for peer in broker.peers:
        peer.send(0, commands.Connection.Unblocked())
    sender.send("2")
    session.commit(30)
    assert stored(lab) == [b"1", b"2"]


def test_a_commit_that_times_out_written_keeps_its_outcome(lab: Lab) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    sender = session.queue_sender("q")
    sender.send("1")
    broker.commit = "hold"
    with pytest.raises(Timeout, match="sent and not answered"):
        session.commit(0.1)
    with pytest.raises(Timeout):
        session.rollback(0.1)
    with pytest.raises(Timeout):
        sender.send("2", timeout=0.1)
    lose(connection, broker)
    with pytest.raises(TransactionUnknown):
        sender.send("2")
    with pytest.raises(TransactionUnknown):
        session.commit(30)
    broker.commit = "ok"
    sender.send("3")
    session.commit(30)
    assert stored(lab) == [b"3"]


def test_what_is_acknowledged_after_the_commit_was_sent_belongs_to_the_next(lab: Lab) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    other = connection.session()
    for queue in ("in", "q"):
        other.queue_sender(queue).send("1", timeout=30)
    message = session.queue_receiver("in").fetch(30)
    session.queue_sender("q").send("2")
    broker.commit = "hold"
    with pytest.raises(Timeout):
        session.commit(0.1)
    session.acknowledge(message, sync=False)
    other.declare_queue("turn")  # the I/O thread has looked at everything
    assert "Basic.Ack" not in broker.store.methods(broker.name)
    broker.commit = "ok"
    with broker.store.lock:
        broker.peers[0]._on_tx_commit(next(iter(broker.peers[0].transactions)), None)
    wait_for(lambda: "Basic.Ack" in broker.store.methods(broker.name))
    assert broker.peers[0].unacked
    session.commit(30)
    assert not broker.peers[0].unacked


def test_rollback_is_too_late_when_the_commit_comes_through(lab: Lab) -> None:
    broker = lab.broker()
    _, session = begun(lab, broker)
    session.queue_sender("q").send("1")
    broker.commit = "hold"
    with pytest.raises(Timeout):
        session.commit(0.1)
    errors: list[BaseException] = []

    def roll_back() -> None:
        try:
            session.rollback(30)
        except TransactionError as error:
            errors.append(error)

    thread = threading.Thread(target=roll_back)
    thread.start()
    broker.commit = "ok"
    with broker.store.lock:
        broker.peers[0]._on_tx_commit(1, None)
    thread.join(30)
    assert stored(lab) == [b"1"] and "too late" in str(errors[0])


def test_rollback_gives_everything_back_in_order(lab: Lab) -> None:
    broker = lab.broker()
    _, session = begun(lab, broker)
    other = lab.connect(broker).session().queue_sender("in")
    for number in range(5):
        other.send(str(number), timeout=30)
    sender, receiver = session.queue_sender("q"), session.queue_receiver("in", capacity=5)
    first, second = receiver.fetch(30), receiver.fetch(30)
    session.acknowledge(first, sync=False)
    session.acknowledge(second, REJECTED, sync=True)
    sender.send("undone")
    session.rollback(30)
    assert stored(lab) == [] and session.unsettled() == 0
    assert [receiver.fetch(30).content for _ in range(5)] == [str(number) for number in range(5)]
    session.acknowledge(sync=False)
    session.commit(30)
    assert stored(lab, "in") == [] and not any(peer.unacked for peer in broker.peers)


def test_rollback_without_a_broker_does_not_wait(lab: Lab) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    session.queue_sender("q").send("1")
    broker.mode = "refuse"
    broker.drop()
    wait_for(lambda: connection.failovers == 1)
    session.rollback(10)
    sender = session.queue_sender("q")
    sender.send("kept")
    session.rollback(10)
    sender.send("2")
    broker.mode = "normal"
    session.commit(30)
    assert stored(lab) == [b"2"]


def test_a_duplicate_filter_forgets_what_was_rolled_back(lab: Lab) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    lab.connect(broker).session().queue_sender("in").send(Message("1", id="same"), timeout=30)
    receiver = session.queue_receiver("in", drop_duplicates=True)
    receiver.fetch(30)
    session.rollback(30)
    session.acknowledge(receiver.fetch(30), sync=False)
    session.rollback(30)
    session.acknowledge(receiver.fetch(30), sync=False)
    lose(connection, broker)
    with pytest.raises(TransactionAborted):
        session.commit(30)
    session.rollback(30)
    session.acknowledge(receiver.fetch(30), sync=False)
    session.commit(30)
    copy = Message("1", id="same", properties={"x-resent": True})
    lab.connect(broker).session().queue_sender("in").send(copy, timeout=30)
    with pytest.raises(Empty):
        receiver.fetch(0.1)


def test_a_return_is_raised_by_the_commit(lab: Lab) -> None:
    broker = lab.broker()
    _, session = begun(lab, broker)
    message = Message("1")
    session.queue_sender("q", mandatory=True).send(message)
    broker.unroutable = True
    session.sync(30)
    with pytest.raises(Returned) as returned:
        session.commit(30)
    assert returned.value.message is message
    session.commit(30)


def test_nontransactional(lab: Lab) -> None:
    connection = lab.connect(lab.broker())
    session = connection.session("plain")
    for call in (session.commit, session.rollback):
        with pytest.raises(NontransactionalSession):
            call()
    with pytest.raises(ValueError, match="not transactional"):
        connection.session("plain", transactional=True)
    assert connection.session("plain") is session


def test_close_rolls_back_and_says_what_is_in_doubt(lab: Lab) -> None:
    broker = lab.broker()
    connection, session = begun(lab, broker)
    session.queue_sender("q").send("1")
    session.close()
    with pytest.raises(SessionClosed):
        session.commit()
    doubtful = connection.session(transactional=True)
    message = Message("2")
    doubtful.queue_sender("q").send(message)
    broker.commit = "hold"
    errors: list[BaseException] = []

    def commit() -> None:
        try:
            doubtful.commit(30)
        except TransactionUnknown as error:
            errors.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    wait_for(lambda: broker.store.methods(broker.name).count("Tx.Commit") == 1)
    assert connection.close(0.2) == [message]
    thread.join(30)
    assert len(errors) == 1
    with pytest.raises(ConnectionClosed):
        doubtful.commit()


def test_many_threads_in_one_transaction(lab: Lab) -> None:
    """While one thread commits the others wait, and nothing is lost between two transactions."""
    broker = lab.broker()
    _, session = begun(lab, broker)
    sender = session.queue_sender("q", capacity=10)
    sent: list[str] = []

    def work() -> None:
        for number in range(60):
            sent.append(sender.send("x", timeout=20))
            if number % 7 == 0:
                session.commit(20)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    session.commit(30)
    arrived = [str(properties.message_id) for _, properties, _, _ in lab.store.queues["q"]]
    assert sorted(arrived) == sorted(sent) and len(set(sent)) == 480


def test_dispositions_have_qpids_names() -> None:
    assert REJECTED is Disposition.REJECT
