"""A thread that waits for a confirm reads the socket itself; whatever else comes is for the I/O thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from client_lib import Connection, Message, SessionClosed
from client_lib.connecting import lending
from client_lib.connecting.incoming import Incoming
from client_lib.connecting.lending import Lending
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import QUICK


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.kill()


@pytest.fixture(autouse=True)
def no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing below is given back because of the time."""
    monkeypatch.setattr(lending, "LEASE", 3600.0)


class Lab:
    def __init__(self, broker: ScriptedBroker, patch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.readers: list[str] = []
        quick = Incoming.feed_quick

        def noted(incoming: Incoming, data: bytes) -> bytes | None:
            self.readers.append(threading.current_thread().name)
            return quick(incoming, data)

        patch.setattr(Incoming, "feed_quick", noted)
        self.connection = Connection([broker.url], **QUICK).open(20)
        self.session = self.connection.session()
        self.session.declare_queue("q", timeout=20)
        self.sender = self.session.queue_sender("q")

    @property
    def lending(self) -> Lending:
        found = self.connection.link.lending
        assert found is not None
        return found

    def borrow(self) -> None:
        """Sends until this thread has read."""

        def lent() -> bool:
            for _ in range(50):
                self.sender.send("x", timeout=20)
            return self.lending.lent and bool(self.readers)

        wait_for(lent)

    def bodies(self) -> list[bytes]:
        return [body for _, _, body, _ in self.broker.store.queues["q"]]


@pytest.fixture
def lab(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(broker, monkeypatch)
    yield lab
    try:
        lab.connection.close(0.5)
    except Exception:  # what the test has seen already
        pass


def test_the_caller_reads(lab: Lab) -> None:
    lab.borrow()
    before = len(lab.readers)
    for number in range(20):
        lab.sender.send(str(number), timeout=20)
    assert lab.readers[before:] and set(lab.readers) == {threading.main_thread().name}
    assert lab.bodies()[-20:] == [str(number).encode() for number in range(20)]


def test_a_command_afterwards_is_answered(lab: Lab) -> None:
    """The loop does not read: who waits without reading makes it read again."""
    lab.borrow()
    lab.session.declare_queue("other", timeout=20)
    assert not lab.lending.lent


def test_a_thread_that_waits_for_a_message_is_not_forgotten(lab: Lab) -> None:
    receiver = lab.session.queue_receiver("elsewhere", timeout=20)
    lab.borrow()
    found: list[Message] = []
    thread = threading.Thread(target=lambda: found.append(receiver.fetch(30)))
    thread.start()
    wait_for(lambda: receiver.waiting)
    lab.session.queue_sender("elsewhere").send("here", timeout=20)
    thread.join(30)
    assert [message.content for message in found] == ["here"] or found[0].body == b"here"


def test_it_is_given_back_after_a_while(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "LEASE", 0.002)
    wait_for(lambda: [lab.sender.send("x", timeout=20) for _ in range(50)] and lab.readers)
    wait_for(lambda: not lab.lending.lent)


def test_a_close_while_the_caller_reads(lab: Lab) -> None:
    """The message is sent again on the next connection, by the same call."""
    lab.borrow()
    lab.broker.confirm = "hold"
    thread = threading.Thread(target=lambda: lab.sender.send("y", timeout=30))
    thread.start()
    wait_for(lambda: b"y" in lab.broker.peers[-1].held.__repr__().encode())
    lab.broker.confirm = "ack"
    lab.broker.shut("CONNECTION_FORCED")
    thread.join(30)
    assert not thread.is_alive() and lab.connection.link.failovers == 1 and b"y" in lab.bodies()


@pytest.mark.parametrize("end", ["drop", "kill"])
def test_the_stream_ends_while_the_caller_reads(lab: Lab, end: str) -> None:
    lab.borrow()
    lab.broker.confirm = "hold"
    thread = threading.Thread(target=lambda: lab.sender.send("y", timeout=30))
    thread.start()
    wait_for(lambda: lab.sender.unsettled() == 1)
    lab.broker.confirm = "ack"
    if end == "kill":
        lab.connection.link._loop.call_threadsafe(lambda: lab.connection.link.abandon("a defect"))
    else:
        lab.broker.drop()
    thread.join(30)
    assert not thread.is_alive() and b"y" in lab.bodies()


def test_the_session_is_closed_by_another_thread(lab: Lab) -> None:
    lab.borrow()
    lab.broker.confirm = "hold"
    errors: list[BaseException] = []

    def send() -> None:
        try:
            lab.sender.send("y", timeout=30)
        except SessionClosed as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    wait_for(lambda: lab.sender.unsettled() == 1)
    with pytest.raises(Exception, match="in doubt"):
        lab.session.close(0.1)
    thread.join(30)
    assert errors


def test_nacks_and_other_methods_are_for_the_io_thread(lab: Lab) -> None:
    lab.borrow()
    lab.broker.confirm = "nack"
    with pytest.raises(Exception, match=r"basic\.nack"):
        lab.sender.send("y", timeout=20)
    lab.broker.confirm = "ack"
    lab.borrow()
    lab.broker.peers[-1].send(0, commands.Connection.Blocked("memory"))
    for number in range(3):  # the first one may be written before it is read
        try:
            lab.sender.send(str(number), timeout=0.3)
        except TimeoutError:
            break
    else:
        raise AssertionError("not blocked")
    lab.broker.peers[-1].send(0, commands.Connection.Unblocked())
    lab.sender.sync(20)


def test_with_a_callback_only_the_io_thread_reads(lab: Lab) -> None:
    threads: list[str] = []
    lab.borrow()
    told = lab.session.queue_sender("q", on_settled=lambda *_: threads.append(threading.current_thread().name))
    told.send("y", sync=False)
    told.sync(20)
    for _ in range(5):
        lab.sender.send("z", timeout=20)
        told.send("y", timeout=20)
    wait_for(lambda: len(threads) == 6)
    assert threading.main_thread().name not in threads


def test_many_threads_at_once(lab: Lab) -> None:
    lab.borrow()
    count = len(lab.bodies())

    def send(thread: int) -> None:
        sender = lab.connection.session().queue_sender("q")
        for number in range(50):
            sender.send(f"{thread}.{number}", timeout=60)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(lab.bodies()) == count + 200


def test_ctrl_c_while_the_caller_reads(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is still kept, and confirmed by whoever reads then."""
    monkeypatch.setattr(lending, "PATIENCE", 30.0)  # it reads until the interrupt comes, on a machine with load, too
    lab.borrow()
    lab.broker.confirm = "hold"
    main = threading.get_ident()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have ignored it

    def interrupt() -> None:
        wait_for(lambda: lab.sender.unsettled() == 1 and lab.lending._lock.locked())
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        lab.sender.send("y", timeout=30)
    signal.signal(signal.SIGINT, before)
    thread.join(30)
    for peer in lab.broker.peers:
        for channel, tag, *_ in list(peer.held):
            peer.send(channel, commands.Basic.Ack(tag, False))
    lab.sender.sync(20)
    assert not lab.sender.unsettled()


def test_an_interrupt_in_the_middle_of_reading_costs_the_connection_and_no_message(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.borrow()

    def broken(*_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(lab.lending, "_quick", broken)
    with pytest.raises(KeyboardInterrupt):
        lab.sender.send("y", timeout=30)
    lab.sender.sync(30)
    assert lab.connection.link.failovers == 1 and lab.bodies().count(b"y") == 2


def test_a_child_after_fork_does_not_read(lab: Lab) -> None:
    lab.borrow()
    child = os.fork()
    if child == 0:
        try:
            lab.sender.send("child", timeout=1)
        except Exception:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    lab.sender.send("parent", timeout=20)
    assert lab.bodies()[-1] == b"parent"
