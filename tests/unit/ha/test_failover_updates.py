"""What `amq.failover` tells when there is no memory for it."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from ha.shell.failover_updates import FailoverUpdates
from qpidd_py.broker.exchange import FAILOVER


class Engine:
    passive = False

    def __init__(self) -> None:
        self.memory = True
        self.published: list[bytes] = []

    def publish(self, route: Any, exchange: bytes, key: bytes, header: bytes, body: bytes) -> int:
        if not self.memory:
            raise MemoryError
        self.published.append(header)
        return len(self.published)


def test_a_change_without_memory_for_it_is_told_later() -> None:
    engine, addresses = Engine(), ["one:1"]
    vhost = SimpleNamespace(
        engine=engine,
        exchanges={FAILOVER: SimpleNamespace(size=1)},
        routing=SimpleNamespace(destinations=lambda *_: [None]),
    )
    vhosts: Any = MagicMock(default=vhost)
    vhosts.__iter__.side_effect = lambda: iter([vhost])
    updates = FailoverUpdates(vhosts, lambda: addresses)
    addresses.append("two:2")
    engine.memory = False
    updates.look()
    assert not engine.published
    engine.memory = True
    updates.look()
    updates.look()
    assert len(engine.published) == 1 and b"amqp:tcp:two:2" in engine.published[0]
