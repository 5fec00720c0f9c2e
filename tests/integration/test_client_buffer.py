"""A receiver without a limit does not take a whole queue into memory, in all three APIs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import BrokerProcess
from tests.support.wait import wait_for
from tests.unit.client_lib.styles import STYLES, Asyncio, PikaStyle, Threaded

SIZE, COUNT, LIMIT = 100_000, 300, 1 << 20
"""Octets of a message, messages, octets of the buffer: 30 MB, more than the sockets hold."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture(params=STYLES)
def style(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Any]:
    style = request.param([f"127.0.0.1:{broker.port}"], max_buffered=LIMIT, heartbeat=1)
    try:
        yield style
    finally:
        style.end()


def link_of(style: Any) -> Any:
    connection = (
        style.connection._connection if isinstance(style, PikaStyle) else getattr(style, "inner", style.connection)
    )
    return connection.link


def overfull(style: Any) -> int:
    """How many messages are in the buffer when reading has stopped."""
    link = link_of(style)
    wait_for(lambda: not link._transport.reading)
    subscriptions = [each for session in link.sessions.all for each in session.deliveries.subscriptions.values()]
    (subscription,) = [each for each in subscriptions if each.overfull]
    return int(subscription.available())


def consuming(style: Any, queue: str, no_ack: bool) -> tuple[Any, list[bytes]]:
    """A function that takes what there is, into the list."""
    found: list[bytes] = []
    if isinstance(style, PikaStyle):
        style.session(0).basic_consume(queue, lambda _c, _m, _p, body: found.append(body[:4]), auto_ack=no_ack)
        return (lambda: style.connection.process_data_events(1)), found
    receiver = style.session(0).queue_receiver(queue, capacity=None, no_ack=no_ack)
    return (lambda: found.append(receiver.fetch(20).body[:4])), found


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_queue_is_not_taken_into_memory(no_ack: bool, style: Any, tmp_path: Path) -> None:
    queue, other = f"{tmp_path.name}.long", f"{tmp_path.name}.other"
    style.declare(queue)
    style.declare(other)
    bodies = [b"%04d" % number for number in range(COUNT)]
    for body in bodies:
        style.publish(queue, body + b"x" * SIZE)
    take, found = consuming(style, queue, no_ack)
    assert overfull(style) * SIZE <= 3 * LIMIT
    wait_for(lambda: link_of(style).state.value == "connected")
    style.publish(other, b"confirmed")
    style.get(other)
    assert overfull(style) * SIZE < COUNT * SIZE
    while len(found) < COUNT:
        take()
    assert found == bodies
    assert style.failovers == 0


@pytest.mark.parametrize("style", [Threaded, Asyncio], indirect=True)
def test_another_receiver_is_served(style: Any, tmp_path: Path) -> None:
    """The program does not touch the one that is full.  (pika's callbacks take everything in the order of arrival.)"""
    queue, other = f"{tmp_path.name}.long", f"{tmp_path.name}.other"
    style.declare(queue)
    style.declare(other)
    receiver = style.session(1).queue_receiver(other)
    for _ in range(COUNT):
        style.publish(queue, b"x" * SIZE)
    _, found = consuming(style, queue, True)
    overfull(style)
    style.publish(other, b"at last")
    assert receiver.fetch().body == b"at last" and found == []
