"""TLS connections cost by what happens, not by how many there are; input that was put off is read on by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.config import BrokerSettings, NetworkSettings
from qpidd_py.core import Connection, Engine, Reactor, Route
from qpidd_py.server.listener import Listener
from qpidd_py.tls_pump import TlsPump
from tests.support.memory import PROTOCOL_HEADER, publish_octets


class Transport(asyncio.Transport):
    """asyncio's side of a TLS connection; counts how often it is looked at."""

    def __init__(self) -> None:
        super().__init__({"socket": SimpleNamespace(fileno=lambda: 50)})
        self.waits = self.looks = 0
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As it is."""

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        return self.waits

    def write(self, data: Any) -> None:
        self.waits += len(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Port:
    """A TLS port with connections that have said who speaks."""

    def __init__(self, count: int) -> None:
        loop: Any = SimpleNamespace(time=lambda: 1.0)
        network = NetworkSettings(max_newcomers=0)
        self.listener = Listener(loop, Broker(), Reactor(Engine()), network, BrokerSettings(), lambda work: work())
        self.transports = [Transport() for _ in range(count)]
        self.protocols = [self.listener.tls_protocol() for _ in range(count)]
        for protocol, transport in zip(self.protocols, self.transports, strict=True):
            protocol.connection_made(transport)
            protocol.data_received(PROTOCOL_HEADER)

    def looks(self, now: float) -> int:
        """How many connections a tick looks at."""
        before = sum(transport.looks for transport in self.transports)
        self.listener.tick(now)
        return sum(transport.looks for transport in self.transports) - before


@pytest.mark.parametrize("count", [5, 20, 80])
def test_a_tick_looks_at_those_whose_output_has_not_left(count: int) -> None:
    port = Port(count)
    assert port.looks(1.1) == count, "connection.start has not left"
    for transport in port.transports[3:]:
        transport.waits = 0
    assert port.looks(1.2) == count, "they are seen to be done"
    assert port.looks(1.3) == 3
    for transport in port.transports:
        transport.waits = 0
    port.looks(1.4)
    assert port.looks(1.5) == 0


def test_a_tick_does_not_look_at_one_that_is_gone() -> None:
    port = Port(2)
    port.protocols[0].connection_lost(None)
    assert port.looks(1.1) == 1


class Owner:
    """Its shell flushes when it is called."""

    def __init__(self) -> None:
        self.pump: TlsPump

    def protocol_header(self, header: bytes) -> None:
        """It is ours."""

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        return Route([])

    def output_ready(self) -> None:
        self.pump.flush()


def test_input_that_was_put_off_is_read_on_without_output_or_tick() -> None:
    """Publishes without confirms cause no output; a slice is over before all of their keys are looked up."""
    engine, owner = Engine(), Owner()
    engine.schedule = lambda: None
    connection = Connection(engine, owner)
    transport = Transport()
    owner.pump = TlsPump(transport, connection)
    connection.feed(PROTOCOL_HEADER)
    connection.open_channel(1)
    owner.pump.feed(b"".join(publish_octets(b"", f"key {number}") for number in range(2000)))
    assert not transport.reading, "a slice is over"
    turns = 0
    while not connection.reads():
        engine.end_turn()
        turns += 1
        assert turns < 2000
    engine.end_turn()
    assert turns > 1
    assert transport.reading
