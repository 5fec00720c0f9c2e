"""Who waits in vain is told why, and an application's own use of pika is left alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest

from client_lib import Connection, FailoverConnection, aio
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import QUICK, STYLES, Asyncio, Open, Threaded, opened

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def lab() -> Iterator[tuple[ScriptedBroker, Open]]:
    with opened() as found:
        yield found


def opening(kind: Any, *urls: str) -> None:
    """Waits for 0.3 s."""
    if kind is FailoverConnection:
        FailoverConnection(list(urls), open_timeout=0.3, **QUICK)
        return
    connection = kind(list(urls), **QUICK)
    try:
        connection.open(0.3)
    finally:
        connection.close(0)


@pytest.mark.parametrize("kind", [Connection, FailoverConnection])
def test_the_reason_of_each_address(kind: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    lab[0].mode = "refuse"

    def told() -> bool:
        with pytest.raises(Exception, match=r"not connected within 0\.3 s") as late:
            opening(kind, NOWHERE, lab[0].url)
        reasons = str(late.value).partition("; last: ")[2]
        return f"{NOWHERE}: [Errno 111]" in reasons and f"{lab[0].url}: 320 CONNECTION_FORCED" in reasons

    wait_for(told, what="both were tried in 0.3 s")


async def _open_aio(*urls: str) -> None:
    connection = aio.Connection(list(urls), **QUICK)
    try:
        await connection.open(0.3)
    finally:
        await connection.close(0)


def test_the_reason_with_asyncio(lab: tuple[ScriptedBroker, Open]) -> None:
    style = lab[1](Asyncio)
    with pytest.raises(TimeoutError, match=rf"not connected within 0\.3 s; last: {NOWHERE}: "):
        style.run(_open_aio(NOWHERE))


@pytest.mark.parametrize("kind", [Threaded, Asyncio])
def test_waiting_in_vain_during_an_outage(kind: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    broker, connect = lab
    style = connect(kind)
    session = style.session(0)
    sender = session.queue_sender("q", capacity=1)
    broker.kill()
    wait_for(lambda: not style.connection.is_connected)
    reason = f"; last: {broker.url}: "
    wait_for(lambda: (style.inner if kind is Asyncio else style.connection).link.trouble)
    for call in (
        lambda: sender.send(b"", timeout=0.1),
        lambda: sender.send(b"", timeout=0.1),
        lambda: sender.sync(0.1),
        lambda: session.sync(0.1),
        lambda: session.declare_queue("q", timeout=0.1),
    ):
        with pytest.raises(TimeoutError, match=reason):
            call()


@pytest.mark.parametrize("kind", [Threaded, Asyncio])
def test_a_commit_in_vain(kind: Any, lab: tuple[ScriptedBroker, Open]) -> None:
    broker, connect = lab
    style = connect(kind)
    style.begin(1)
    broker.kill()
    wait_for(lambda: not style.connection.is_connected)
    wait_for(lambda: (style.inner if kind is Asyncio else style.connection).link.trouble)
    style.post("q", b"", 1)
    with pytest.raises(TimeoutError, match=f"still open; last: {broker.url}: "):
        style.session(1).commit(0.1)


def test_pikas_own_log_after_asyncio(lab: tuple[ScriptedBroker, Open], caplog: pytest.LogCaptureFixture) -> None:
    """In the same thread."""

    async def program() -> None:
        async with aio.Connection(lab[0].url, **QUICK):
            pass

    asyncio.run(program())
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", 1))
    assert [record for record in caplog.records if record.name.startswith("pika") and record.levelno >= logging.ERROR]


@pytest.mark.parametrize("kind", STYLES)
def test_pikas_own_log_is_left_alone(
    kind: Any, lab: tuple[ScriptedBroker, Open], caplog: pytest.LogCaptureFixture
) -> None:
    assert logging.getLogger("pika").level == logging.NOTSET
    broker, connect = lab
    style = connect(kind)
    caplog.clear()
    broker.kill()
    wait_for(lambda: any("cannot connect" in record.message for record in list(caplog.records)))
    assert not [
        record for record in caplog.records if record.name.startswith("pika") and record.levelno >= logging.ERROR
    ]
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
    assert [record for record in caplog.records if record.name.startswith("pika") and record.levelno >= logging.ERROR]
    assert style.failovers == 1


def test_a_refusal_of_a_backup_is_no_warning(
    lab: tuple[ScriptedBroker, Open], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "client_lib")
    lab[0].mode = "refuse"

    def refusals() -> list[logging.LogRecord]:
        with pytest.raises(TimeoutError):
            opening(Connection, lab[0].url)
        return [record for record in caplog.records if "is a backup" in record.message]

    found = wait_for(refusals, what="it was refused in 0.3 s")
    assert all(record.levelno <= logging.INFO for record in found)
