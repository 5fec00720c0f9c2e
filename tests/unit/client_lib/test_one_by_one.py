"""A capacity of 0, as in qpid.messaging: a receiver fetches nothing ahead, a sender takes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from client_lib import Empty, InsufficientCapacity, LinkClosed
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import PATIENCE, Asyncio, Open, Threaded, opened


@pytest.fixture
def lab() -> Iterator[tuple[ScriptedBroker, Open]]:
    with opened() as found:
        yield found


@pytest.fixture
def broker(lab: tuple[ScriptedBroker, Open]) -> ScriptedBroker:
    return lab[0]


@pytest.fixture(params=[Threaded, Asyncio])
def style(request: pytest.FixtureRequest, lab: tuple[ScriptedBroker, Open]) -> Any:
    return lab[1](request.param, heartbeat=5)


def fill(style: Any, *bodies: bytes) -> None:
    for body in bodies:
        style.post("q", body)
    style.sync()


def one_by_one(style: Any, **options: Any) -> Any:
    return style.session(0).queue_receiver("q", capacity=0, **options)


def change(style: Any, thing: Any, capacity: int) -> None:
    """In the thread to which it belongs."""

    async def there() -> None:
        thing._inner.capacity = capacity

    if isinstance(style, Asyncio):
        style.run(there())
    else:
        thing.capacity = capacity


def test_a_fetch_asks_for_one_message(style: Any, broker: ScriptedBroker) -> None:
    fill(style, b"1", b"2", b"3")
    receiver = one_by_one(style)
    assert receiver.fetch(PATIENCE).body == b"1"
    assert receiver.poll(PATIENCE).body == b"2"
    assert receiver.available() == 0 and receiver.unsettled() == 2
    assert [stored[2] for stored in broker.store.queues["q"]] == [b"3"], "another client may have it"
    assert "Basic.Consume" not in broker.store.methods(broker.name)


def test_an_empty_queue(style: Any) -> None:
    receiver = one_by_one(style)
    with pytest.raises(Empty):
        receiver.fetch(0)
    assert receiver.poll(0.02) is None


def test_a_fetch_waits_for_a_message(style: Any, broker: ScriptedBroker) -> None:
    receiver = one_by_one(style)
    waiting = threading.Thread(target=lambda: got.append(receiver.fetch(PATIENCE)))
    got: list[Any] = []
    waiting.start()
    wait_for(lambda: broker.store.methods(broker.name).count("Basic.Get") > 2, PATIENCE)
    fill(style, b"late")
    waiting.join(PATIENCE)
    assert got[0].body == b"late"


def test_it_lasts_over_a_failover(style: Any, broker: ScriptedBroker) -> None:
    receiver = one_by_one(style)
    fill(style, b"1")
    broker.drop()
    assert receiver.fetch(PATIENCE).body == b"1"


def test_a_duplicate_is_not_handed_out(style: Any, broker: ScriptedBroker) -> None:
    fill(style, b"1")
    (key, properties, body, _) = broker.store.queues["q"][0]
    receiver = one_by_one(style, drop_duplicates=True)
    style.session(0).acknowledge(receiver.fetch(PATIENCE))
    broker.store.queues["q"].append((key, properties, body, True))
    with pytest.raises(Empty):
        receiver.fetch(0)
    assert not broker.store.queues["q"]


def test_without_acknowledgements(style: Any) -> None:
    fill(style, b"1", b"2")
    receiver = one_by_one(style, no_ack=True)
    assert receiver.fetch(PATIENCE).body == b"1" and receiver.unsettled() == 0


def test_the_capacity_can_be_changed(style: Any, broker: ScriptedBroker) -> None:
    fill(style, *(str(number).encode() for number in range(6)))
    receiver = one_by_one(style)
    assert receiver.fetch(PATIENCE).body == b"0"
    change(style, receiver, 2)
    wait_for(lambda: receiver.available() == 2, PATIENCE)
    change(style, receiver, 0)
    assert [receiver.fetch(PATIENCE).body for _ in range(5)] == [b"1", b"2", b"3", b"4", b"5"]
    with pytest.raises(ValueError, match="at least 0"):
        change(style, receiver, -1)


def test_closing_ends_a_fetch(style: Any) -> None:
    receiver = one_by_one(style)
    errors: list[BaseException] = []

    def fetch() -> None:
        try:
            receiver.fetch(PATIENCE)
        except LinkClosed as error:
            errors.append(error)

    waiting = threading.Thread(target=fetch)
    waiting.start()
    receiver.close()
    waiting.join(PATIENCE)
    assert errors


def test_a_sender_without_capacity_takes_nothing(style: Any) -> None:
    sender = style.session(0).queue_sender("q", capacity=0)
    for sync in (True, False):
        with pytest.raises(InsufficientCapacity):
            sender.send("x", sync=sync)
    assert sender.unsettled() == sender.available() == 0
    change(style, sender, 1)
    sender.send("x", timeout=PATIENCE)
