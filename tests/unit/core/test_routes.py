"""Routes are asked for once, for all connections; what is kept of them is bounded and forgotten when they change."""

from qpidd_py.core import Engine, Queue, Route
from tests.support.memory import MemoryClient, publish_octets

KEPT = 65536


class Asked:
    """Counts what the core asks owners for."""

    def __init__(self, *clients: MemoryClient) -> None:
        self.keys: list[bytes] = []
        for client in clients:
            client.owner.route = self.route  # type: ignore[method-assign]

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        self.keys.append(routing_key)
        return Route([])

    def since(self) -> int:
        count = len(self.keys)
        self.keys.clear()
        return count


TEMPLATE = publish_octets(b"m", "k000000")


def publish(client: MemoryClient, keys: range) -> None:
    client.connection.feed(b"".join(TEMPLATE.replace(b"k000000", b"k%06d" % number) for number in keys))
    client.turn()


def test_a_route_is_asked_for_once_and_by_the_first_publish_of_a_connection() -> None:
    engine = Engine()
    one, other = MemoryClient(engine), MemoryClient(engine)
    asked = Asked(one, other)
    publish(one, range(10_000))
    assert asked.since() == 10_000
    for _ in range(2):
        publish(one, range(10_000))
    assert asked.since() == 0
    publish(other, range(10_000))
    assert asked.since() == 1  # its owner has to know that it publishes
    publish(other, range(10_000))
    assert asked.since() == 0


def test_changes_forget_all_routes_and_free_them_in_pieces() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    asked = Asked(client)
    publish(client, range(1000))
    engine.forget_routes()
    publish(client, range(100))
    assert asked.since() == 1100
    assert len(engine.publications) == 100 + 1000 - 200
    publish(client, range(100, 1000))
    assert len(engine.publications) == 1000


def test_short_lived_queues_leave_nothing_behind() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    for number in range(1, 500):
        queue: Queue = engine.create_queue(number, f"reply{number}", False)
        client.owner.routes[b"k000000"] = [queue]
        publish(client, range(1))
        assert queue.ready == 1
        engine.delete_queue(queue)
    assert len(engine.publications) <= 3


def test_what_is_kept_is_bounded_and_has_what_is_in_use() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    asked = Asked(client)
    for start in range(0, 3 * KEPT, 16384):
        publish(client, range(start + 100, start + 16484))
        publish(client, range(100))
    assert 2 * KEPT - 1000 <= len(engine.publications) <= 3 * KEPT
    assert asked.since() == 3 * KEPT + 100
