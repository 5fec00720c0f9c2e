"""The collector visits all objects when nobody waits for it; what comes and goes in number is freed without it."""

import gc
import socket
from collections.abc import Iterator
from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.client_connection import ClientConnection
from qpidd_py.core import Reactor
from qpidd_py.server.collector import EVERY, LONGEST, SHORT, Collector
from tests.support.memory import method_octets, publish_octets
from tests.unit.broker.peer import Peer


class Clock:
    """Seconds; a collection takes `pause`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pause = 0.0
        self.collected: list[float] = []

    def collect(self) -> None:
        self.collected.append(self.now)
        self.now += self.pause

    def run(self, seconds: float, busy: bool) -> None:
        """A tick each second."""
        for _ in range(int(seconds)):
            self.now += 1
            self.messages = getattr(self, "messages", 0) + busy
            self.collector.tick(self.now, self.messages)

    def start(self) -> None:
        self.young = 0
        self.collector = Collector(lambda: self.now, self.collect, self.collect_young)

    def collect_young(self) -> None:
        self.young += 1


@pytest.fixture
def clock() -> Clock:
    found = Clock()
    found.start()
    return found


def test_it_comes_when_nobody_publishes(clock: Clock) -> None:
    clock.pause = 0.3
    clock.run(EVERY, busy=True)  # the first one tells how long it takes
    assert len(clock.collected) == 1
    clock.run(10 * EVERY, busy=True)
    assert len(clock.collected) == 1
    clock.run(2, busy=False)
    assert len(clock.collected) == 2
    clock.run(10 * EVERY - 1, busy=False)
    assert 9 <= len(clock.collected) <= 12


def test_young_objects_are_visited_with_each_tick(clock: Clock) -> None:
    clock.run(100, busy=True)
    assert clock.young == 100


def test_a_broker_that_is_never_idle_is_not_forgotten(clock: Clock) -> None:
    clock.pause = 0.3
    clock.run(EVERY + 2 * LONGEST, busy=True)
    assert 2 <= len(clock.collected) <= 3


def test_a_short_one_waits_for_nobody(clock: Clock) -> None:
    clock.pause = SHORT / 2
    clock.run(10 * EVERY, busy=True)
    assert 8 <= len(clock.collected) <= 10


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


class Transport(Peer):
    """A connection that the reactor serves."""

    def __init__(self, broker: Broker, reactor: Reactor) -> None:
        self.peer, ours = socket.socketpair()
        ours.setblocking(False)
        self.reactor = reactor
        self.connection = ClientConnection(broker, "test", self)
        reactor.add(self.connection.core, ours)
        self.handshake()

    def disconnect(self) -> None:
        """The test looks for what the reactor does."""

    def feed(self, octets: bytes) -> None:
        self.peer.sendall(octets)
        self.reactor.poll()

    def channel_frames(self) -> list[object]:
        return []


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-dead-letter-exchange": "amq.fanout"}])
def test_connections_and_queues_leave_nothing_to_collect(arguments: dict[str, Any]) -> None:
    broker = Broker()
    reactor = Reactor(broker.engine)

    def come_and_go(name: str, politely: bool) -> None:
        client = Transport(broker, reactor)
        client.send(1, commands.Channel.Open())
        declare = commands.Queue.Declare(queue=name, auto_delete=True, arguments=arguments)
        client.send(1, declare, commands.Queue.Bind(queue=name, exchange="amq.topic", routing_key="#"))
        client.send(1, commands.Basic.Consume(queue=name))
        client.feed(publish_octets(b"x", name))
        assert client.peer.recv(65536)
        if politely:
            client.feed(method_octets(commands.Connection.Close(200, "", 0, 0), 0))
            reactor.remove(client.connection.core)
        else:
            client.peer.close()
            reactor.poll()
        client.peer.close()
        del client.connection  # the transport of a broker does not have it
        assert not broker.connections and name not in broker.vhost.queues

    come_and_go("first", True)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(20):
        come_and_go(f"q{number}", bool(number % 2))
    broker.tick(1.0)
    assert len(gc.get_objects()) - before < 20
