"""The questions of a promotion, to a broker that is dying."""

import asyncio
import socket
import struct
import threading
from typing import Any

import pika
import pytest

from ha.dial import Dial
from ha.model.environment import Answer, Outcome
from ha.shell.asker import Asker
from ha.shell.management_link import ManagementLink
from qpidd_py.amqp import management_client
from qpidd_py.amqp.client_handshake import Login
from tests.support.socket_broker import closed_port

RESET = struct.pack("ii", 1, 0)


def dying(listener: socket.socket, connections: int) -> None:
    """Takes some more connections and breaks each, as a process that is being killed does; then it is gone."""
    for _ in range(connections):
        taken, _address = listener.accept()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        taken.close()
    listener.close()


async def outcome(port: int, timeout: float, late: bool = False) -> Outcome:
    """`late`: we are told of a connection when it has been broken already."""
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def connected_and_broken(*arguments: Any) -> Any:
        transport, protocol = await connect(*arguments)
        while not protocol.over:
            await asyncio.sleep(0)
        return transport, protocol

    if late:
        loop.create_connection = connected_and_broken  # type: ignore[method-assign, assignment]
    answered = loop.create_future()
    asker = Asker(loop, f"127.0.0.1:{port}", Dial(Login("guest", "guest", "PLAIN")))
    asker.ask("ha.query", {}, timeout, answered.set_result)
    found: Answer = await answered
    asker.close()
    return found.outcome


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("connections", [0, 1, 2, 5])
def test_a_broker_that_breaks_connections_is_asked_until_it_is_known_to_be_gone(connections, late):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=dying, args=(listener, connections), daemon=True)
        thread.start()
        assert asyncio.run(outcome(port, 10.0, late)) is Outcome.REFUSED
        thread.join(10.0)


def test_one_that_says_nothing_is_silent_when_the_time_is_over():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(outcome(listener.getsockname()[1], 0.05)) is Outcome.SILENT


async def connections_of(questions: int) -> list[int]:
    """How many connections were made by the end of each question.  The other broker begins each handshake and says no
    more: on a slow path the rest is on its way."""
    loop, accepted, counts = asyncio.get_running_loop(), [0], []

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted[0] += 1
        await reader.readexactly(8)
        start = pika.spec.Connection.Start(0, 9, {}, "PLAIN", "en_US")
        writer.write(pika.frame.Method(0, start).marshal())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asker = Asker(loop, address, Dial(Login("guest", "guest", "PLAIN")))
    for _ in range(questions):
        answered: asyncio.Future[Answer] = loop.create_future()
        asker.ask("ha.query", {}, 0.5, answered.set_result)
        assert (await answered).outcome is Outcome.SILENT
        counts.append(accepted[0])
    asker.close()
    server.close()
    return counts


def test_a_connection_on_which_something_comes_is_kept_and_a_silent_one_is_not():
    """Its handshake may take longer than one question may: closed each time, it would never be made."""
    assert asyncio.run(connections_of(3)) == [1, 1, 2]


def test_what_is_given_up_leaves_nothing_behind():
    """A broker that is slow for hours is asked again and again on one connection."""
    link, answers = ManagementLink(Login("guest", "guest", "PLAIN"), lambda end: None), []
    numbers = [link.request("ha.ask", {}, answers.append) for _ in range(3)]
    for number in numbers[:2]:
        link.forget(number)
    link.forget(numbers[0])
    assert list(link._replies) == numbers[2:]
    for number in numbers:
        link._answered(management_client.Answer(number, True, {}, ""))
    assert [answer.number for answer in answers] == numbers[2:]


async def refused_here(*doors: tuple[str, int]) -> Outcome:
    """A question to a closed port of a broker that may have other doors."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Answer] = loop.create_future()
    asker = Asker(loop, f"127.0.0.1:{closed_port()}", Dial(Login()), lambda: doors)
    asker.ask("ha.ask", {}, 1.0, answered.set_result)
    found = (await answered).outcome
    asker.close()
    return found


def test_one_that_refuses_on_one_port_and_listens_on_another_lives(caplog: pytest.LogCaptureFixture) -> None:
    """Its plain port is closed, or its TLS port: a refused connection proves nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        doors = ("127.0.0.1", closed_port()), ("127.0.0.1", port)
        assert asyncio.run(refused_here(*doors)) is Outcome.SILENT
    assert f"refuses connections, but its broker lives: it listens on port {port}" in caplog.text


def test_a_door_that_cannot_be_tried_says_nothing() -> None:
    assert asyncio.run(refused_here(("no such host.invalid", 1))) is Outcome.SILENT


def test_one_that_refuses_at_every_door_is_gone() -> None:
    assert asyncio.run(refused_here(("127.0.0.1", closed_port()))) is Outcome.REFUSED


def test_tls_without_authorities_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> Outcome:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()
        Asker(loop, "ssl:127.0.0.1:1", Dial(Login())).ask("ha.ask", {}, 1.0, answered.set_result)
        return (await answered).outcome

    assert asyncio.run(ask()) is Outcome.SILENT
    assert "ssl:127.0.0.1:1 cannot be asked: there is no ha-ssl-ca (or ssl-ca) here" in caplog.text
