"""Whatever changes, what the core has kept of routes is what would be answered now; little is asked for again."""

import random

import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.exchange import EXCHANGE_TYPES
from qpidd_py.broker.policy_keys import POLICY
from qpidd_py.broker.queue import DeclaredQueue
from qpidd_py.broker.settings import Key
from qpidd_py.core import Queue, Route
from qpidd_py.errors import AmqpError
from tests.support.memory import MemoryClient, publish_octets

KEYS = ("a", "b", "a.b", "a.b.c", "q0", "q1", "")
PATTERNS = (*KEYS, "#", "a.*", "*.b", "a.#", "1", "2")  # numbers: weights of a consistent-hash exchange
NAMES = ("amq.topic", "amq.direct", "amq.fanout", "amq.headers", "x0", "x1", "x2", "")
QUEUES = ("q0", "q1", "q2", "q3")


class Lab:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker = Broker()
        self.vhost = self.broker.vhost
        self.client = MemoryClient(self.broker.engine)
        self.client.owner.route = self.route  # type: ignore[method-assign]
        self.asked = 0

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        self.asked += 1
        try:
            return self.vhost.routing.route(exchange, routing_key)
        except AmqpError:
            return Route([])  # not kept by a broker, which closes the channel: published to only if it is there

    def change(self) -> None:
        """One change, or one that is refused."""
        rng, vhost = self.rng, self.vhost
        exchange, queue = rng.choice(NAMES), rng.choice(QUEUES)
        try:
            match rng.randrange(9):
                case 0:
                    vhost.declare_queue(None, queue, False, False, False, {})
                case 1:
                    vhost.delete_queue(None, queue, False, False)
                case 2:
                    alternate = {"alternate-exchange": rng.choice(NAMES)} if rng.randrange(2) else {}
                    vhost.declare_exchange(exchange, rng.choice(EXCHANGE_TYPES), False, False, False, alternate)
                case 3 if exchange.startswith("x"):
                    vhost.delete_exchange(exchange, False)
                case 4:
                    vhost.bindings.bind(
                        exchange, vhost.find_exchange(rng.choice(NAMES)), rng.choice(PATTERNS).encode(), {}
                    )
                case 5:
                    vhost.bindings.bind(exchange, vhost.find_queue(queue, None), rng.choice(PATTERNS).encode(), {})
                case 6:
                    definition = {"alternate-exchange": rng.choice(NAMES)}
                    policy = {"pattern": rng.choice(("", "x", exchange)), "apply-to": "exchanges", "priority": 0}
                    self.broker.settings.put(Key(POLICY, "/", rng.choice("ab")), {**policy, "definition": definition})
                case 7:
                    self.broker.settings.delete(Key(POLICY, "/", rng.choice("ab")))
                case _:
                    bindings = list(vhost.exchanges[exchange].bindings())
                    if bindings:
                        left = rng.choice(bindings)
                        vhost.bindings.unbind(exchange, left.destination, left.routing_key, left.arguments)
        except (AmqpError, KeyError):
            pass

    def publish(self, exchange: str, key: str) -> set[str]:
        """The queues that get it."""
        before = {queue.name: queue.core.enqueued for queue in self.vhost.queues.values()}
        self.client.connection.feed(publish_octets(b"x", key, exchange))
        return {queue.name for queue in self.vhost.queues.values() if queue.core.enqueued > before[queue.name]}

    def wanted(self, exchange: str, key: str) -> set[str]:
        if exchange == "":
            return {key} & set(self.vhost.queues)
        found: list[Queue] = self.vhost.routing.destinations(self.vhost.exchanges[exchange], key.encode(), {})
        return {queue.name for queue in found}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_is_what_would_be_answered(seed: int) -> None:
    lab = Lab(seed)
    for _ in range(250):
        lab.change()
        for exchange in [name for name in NAMES if name in lab.vhost.exchanges or not name]:
            for key in KEYS:
                assert lab.publish(exchange, key) == lab.wanted(exchange, key), (exchange, key)


def bound(lab: Lab, name: str, exchange: str, key: bytes) -> DeclaredQueue:
    queue, _ = lab.vhost.declare_queue(None, name, False, False, False, {})
    lab.vhost.bindings.bind(exchange, queue, key, {})
    return queue


def test_what_is_kept_of_a_line_follows_what_leaves_it() -> None:
    """Which queue of a consistent-hash exchange gets a key depends on all of them."""
    lab = Lab(0)
    lab.vhost.declare_exchange("x0", "x-consistent-hash", False, False, False, {})
    keys = [str(number) for number in range(40)]
    for name in QUEUES:
        bound(lab, name, "x0", b"1")
    for gone in ("q0", "q1"):
        for key in keys:
            assert lab.publish("x0", key) == lab.wanted("x0", key)
        lab.vhost.delete_queue(None, gone, False, False)
        for key in keys:
            assert lab.publish("x0", key) == lab.wanted("x0", key), key
    lab.vhost.bindings.unbind("x0", lab.vhost.queues["q2"], b"1", {})
    assert {name for key in keys for name in lab.publish("x0", key)} == {"q3"}


def test_queues_of_others_that_come_and_go_cost_no_question() -> None:
    """Reply queues, declared, bound and deleted, while others publish."""
    lab = Lab(0)
    for number in range(50):
        bound(lab, f"t{number}", "amq.topic", b"%d.#" % number)
        bound(lab, f"d{number}", "amq.direct", b"%d" % number)
    for turn in range(20):
        for number in range(50):
            assert lab.publish("amq.topic", f"{number}.x") == {f"t{number}"}
            assert lab.publish("amq.direct", f"{number}") == {f"d{number}"}
        assert lab.asked == 100
        bound(lab, f"reply{turn}", "amq.direct", b"reply%d" % turn)
        bound(lab, f"news{turn}", "amq.topic", b"news.%d" % turn)
        lab.vhost.delete_queue(None, f"reply{turn}", False, False)
        lab.vhost.delete_queue(None, f"news{turn}", False, False)


def test_an_alternate_exchange_may_come_later_and_go() -> None:
    lab = Lab(0)
    lab.vhost.declare_exchange("x0", "direct", False, False, False, {"alternate-exchange": "x1"})
    for _ in range(2):
        assert lab.publish("x0", "a") == set()
        lab.vhost.declare_exchange("x1", "fanout", False, False, False, {})
        bound(lab, "q0", "x1", b"")
        assert lab.publish("x0", "a") == {"q0"}
        lab.vhost.delete_exchange("x1", False)
    lab.vhost.delete_exchange("x0", False)
    assert not lab.vhost.configuration._alternates
