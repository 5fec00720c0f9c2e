"""Periodic work of the broker is counted at n, 4n and 16n: it grows as what happens, not as what exists."""

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.vhost import DELETIONS

SIZES = (100, 400, 1600)


def test_idle_queues_are_looked_at_when_their_time_has_come() -> None:
    for count in SIZES:
        broker = Broker()
        for number in range(count):
            broker.vhost.declare_queue(None, f"q{number}", False, False, False, {"x-expires": 60_000})
        for now in range(60):
            broker.tick(float(now))
        assert broker.vhost.idle.looks == 0 and len(broker.vhost.queues) == count
        left = count
        while left:
            broker.tick(60.0)
            assert left - len(broker.vhost.queues) <= DELETIONS
            left = len(broker.vhost.queues)
        assert broker.vhost.idle.looks == count


def test_a_queue_in_use_is_looked_at_once_for_each_time_limit() -> None:
    for count in SIZES:
        broker = Broker()
        queue, _ = broker.vhost.declare_queue(None, "q", False, False, False, {"x-expires": 10_000})
        for number in range(count):
            broker.vhost.used(queue)
            broker.tick(number / 10)
        assert broker.vhost.idle.looks <= count and len(broker.vhost.idle) == 1
