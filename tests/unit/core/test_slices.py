"""Input for which Python is asked is parsed in slices: others have their turns between, and order holds."""

import pamqp.commands as commands

from qpidd_py.core import Engine, Queue, Route
from tests.support.memory import MemoryClient, confirms, method_octets, publish_octets

SLICE = 250  # routes that are asked for


class Lab:
    """A client whose routes are not kept, one that has to be served between, and the turns that the core asked for."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.wanted = 0
        self.engine.schedule = self.want
        self.queue: Queue = self.engine.create_queue(1, "a", True)
        self.asked = 0
        self.hog = self.client()

    def want(self) -> None:
        self.wanted += 1

    def client(self) -> MemoryClient:
        client = MemoryClient(self.engine)
        client.owner.route = self.route  # type: ignore[method-assign]
        client.channel.confirm_select()
        return client

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        self.asked += 1
        return Route([self.queue])

    def turns(self) -> list[int]:
        """How many routes were asked for in each turn, until none is wanted."""
        found = []
        while self.wanted:
            self.wanted, before = 0, self.asked
            self.engine.end_turn()
            found.append(self.asked - before)
        return found


def messages(count: int, key: str = "k") -> bytes:
    return b"".join(publish_octets(b"%d" % number, f"{key}{number}") for number in range(count))


def test_a_flood_of_new_keys_takes_a_slice_of_each_turn_and_keeps_its_order() -> None:
    for count in (500, 2000, 8000):
        lab = Lab()
        lab.hog.connection.feed(messages(count))
        assert lab.asked == SLICE and lab.hog.connection.unfinished
        turns = lab.turns()
        assert max(turns) <= SLICE and len(turns) <= count // SLICE + 1
        assert not lab.hog.connection.unfinished
        assert [body for *_, body in lab.queue.peek(count)] == [b"%d" % number for number in range(count)]
        assert confirms(lab.hog.turn())[-1][0] == count


def test_others_are_served_at_once_and_floods_take_turns() -> None:
    lab = Lab()
    floods = [lab.client() for _ in range(10)]
    for number, flood in enumerate(floods):
        flood.connection.feed(messages(1000, f"{number}."))
    lab.wanted, before = 0, lab.asked
    lab.engine.end_turn()
    assert 0 < lab.asked - before <= 4 * SLICE
    other = lab.client()
    other.connection.feed(publish_octets(b"x", "other"))
    assert not other.connection.unfinished
    assert confirms(other.turn()) == [(1, False)]
    lab.turns()
    assert [confirms(flood.turn())[-1][0] for flood in floods] == [1000] * 10


def test_what_arrives_meanwhile_waits_behind_and_a_lost_connection_is_left_alone() -> None:
    lab = Lab()
    lab.hog.connection.feed(messages(1000)[:-3])
    lab.hog.connection.feed(messages(1000)[-3:])
    lab.turns()
    assert lab.queue.ready == 1000
    gone = lab.client()
    gone.connection.feed(messages(1000, "other"))
    gone.connection.close()
    ready = lab.queue.ready
    lab.turns()
    assert lab.queue.ready == ready and not gone.connection.unfinished


def test_methods_are_counted_as_well() -> None:
    lab = Lab()
    declare = commands.Queue.Declare(queue="q", passive=True)
    for _ in range(100):
        lab.hog.send(declare)
    assert len(lab.hog.owner.methods) == 100
    lab.hog.connection.feed(method_octets(declare) * 100)
    assert len(lab.hog.owner.methods) == 100 + SLICE // 10
    lab.turns()
    assert len(lab.hog.owner.methods) == 200
