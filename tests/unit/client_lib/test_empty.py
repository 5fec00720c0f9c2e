"""`Empty` means that the queue is empty, or that the receiver has all that it may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands

from client_lib import UNLIMITED, Empty, MessagingError, Timeout
from client_lib.core import channel_worker
from tests.unit.client_lib.scripted_broker import ScriptedBroker, Store
from tests.unit.client_lib.styles import Asyncio, Open, Threaded, opened


@pytest.fixture
def lab() -> Iterator[tuple[ScriptedBroker, Open]]:
    with opened() as found:
        yield found


@pytest.fixture(params=[Threaded, Asyncio])
def style(request: pytest.FixtureRequest, lab: tuple[ScriptedBroker, Open]) -> Any:
    return lab[1](request.param, heartbeat=1)


def fill(style: Any, count: int, queue: str = "q") -> None:
    for number in range(count):
        style.post(queue, str(number).encode())
    style.sync()


def drain(style: Any, receiver: Any, timeout: float = 0) -> list[str]:
    """As in the documentation."""
    found = []
    while True:
        try:
            message = receiver.fetch(timeout)
        except Empty:
            return found
        found.append(message.body.decode())
        style.session(0).acknowledge(message, sync=False)


def test_a_queue_is_drained(style: Any) -> None:
    fill(style, 500)
    receiver = style.session(0).queue_receiver("q", capacity=20)
    assert drain(style, receiver) == [str(number) for number in range(500)]


def test_a_receiver_that_has_all_that_it_may_have(style: Any) -> None:
    fill(style, 3)
    receiver = style.session(0).queue_receiver("q", capacity=2)
    for _ in range(2):
        receiver.fetch(20)
    with pytest.raises(Empty):
        receiver.fetch(0)
    style.session(0).acknowledge(sync=False)
    assert receiver.fetch(0).body == b"2"


@pytest.mark.parametrize("how", ["stop_answering", "kill"])
def test_a_broker_that_is_gone_is_not_an_empty_queue(how: str, style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    broker, connect = lab
    second = ScriptedBroker(broker.store, "second")
    try:
        cluster = connect(lambda _urls, **options: type(style)([broker.url, second.url], heartbeat=1, **options))
        cluster.declare("q")
        receiver = cluster.session(0).queue_receiver("q")
        fill_store(broker.store, 5)
        getattr(broker, how)()
        assert set(drain(cluster, receiver, 0.01)) == {str(number) for number in range(5)}  # some of them twice
        assert cluster.failovers == 1
    finally:
        second.kill()


def fill_store(store: Store, count: int) -> None:
    with store.lock:
        for number in range(count):
            store.queues["q"].append(("q", commands.Basic.Properties(), str(number).encode(), False))


def test_what_is_fetched_and_not_settled_is_counted(style: Any) -> None:
    fill(style, 3)
    receiver = style.session(0).queue_receiver("q", capacity=UNLIMITED)
    first = receiver.fetch(20)
    receiver.fetch(20)
    assert receiver.unsettled() == 2
    style.session(0).acknowledge(first)
    assert receiver.unsettled() == 1
    for thing in (style.connection, style.session(0), receiver, style.session(0).queue_sender("q")):
        thing.check_error()
    style.close()
    for thing in (style.connection, receiver):
        with pytest.raises(MessagingError):
            thing.check_error()


def test_no_receiver_has_a_message(style: Any) -> None:
    session = style.session(0)
    first, second = (session.queue_receiver(queue, capacity=1) for queue in ("a", "b"))
    with pytest.raises(Empty):
        session.next_receiver(0)
    fill(style, 3, "b")
    for number in range(3):
        session.next_receiver(0)
        assert second.fetch(0).body == str(number).encode()
        session.acknowledge(sync=False)
    with pytest.raises(Empty):
        session.next_receiver(0)
    assert first.available() == 0


def test_a_message_that_nobody_gets_is_not_waited_for_for_ever(style: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    """It is ready, and for another consumer."""
    style.declare("q")
    receiver = style.session(0).queue_receiver("q")
    fill_store(lab[0].store, 1)
    with pytest.raises(Empty):
        receiver.fetch(0)


def test_a_message_cannot_be_settled_in_another_session(style: Any) -> None:
    """It would stay unacknowledged for ever."""
    fill(style, 2)
    message = style.session(0).queue_receiver("q").fetch(20)
    got = style.session(0).get("q", timeout=20)
    for wrong in (message, got):
        if wrong is not None:
            with pytest.raises(ValueError, match="was received in session"):
                style.session(1).acknowledge(wrong)
            style.session(0).acknowledge(wrong)


def test_no_broker_says_that_there_is_nothing(
    style: Any, lab: tuple[ScriptedBroker, Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends nevertheless, with the reason, and not as if the queue were empty."""
    monkeypatch.setattr(channel_worker, "ASK_LIMIT", -1.9)  # 0.1 s with this heartbeat
    receiver = style.session(0).queue_receiver("q")
    lab[0].kill()
    for fetch in (receiver.fetch, style.session(0).next_receiver):
        with pytest.raises(Timeout, match=f"last: {lab[0].url}: ") as caught:
            fetch(0.01)
        assert not isinstance(caught.value, Empty)
