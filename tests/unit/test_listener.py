"""A storm of connections is taken in small parts: other clients wait for one part, not for all of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from qpidd_py.broker.broker import Broker
from qpidd_py.config import BrokerSettings, NetworkSettings
from qpidd_py.core import Reactor
from qpidd_py.server.listener import Listener, listening_sockets

WAITING = 100
PART = 20
"""Connections in one turn of the loop; each brings 0.1 ms of work."""


@contextmanager
def listening(broker: Broker) -> Iterator[tuple[asyncio.AbstractEventLoop, tuple[str, int]]]:
    loop = asyncio.new_event_loop()
    listener = Listener(loop, broker, Reactor(broker.engine), NetworkSettings(), BrokerSettings(), lambda work: work())
    sockets = listening_sockets(("127.0.0.1",), 0, WAITING)
    listener.open(sockets)
    try:
        yield loop, sockets[0].getsockname()
    finally:
        listener.close()
        for connection in list(broker.connections):
            connection.close(320, "the end")
        one_turn(loop)
        loop.close()


def one_turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_one_turn_takes_a_part_of_those_that_wait() -> None:
    broker = Broker()
    with listening(broker) as (loop, address), ExitStack() as clients:
        for _ in range(WAITING):
            clients.enter_context(socket.create_connection(address))
        taken = [0]
        while taken[-1] < WAITING:
            one_turn(loop)
            taken.append(len(broker.connections))
            assert taken[-1] - taken[-2] <= PART
            assert len(taken) <= WAITING + 2, f"{taken[-1]} of {WAITING} were taken"
