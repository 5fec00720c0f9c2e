"""Exchanges of type x-consistent-hash: each message to one destination, by weight, the same on every broker."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.consistent_hash import MOST, Line, jump, weight
from qpidd_py.errors import AmqpError

KEYS = [b"key.%d" % number for number in range(4000)]


def line(**weights: int) -> Line[str]:
    found: Line[str] = Line(list(weights).index)
    for name, value in weights.items():
        found.add(name, value)
    return found


def takers(found: Line[str]) -> dict[bytes, str | None]:
    return {key: found.find(key) for key in KEYS}


def test_shares_are_as_the_weights() -> None:
    counts = Counter(takers(line(a=1, b=2, c=5)).values())
    for name, share in (("a", 1), ("b", 2), ("c", 5)):
        assert abs(counts[name] - len(KEYS) * share / 8) < len(KEYS) * 0.04


def test_one_more_takes_its_share_and_gives_it_back() -> None:
    found = line(a=3, b=3)
    before = takers(found)
    found._rank = lambda name: "abc".index(name)
    found.add("c", 3)
    after = takers(found)
    assert {after[key] for key in KEYS if after[key] != before[key]} == {"c"}
    found.remove("c")
    assert takers(found) == before


def test_the_order_of_arrival_does_not_matter() -> None:
    ranks = {"a": 1, "b": 2, "c": 3}
    one: Line[str] = Line(ranks.__getitem__)
    other: Line[str] = Line(ranks.__getitem__)
    for name in "abc":
        one.add(name, 2)
    for name in "cab":
        other.add(name, 2)
    assert takers(one) == takers(other)


def test_values_of_the_hash_are_pinned() -> None:
    """A broker of a later version has to choose alike."""
    assert [jump(b"key.%d" % number, 10) for number in range(12)] == PINNED


PINNED: Final = [0, 9, 5, 6, 8, 7, 0, 8, 2, 0, 7, 5]


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"1", 1), (b"%d" % MOST, MOST), (b"%d" % (MOST + 1), 0), (b"0", 0), (b"", 0), (b"-1", 0), (b"1.5", 0), (b"x", 0)],
)
def test_weights(key: bytes, value: int) -> None:
    assert weight(key) == value
    assert weight(b"9" * 5000) == 0
    assert line(a=0).find(b"x") is None and line().find(b"x") is None


def hashing(broker: Broker, **arguments: Any) -> None:
    names = {"hash_header": "hash-header", "hash_property": "hash-property"}
    vhost = broker.vhost
    vhost.declare_exchange("h", "x-consistent-hash", True, False, False, {names[k]: v for k, v in arguments.items()})
    for name in "abc":
        queue, _ = vhost.declare_queue(None, name, True, False, False, {})
        vhost.bindings.bind("h", queue, b"1", {})


def routed(broker: Broker, key: bytes, **properties: Any) -> list[str]:
    route = broker.vhost.routing.route(b"h", key)
    if route.by_header is None:
        return [queue.name for queue in route.queues]
    return [queue.name for queue in route.by_header(key, encode_properties(properties, 1)).queues]


def test_by_routing_key() -> None:
    broker = Broker()
    hashing(broker)
    found = [routed(broker, key) for key in KEYS[:60]]
    assert {len(names) for names in found} == {1} and {names[0] for names in found} == {"a", "b", "c"}
    assert found == [routed(broker, key, message_id="m") for key in KEYS[:60]]


@pytest.mark.parametrize("wanted", [{"hash_header": "id"}, {"hash_property": "message_id"}])
def test_by_a_header_or_property(wanted: dict[str, str]) -> None:
    broker = Broker()
    hashing(broker, **wanted)

    def of(value: str, key: bytes) -> list[str]:
        return routed(broker, key, headers={"id": value}, message_id=value)

    assert len({of(str(number), b"k")[0] for number in range(50)}) == 3
    assert all(of("7", key) == of("7", b"") for key in KEYS[:30])
    assert routed(broker, b"x") == routed(broker, b"y"), "what has no value goes to one queue"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-header": 1}, "'hash-header'"),
        ({"hash-property": "priority"}, "'hash-property'"),
        ({"hash-header": "a", "hash-property": "message_id"}, "'hash-header', too"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(AmqpError, match=text):
        Broker().vhost.declare_exchange("h", "x-consistent-hash", True, False, False, arguments)


def test_a_binding_key_that_is_no_weight_is_refused() -> None:
    broker = Broker()
    hashing(broker)
    queue, _ = broker.vhost.declare_queue(None, "d", True, False, False, {})
    with pytest.raises(AmqpError, match="is its weight, 1 to 1000000, found b'many'"):
        broker.vhost.bindings.bind("h", queue, b"many", {})
    assert not broker.vhost.configuration.sources(queue)
