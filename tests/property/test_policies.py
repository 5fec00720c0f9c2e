"""Policies against a model: whatever is set, cleared, declared and deleted, and however it is cut into steps, each
object has what the definition of RabbitMQ gives it; every broker that follows the log computes the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from qpidd_py.broker import effects
from qpidd_py.broker.policy_keys import HA, OPERATOR, POLICY
from qpidd_py.broker.queue import Effect
from qpidd_py.broker.settings import Key
from tests.support.slow import few
from tests.unit.broker.peer import Replicated

NAMES: Final = ("a", "ab", "b", "amq.direct")
PATTERNS: Final = ("", "a", "^a$", "b$", "^amq", "x")
DEFINITIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "queues": {
        "max-length": 5,
        "message-ttl": 60_000,
        "overflow": "reject-publish",
        "delivery-limit": 3,
        "queue-mode": "lazy",
    },
    "exchanges": {"alternate-exchange": "b", "ha-mode": "all"},
}
ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"x-max-length": 3},
    {"x-queue-type": "quorum"},
    {"x-overflow": "drop-head"},
)
ALTERNATES: Final[tuple[dict[str, Any], ...]] = ({}, {"alternate-exchange": "a"})
NUMBERS: Final = ("max-length", "message-ttl", "delivery-limit")


@st.composite
def values(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    to = draw(st.sampled_from(("queues", "all") if kind == OPERATOR else ("queues", "exchanges", "all")))
    known = {key: value for target, keys in DEFINITIONS.items() if to in (target, "all") for key, value in keys.items()}
    if kind == OPERATOR:
        known = {key: draw(st.integers(1, 9)) for key in NUMBERS}
    keys = draw(st.lists(st.sampled_from(sorted(known)), min_size=1, unique=True))
    fields = {"pattern": draw(st.sampled_from(PATTERNS)), "apply-to": to, "priority": draw(st.integers(0, 2))}
    return {**fields, "definition": {key: known[key] for key in keys}}


kinds = st.sampled_from((POLICY, OPERATOR))
steps = st.lists(
    st.one_of(
        kinds.flatmap(lambda kind: st.tuples(st.just(kind), st.sampled_from("mno"), values(kind))),
        st.tuples(st.just("clear"), st.sampled_from("mno"), kinds),
        st.tuples(st.just("queue"), st.sampled_from(NAMES), st.sampled_from(ARGUMENTS)),
        st.tuples(st.just("exchange"), st.sampled_from(NAMES), st.sampled_from(ALTERNATES)),
        st.tuples(st.just("drop"), st.sampled_from(NAMES), st.sampled_from(("queue", "exchange"))),
        st.tuples(st.just("tick"), st.just(""), st.just("")),
    ),
    max_size=25,
)


def do(broker: Replicated, step: str, name: str, value: Any) -> None:
    vhost = broker.vhost
    if step in (POLICY, OPERATOR):
        broker.settings.put(Key(step, "/", name), value)
    elif step == "clear":
        broker.settings.delete(Key(value, "/", name))
    elif step == "tick":
        vhost.configuration.effects.go_on()
    elif step == "queue" and name not in vhost.queues and not name.startswith("amq."):
        vhost.declare_queue(None, name, True, False, False, value)
    elif step == "exchange" and name not in vhost.exchanges:
        vhost.declare_exchange(name, "direct", True, False, False, value)
    elif step == "drop" and value == "queue":
        vhost.delete_queue(None, name, False, False)
    elif step == "drop" and not name.startswith("amq."):
        vhost.delete_exchange(name, False)


def best(broker: Replicated, kind: str, target: str, name: str) -> tuple[str, Mapping[str, Any]]:
    """The policy that counts; asks all of them."""
    found = [
        (-value["priority"], key.name, value["definition"])
        for key, value in broker.settings.of(kind)
        if value["apply-to"] in (target, "all") and re.search(value["pattern"], name)
    ]
    return min(found, key=lambda each: each[:2])[1:] if found and name else ("", {})


def model(broker: Replicated, target: str, name: str, declared: Mapping[str, Any]) -> Effect:
    policy, definition = best(broker, POLICY, target, name)
    operator, limits = best(broker, OPERATOR, target, name)
    found = dict(declared)
    for source in (definition, limits):
        for key, value in source.items():
            argument = key if key == "alternate-exchange" else f"x-{key}"
            known = (key == "alternate-exchange") == (target == "exchanges") and key not in HA
            quorum = declared.get("x-queue-type") == "quorum"
            if not known or (key == "delivery-limit" and not quorum) or (key == "queue-mode" and quorum):
                continue
            if key in NUMBERS:
                found[argument] = min(found.get(argument, value), value)
            else:
                found.setdefault(argument, value)
    return Effect(found, policy, operator, {key: value for key, value in definition.items() if key in HA})


def check(broker: Replicated) -> None:
    vhost = broker.vhost
    for name, queue in vhost.queues.items():
        assert queue.effect == model(broker, "queues", name, queue.arguments)
        assert (queue.core in broker.configurations.common.lazy) == ("x-queue-mode" in queue.effect.arguments)
        assert queue.core.max_count == queue.effect.arguments.get("x-max-length", (1 << 64) - 1)
    own = {"", "amq.failover"}
    for name, exchange in vhost.exchanges.items():
        wanted = Effect(exchange.arguments) if name in own else model(broker, "exchanges", name, exchange.arguments)
        assert exchange.effect == wanted and exchange.alternate == wanted.arguments.get("alternate-exchange")
    for name in NAMES:
        assert vhost.configuration.is_alternate(name) == any(x.alternate == name for x in vhost.exchanges.values())


def brokers(history: list[Any], work: int) -> Iterator[Replicated]:
    """The primary, and a backup that has followed it, when nothing is left to be done."""
    before, effects.WORK = effects.WORK, work  # type: ignore[misc]
    try:
        primary = Replicated("none")
        for step in history:
            do(primary, *step)
        for broker in (primary, primary.backup()):
            for _ in range(100):
                broker.vhost.configuration.effects.go_on()
            yield broker
    finally:
        effects.WORK = before  # type: ignore[misc]


@settings(deadline=None, max_examples=few(300))
@given(steps, st.sampled_from((1, 60, 10_000)))
def test_each_object_has_what_the_definition_gives_it(history: list[Any], work: int) -> None:
    primary, backup = brokers(history, work)
    check(primary)
    for name, queue in primary.vhost.queues.items():
        assert queue.position == 0 or backup.vhost.queues[name].effect == queue.effect
    for name, exchange in primary.vhost.exchanges.items():
        assert not exchange.replicated or backup.vhost.exchanges[name].effect == exchange.effect


@settings(deadline=None, max_examples=few(150))
@given(steps, st.sampled_from(NAMES[:3]))
def test_what_is_declared_is_replicated_if_the_policy_that_counts_says_so(history: list[Any], name: str) -> None:
    primary, _ = brokers(history, 10_000)
    for target in ("queues", "exchanges"):
        do(primary, "drop", name, target[:-1])
        do(primary, target[:-1], name, {})
        found = (primary.vhost.queues if target == "queues" else primary.vhost.exchanges)[name]
        says = "ha-mode" in best(primary, POLICY, target, name)[1]
        assert (found.level, bool(found.position)) == (("all", True) if says else ("none", False))
