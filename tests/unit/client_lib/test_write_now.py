"""A message that is waited for is written by the thread that sends it, if nothing else has to be written first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pamqp import commands

from client_lib import Connection, Message, ServerError
from client_lib.connecting.channel import ChannelCore
from client_lib.connecting.stream import Stream
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import QUICK

PUBLISH = b"\x00\x3c\x00\x28"  # basic.publish


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.kill()


@pytest.fixture
def connection(broker: ScriptedBroker) -> Iterator[Connection]:
    connection = Connection([broker.url], **QUICK).open(20)
    yield connection
    try:
        connection.close(0.2)
    except Exception:  # what the test has seen already
        pass


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that have written a publish."""
    found: list[threading.Thread] = []
    write = Stream.write

    def noted(stream: Stream, data: bytes) -> None:
        if PUBLISH in data:
            found.append(threading.current_thread())
        write(stream, data)

    monkeypatch.setattr(Stream, "write", noted)
    return found


def ready(connection: Connection, **options: Any) -> Any:
    """A sender of a session that has a channel."""
    session = connection.session(**options)
    session.declare_queue("q", timeout=20)
    return session.queue_sender("q")


def test_the_caller_writes(connection: Connection, writers: list[threading.Thread]) -> None:
    sender = ready(connection)
    for number in range(3):
        sender.send(str(number), timeout=20)
    assert writers == [threading.main_thread()] * 3


def test_what_is_not_waited_for_is_written_together(connection: Connection, writers: list[threading.Thread]) -> None:
    sender = ready(connection)
    for number in range(50):
        sender.send(str(number), sync=False)
    sender.sync(20)
    assert writers and threading.main_thread() not in writers


def test_messages_that_wait_go_first(connection: Connection, broker: ScriptedBroker) -> None:
    sender = ready(connection)
    hold = threading.Event()

    def be_busy() -> None:
        hold.wait(20)

    connection.link.post(be_busy)  # in the I/O thread
    sender.send("first", sync=False)
    with ThreadPoolExecutor() as pool:
        second = pool.submit(sender.send, "second", timeout=20)
        wait_for(lambda: sender.unsettled() == 2)
        hold.set()
        second.result(20)
    assert [body for _, _, body, _ in broker.store.queues["q"]] == [b"first", b"second"]


def test_in_a_transaction_the_other_thread_writes(connection: Connection, writers: list[threading.Thread]) -> None:
    sender = ready(connection, transactional=True)
    sender.send("x", timeout=20)
    sender.session.commit(20)
    assert writers and threading.main_thread() not in writers


def test_acknowledgements_go_before_the_message(connection: Connection, broker: ScriptedBroker) -> None:
    sender = ready(connection)
    receiver = sender.session.queue_receiver("q", timeout=20)
    sender.send("x", timeout=20)
    message = receiver.fetch(20)
    with sender.session._waiting.monitor:  # the I/O thread comes too late
        sender.session.acknowledge(message, sync=False)
        sender.send("y", timeout=20)
    methods = broker.store.methods(broker.name)
    assert [name for name in methods if name in ("Basic.Ack", "Basic.Publish")][-2:] == ["Basic.Ack", "Basic.Publish"]


def test_nothing_follows_the_answer_to_channel_close(
    connection: Connection, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cost the connection, with all other sessions."""
    sender = ready(connection)
    process = ChannelCore._closed_by_broker
    errors: list[BaseException] = []

    def send() -> None:
        try:
            sender.send("late", timeout=20)
        except ServerError as error:
            errors.append(error)

    def between(channel: ChannelCore, method: Any) -> None:
        """Another thread sends just before and just after the answer."""
        threads = [threading.Thread(target=send) for _ in range(2)]
        threads[0].start()
        wait_for(lambda: sender.unsettled() == 1)
        on_close = sender.session._waiting.worker.channel_closed
        monkeypatch.setattr(sender.session._waiting.worker, "channel_closed", lambda *_: late(threads[1], on_close, *_))
        process(channel, method)

    def late(thread: threading.Thread, on_close: Any, *arguments: Any) -> None:
        thread.start()
        wait_for(lambda: sender.unsettled() == 2)
        on_close(*arguments)

    monkeypatch.setattr(ChannelCore, "_closed_by_broker", between)
    broker.close_channels(406, "PRECONDITION_FAILED")
    wait_for(lambda: len(errors) == 2)
    assert "Basic.Publish" not in broker.store.methods(broker.name)


def test_an_end_of_the_connection_in_between(connection: Connection, broker: ScriptedBroker) -> None:
    """Many threads write while connections are lost: each message is there, once or resent."""
    sender = ready(connection)
    names = [f"{thread}.{number}" for thread in range(4) for number in range(40)]

    def send(thread: int) -> None:
        for name in names[thread * 40 : thread * 40 + 40]:
            sender.send(Message(name, id=name), timeout=30)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(send, thread) for thread in range(4)]
        for _ in range(5):
            enough = len(broker.store.queues["q"]) + 5
            wait_for(lambda: len(broker.store.queues["q"]) > enough or all(one.done() for one in done))  # noqa: B023
            broker.drop()
        for one in done:
            one.result(60)
    bodies = [body.decode() for _, _, body, _ in broker.store.queues["q"]]
    assert set(bodies) == set(names)
    for thread in range(4):
        firsts = list(dict.fromkeys(body for body in bodies if body.startswith(f"{thread}.")))
        assert firsts == names[thread * 40 : thread * 40 + 40]


def test_channel_flow_stops_the_callers_too(connection: Connection, broker: ScriptedBroker) -> None:
    sender = ready(connection)
    peer = broker.peers[-1]
    peer.send(int(sender.session._waiting.worker._channel), commands.Channel.Flow(False))
    wait_for(lambda: "Channel.FlowOk" in broker.store.methods(broker.name))
    with pytest.raises(TimeoutError):
        sender.send("x", timeout=0.1)
    assert broker.store.methods(broker.name)[-1] == "Channel.FlowOk"
