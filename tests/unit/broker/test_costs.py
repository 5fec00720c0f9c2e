"""Periodic work of the broker is counted at n, 4n and 16n: it grows as what happens, not as what exists."""

from qpidd_py.broker.broker import VISITS, Broker
from qpidd_py.broker.idle import DELETIONS
from tests.unit.broker.peer import Peer

SIZES = (100, 400, 1600)


def test_idle_queues_are_looked_at_when_their_time_has_come() -> None:
    for count in SIZES:
        broker = Broker()
        for number in range(count):
            broker.vhost.declare_queue(None, f"q{number}", False, False, False, {"x-expires": 60_000})
        for now in range(60):
            broker.tick(float(now))
        assert broker.vhost.endings.idle.due.looks == 0 and len(broker.vhost.queues) == count
        left = count
        while left:
            broker.tick(60.0)
            assert left - len(broker.vhost.queues) <= DELETIONS
            left = len(broker.vhost.queues)
        assert broker.vhost.endings.idle.due.looks == count


def test_a_queue_in_use_is_looked_at_once_for_each_time_limit() -> None:
    for count in SIZES:
        broker = Broker()
        queue, _ = broker.vhost.declare_queue(None, "q", False, False, False, {"x-expires": 10_000})
        for number in range(count):
            broker.vhost.endings.idle.used(queue)
            broker.tick(number / 10)
        assert broker.vhost.endings.idle.due.looks <= count and len(broker.vhost.endings.idle.due) == 1


def test_idle_connections_are_looked_at_as_often_as_their_heartbeat_asks() -> None:
    for count in (10, 40, 160):
        broker = Broker(heartbeat=60)
        peers = [Peer(broker, heartbeat=60) for _ in range(count)]
        for number in range(20 * 60):
            broker.tick(number / 20)
        assert broker.visits.looks <= 10 * count
        assert all(peer.connection.opened for peer in peers) and len(broker.visits) == count
        for peer in peers:
            peer.connection.close(320, "go")
        for number in range(20 * 6):
            broker.tick(60 + number / 20)
        assert not broker.connections and not broker.visits


def test_without_heartbeats_nobody_is_looked_at() -> None:
    broker = Broker()
    peers = [Peer(broker, heartbeat=0) for _ in range(10)]
    for number in range(100):
        broker.tick(float(number))
    assert broker.visits.looks == len(peers)


def test_one_tick_looks_at_a_part_of_the_connections() -> None:
    broker = Broker()
    peers = [Peer(broker, heartbeat=0) for _ in range(VISITS + 100)]
    broker.tick(0.0)
    assert VISITS < broker.visits.looks < len(peers)
    broker.tick(0.1)
    assert broker.visits.looks == len(peers)


def test_heartbeats_leave_and_silence_is_noticed_in_time() -> None:
    broker = Broker()
    peer = Peer(broker, heartbeat=60)
    for number in range(10 * 38):
        broker.tick(number / 10)
    assert len(peer.frames()) == 1
    for number in range(10 * 38, 10 * 120):
        broker.tick(number / 10)
    assert peer.connection.opened
    for number in range(10 * 120, 10 * 136):
        broker.tick(number / 10)
    assert peer.connection.finished
