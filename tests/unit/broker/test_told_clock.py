"""connection.start says what the broker's clock shows, and the connection remembers when start-ok came."""

import pamqp.commands as commands

from qpidd_py.amqp.constants import TIME
from qpidd_py.broker.broker import Broker
from tests.unit.broker.peer import HEADER, Peer


def start_of(peer: Peer) -> commands.Connection.Start:
    peer.feed(HEADER)
    (start,) = peer.frames()
    assert isinstance(start, commands.Connection.Start)
    return start


def test_each_connection_is_told_the_time_of_its_start() -> None:
    now = [1_795_226_000_000_000, 7]
    broker = Broker(clocks=lambda: (now[0], now[1]))
    one, other = Peer(broker, opened=False), Peer(broker, opened=False)
    assert start_of(one).server_properties[TIME] == 1_795_226_000_000_000
    now[0] += 12
    assert start_of(other).server_properties[TIME] == 1_795_226_000_000_012
    assert TIME not in broker.server_properties


def test_a_broker_without_a_clock_says_nothing() -> None:
    assert TIME not in start_of(Peer(Broker(), opened=False)).server_properties


def test_the_connection_remembers_when_start_ok_came() -> None:
    ticks = iter(range(100, 200))
    broker = Broker(clocks=lambda: (1, next(ticks)))
    peer = Peer(broker, product="p")
    assert peer.connection.opened and peer.connection.opening.started == 101


def test_the_connection_remembers_why_it_ended() -> None:
    peer = Peer(Broker())
    peer.send(0, commands.Connection.Close(200, "bye", 0, 0))
    assert peer.connection.end_reason == "closed by the client: 200 bye"
