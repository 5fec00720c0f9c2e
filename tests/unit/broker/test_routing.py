"""Routing against the definition in plain words, and what one publish costs however much exists."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.exchange import Exchange
from qpidd_py.broker.headers import headers_match
from tests.support.lines import lines_of
from tests.unit.amqp.test_topic import naive

KINDS = {
    "direct": "direct",
    "fanout": "fanout",
    "topic": "topic",
    "headers": "headers",
    "more": "topic",
    "last": "direct",
}
ALTERNATES = {"topic": "more", "more": "headers", "direct": ""}
QUEUES = ("a", "b", "c")
KEYS = (b"a", b"b", b"a.b", b"#", b"*.b", b"")
TABLES: tuple[dict[str, Any], ...] = ({}, {"x": 1}, {"x": 1, "y": 2}, {"x-match": "any", "x": 1, "y": 2})
HEADERS: tuple[dict[str, Any], ...] = ({}, {"x": 1}, {"y": 2}, {"x": 1, "y": 2})
sources = st.sampled_from(sorted(KINDS))
binds = st.tuples(sources, st.sampled_from([*QUEUES, *KINDS]), st.sampled_from(KEYS), st.sampled_from(TABLES))
steps = st.lists(
    st.tuples(st.sampled_from(["bind", "bind", "unbind", "delete", "delete queue"]), binds, st.integers(0, 99)),
    max_size=20,
)


def make(broker: Broker | None = None) -> Broker:
    broker = broker or Broker()
    for name, kind in KINDS.items():
        other = {"alternate-exchange": ALTERNATES[name]} if name in ALTERNATES else {}
        broker.vhost.declare_exchange(name, kind, False, False, False, other)
    for name in QUEUES:
        broker.vhost.declare_queue(None, name, False, False, False, {})
    return broker


def do(broker: Broker, step: str, binding: tuple[str, str, bytes, dict[str, Any]], number: int) -> None:
    vhost, (source, target, key, table) = broker.vhost, binding
    existing = sorted(vhost.configuration.bindings(), key=lambda binding: repr(binding.key))
    if step == "delete" and number < 20:
        vhost.delete_exchange(source, False)
    elif step == "delete queue" and target in vhost.queues:
        vhost.delete_queue(None, target, False, False)
    elif step == "unbind" and existing:
        old = existing[number % len(existing)]
        vhost.bindings.unbind(old.source.name, old.destination, old.routing_key, old.arguments)
    elif source in vhost.exchanges and (destination := vhost.queues.get(target) or vhost.exchanges.get(target)):
        vhost.bindings.bind(source, destination, key, table)


def takes(kind: str, binding: Any, key: bytes, headers: dict[str, Any]) -> bool:
    if kind == "headers":
        return headers_match(binding.arguments, headers)
    if kind == "topic":
        return bool(naive(binding.routing_key.split(b"."), key.split(b".")))
    return kind == "fanout" or binding.routing_key == key


def defined(broker: Broker, start: str, key: bytes, headers: dict[str, Any]) -> tuple[set[str], bool]:
    """The queues, and whether headers may matter; asks every binding of every exchange."""
    exchanges, queues = broker.vhost.exchanges, broker.vhost.queues
    every = [*broker.vhost.configuration.bindings()]
    reached, found, possible = {start}, set(), {start}
    while True:
        size = len(reached), len(possible)
        for name in sorted(reached):
            fitting = [b for b in every if b.source.name == name and takes(exchanges[name].type, b, key, headers)]
            if name == "":
                found |= {key.decode()} & queues.keys()
                continue
            found |= {b.destination.name for b in fitting if not isinstance(b.destination, Exchange)}
            reached |= {b.destination.name for b in fitting if isinstance(b.destination, Exchange)}
            if not fitting and exchanges[name].alternate in exchanges:
                reached.add(str(exchanges[name].alternate))
        for name in sorted(possible):
            onward = [
                b.destination.name for b in every if b.source.name == name and isinstance(b.destination, Exchange)
            ]
            possible |= {*onward, *({str(exchanges[name].alternate)} & exchanges.keys())}
        if size == (len(reached), len(possible)):
            return found, any(exchanges[name].type == "headers" for name in possible)


@settings(deadline=None)
@given(steps, st.sampled_from(KEYS), st.sampled_from(HEADERS))
def test_same_as_the_definition(history, key, headers):
    broker = make()
    routing = broker.vhost.routing
    for step, binding, number in history:
        do(broker, step, binding, number)
        for start in sorted(set(KINDS) & broker.vhost.exchanges.keys()):
            exchange = broker.vhost.exchanges[start]
            found = {core.name for core in routing.destinations(exchange, key, {"headers": headers})}
            assert (found, routing._needs_headers(exchange)) == defined(broker, start, key, headers)


@pytest.mark.parametrize("kind", ["direct", "topic", "headers"])
@pytest.mark.parametrize("number", [100, 400, 1600])
def test_the_cost_of_a_publish_does_not_grow_with_what_does_not_match(kind, number):
    assert cost(kind, number) <= cost(kind, 25) * 1.2


def cost(kind: str, number: int) -> int:
    """Of a publish that the core has not cached, when so many bindings, exchanges and queues exist."""
    broker = Broker()
    vhost = broker.vhost
    vhost.declare_exchange("e", kind, False, False, False, {})
    for i in range(number):
        queue = vhost.declare_queue(None, f"q{i}", False, False, False, {})[0]
        vhost.declare_exchange(f"e{i}", "direct", False, False, False, {})
        for target in (queue, vhost.exchanges[f"e{i}"]):
            vhost.bindings.bind("e", target, b"a.%d.b" % i, {"id": i, "kind": "order"})
    exchange = vhost.exchanges["e"]
    vhost.routing._needs_headers(exchange)  # asked once for all publishes until exchanges change
    return lines_of(lambda: vhost.routing.route(b"e", b"a.7.b")) + lines_of(
        lambda: vhost.routing.destinations(exchange, b"a.7.b", {"headers": {"id": 7, "kind": "order"}})
    )
