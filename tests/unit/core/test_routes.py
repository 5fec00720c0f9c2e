"""Routes are asked for once, for all connections; what is kept of them is bounded and forgotten when they change."""

import gc

from qpidd_py.core import Engine, Mark, Queue, Route
from tests.support.memory import MemoryClient, publish_octets

KEPT = 65536


class Asked:
    """Counts what the core asks owners for."""

    def __init__(self, *clients: MemoryClient) -> None:
        self.keys: list[bytes] = []
        self.routes: dict[bytes, Route] = {}
        for client in clients:
            client.owner.route = self.route  # type: ignore[method-assign]

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        self.keys.append(routing_key)
        return self.routes.get(routing_key) or Route([])

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


def test_what_depends_on_everything_is_asked_for_again() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    asked = Asked(client)
    publish(client, range(1000))
    engine.forget_routes()
    assert len(engine.publications) == 0
    publish(client, range(100))
    assert asked.since() == 1100
    assert len(engine.publications) == 100


def test_a_change_forgets_what_it_touches() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    queues = [engine.create_queue(number, f"q{number}", False) for number in range(1, 4)]
    marks = [Mark(), Mark()]
    asked = Asked(client)
    for number in range(1000):
        asked.routes[b"k%06d" % number] = Route([queues[number % 3]], via=(marks[number % 2],))
    publish(client, range(1000))
    assert asked.since() == 1000
    engine.forget_routes(b"k000007")
    publish(client, range(1000))
    assert asked.since() == 1
    engine.forget_routes(queues[0])
    publish(client, range(1000))
    assert asked.since() == 334
    engine.forget_routes(marks[1])
    publish(client, range(1000))
    assert asked.since() == 500
    engine.forget_routes(b"another")
    engine.delete_queue(engine.create_queue(9, "reply", False))
    publish(client, range(1000))
    assert asked.since() == 0


def test_many_changes_of_other_keys_are_not_all_remembered() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    asked = Asked(client)
    publish(client, range(10))
    for number in range(10_000):
        engine.forget_routes(b"other%d" % number)
    publish(client, range(10))
    assert asked.since() == 20


def test_keys_leave_no_objects_for_the_collector_to_visit() -> None:
    """Routes that are equal are one object; a key is some octets."""
    engine = Engine()
    client = MemoryClient(engine)
    queues = [engine.create_queue(number, f"q{number}", False) for number in range(1, 5)]
    for number in range(20_000):
        client.owner.routes[b"k%06d" % number] = [queues[number % 4]]
    publish(client, range(4))
    gc.collect()
    before = len(gc.get_objects())
    publish(client, range(20_000))
    assert len(gc.get_objects()) - before < 100
    assert len(engine.publications) == 20_000


def test_routes_that_differ_are_bounded() -> None:
    engine = Engine()
    client = MemoryClient(engine)
    queues = [engine.create_queue(number, f"q{number}", False) for number in range(1, 18)]

    for number in range(60_000):
        routes = [queue for place, queue in enumerate(queues) if number >> place & 1]
        client.owner.routes[b"k%06d" % number] = routes
    for start in range(0, 60_000, 10_000):
        publish(client, range(start, start + 10_000))
        assert len(engine.publications) <= 16384
        for queue in queues:
            engine.purge(queue)


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
    assert KEPT <= len(engine.publications) <= 2 * KEPT
    assert asked.since() == 3 * KEPT + 100
