"""Names of qpid.messaging that a ported program uses: handlers, `get_error`, `threshold`, errors, dispositions."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

import client_lib
from client_lib import (
    REJECTED,
    ConnectError,
    Connection,
    Disposition,
    InternalError,
    MessagingError,
    ReceiverCancelled,
    Rejected,
    ServerError,
    TargetCapacityExceeded,
    VersionError,
)
from client_lib.errors import server_error
from tests.support.wait import wait_for
from tests.unit.client_lib.scripted_broker import ScriptedBroker
from tests.unit.client_lib.styles import PATIENCE, QUICK, Asyncio, Threaded


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    found = ScriptedBroker()
    yield found
    found.kill()


STYLES = pytest.mark.parametrize("style", [Threaded, Asyncio])
Told = list[tuple[Any, BaseException]]


def told_of(thing: Any) -> Told:
    """What its handler is called with."""
    told: Told = []
    thing.set_async_exception_notify_handler(lambda *what: told.append(what))
    return told


def heard(told: Told) -> BaseException:
    wait_for(lambda: told, PATIENCE, "the handler is called")
    return told[0][1]


@STYLES
def test_a_handler_hears_of_a_message_that_was_refused(broker: ScriptedBroker, style: type[Threaded]) -> None:
    broker.confirm = "nack"
    client = style([broker.url])
    try:
        sender = client.session(0).queue_sender("q")
        told = told_of(sender)
        sender.send(b"x", sync=False)
        assert isinstance(heard(told), Rejected)
        with pytest.raises(TargetCapacityExceeded):
            client.sync()
    finally:
        client.end()


@STYLES
def test_a_handler_hears_of_the_end_of_a_session(broker: ScriptedBroker, style: type[Threaded]) -> None:
    broker.refuse_declare = lambda queue: (406, "PRECONDITION_FAILED") if queue == "wrong" else None
    client = style([broker.url])
    try:
        session = client.session(0)
        told = told_of(session)
        assert session.get_error() is None
        with pytest.raises(ServerError):
            client.declare("wrong")
        assert isinstance(heard(told), ServerError)
        assert str(session.get_error()) == str(told[0][1])
        client.session(1).close()  # one that the application closes tells nothing
        assert len(told) == 1
    finally:
        client.end()


@STYLES
def test_a_handler_hears_of_the_end_of_a_connection(broker: ScriptedBroker, style: type[Threaded]) -> None:
    client = style([broker.url], reconnect=False)
    try:
        told = told_of(client.connection)
        assert client.connection.get_error() is None
        broker.kill()
        assert isinstance(heard(told), MessagingError)
        assert client.connection.get_error() is not None
    finally:
        client.end()


def test_a_handler_hears_of_a_cancelled_subscription(broker: ScriptedBroker) -> None:
    with Connection(broker.url, **QUICK) as connection:
        receiver = connection.session().queue_receiver("q")
        told = told_of(receiver)
        (peer,) = broker.peers
        ((tag, (channel, _, _)),) = peer.consumers.items()
        peer.send(channel, commands.Basic.Cancel(tag, True))
        assert isinstance(heard(told), ReceiverCancelled)
        assert told[0][0] is receiver
        assert isinstance(receiver.get_error(), ReceiverCancelled)


def test_what_a_handler_raises_is_logged(broker: ScriptedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.confirm = "nack"
    with Connection(broker.url, **QUICK) as connection:
        sender = connection.session().queue_sender("q")
        sender.set_async_exception_notify_handler(lambda _sender, _error: 1 / 0)
        with caplog.at_level(logging.ERROR), pytest.raises(Rejected):
            sender.send(b"x")
        wait_for(lambda: "ZeroDivisionError" in caplog.text, PATIENCE, "the error in the log")
        sender.set_async_exception_notify_handler(None)
        with pytest.raises(Rejected):
            sender.send(b"x")


@pytest.mark.parametrize("wrong", [1, "handler", object()])
def test_a_handler_that_is_none(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected a function"):
        Connection("localhost").set_async_exception_notify_handler(wrong)


def test_the_threshold(broker: ScriptedBroker) -> None:
    """A sender that waits for room goes on when that share is free."""
    broker.confirm = "hold"
    with Connection(broker.url, **QUICK) as connection:
        sender = connection.session().queue_sender("q", capacity=4)
        assert sender.threshold == 0.25
        sender.threshold = 0.5
        for _ in range(4):
            sender.send(b"x", sync=False)
        thread = threading.Thread(target=sender.send, args=(b"waits", False))
        thread.start()
        wait_for(lambda: sender.blocked, PATIENCE, "the sender waits")
        (peer,) = broker.peers
        wait_for(lambda: len(peer.held) == 4, PATIENCE, "the broker has them")
        peer.send(1, commands.Basic.Ack(1))
        wait_for(lambda: sender.unsettled() == 3, PATIENCE, "one confirm")
        assert sender.blocked
        peer.send(1, commands.Basic.Ack(2))
        thread.join(PATIENCE)
        assert not thread.is_alive()
        wait_for(lambda: len(peer.held) == 5, PATIENCE, "the broker has it")
        peer.send(1, commands.Basic.Ack(5, True))
        sender.sync(PATIENCE)


@pytest.mark.parametrize("wrong", [0, -1, 1.1, "0.5", None, True])
def test_a_threshold_that_is_none(broker: ScriptedBroker, wrong: Any) -> None:
    with Connection(broker.url, **QUICK) as connection:
        sender = connection.session().queue_sender("q")
        with pytest.raises(ValueError, match="threshold"):
            sender.threshold = wrong
        assert sender.threshold == 0.25


def test_the_errors_and_dispositions() -> None:
    assert isinstance(server_error(541, "INTERNAL_ERROR"), InternalError)
    assert issubclass(VersionError, ConnectError)
    assert Disposition(REJECTED, code=42, text="malformed") is REJECTED
    assert Disposition("release", text="later") is Disposition.RELEASE
    for name in ("TargetCapacityExceeded", "InternalError", "VersionError", "UNLIMITED"):
        assert name in client_lib.__all__


def test_a_broker_of_another_protocol_ends_the_first_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(8)
                peer.sendall(b"AMQP\x00\x01\x00\x00")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(VersionError, match="answers with"):
            Connection(f"127.0.0.1:{server.getsockname()[1]}", **QUICK).open(PATIENCE)
        thread.join(PATIENCE)


PAGE = Path(client_lib.__file__).parents[1] / "docs" / "from-qpid-messaging.md"


def table() -> dict[str, str]:
    """First column → second, of the table of names."""
    rows = PAGE.read_text().partition("## Name by name")[2].partition("##")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| `")]
    return {row[0]: row[1] for row in cells}


def names_in(cell: str) -> Iterator[str]:
    """`Sender.send`, `sync`: Sender.send, Sender.sync."""
    holder = ""
    for name in re.findall(r"`([\w.]+)", cell):
        holder = name.rpartition(".")[0] or (holder if name[0].islower() else "")
        yield f"{holder}.{name.rpartition('.')[2]}".strip(".")


def is_there(name: str) -> bool:
    holder, _, attribute = name.rpartition(".")
    thing: Any = getattr(client_lib, holder) if holder else client_lib
    return hasattr(thing, attribute)


def test_the_table_of_the_page_tells_what_is_there() -> None:
    rows = table()
    said = {cell: text for cell, text in rows.items() if not cell.startswith(("`check_error`", "options", "`capacity"))}
    there = [name for cell, text in said.items() if text.startswith(("there", "differs")) for name in names_in(cell)]
    gone = [name for cell, text in said.items() if text.startswith("not there") for name in names_in(cell)]
    assert len(there) > 30
    assert [name for name in there if not is_there(name)] == []
    assert [name for name in gone if name != "set_message_received_notify_handler" and is_there(name)] == []
    for kind in ("Connection", "Session", "Sender", "Receiver"):
        assert all(is_there(f"{kind}.{name}") for name in names_in("`check_error`, `get_error`"))
