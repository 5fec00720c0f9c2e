"""Queues of special kinds under any sequence of what clients do: the core's own check holds after each step, and no
message is with two clients at once.

Messages that come back in any order, while others replace or wait for them, are what this is about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue
from qpidd_py.core.groups import group_by
from qpidd_py.core.values import keep_last_of
from tests.support.memory import MemoryClient, deliveries
from tests.support.slow import few

CLIENTS = 3
KINDS: dict[str, Callable[[Queue], None]] = {
    "plain": lambda queue: None,
    "values": lambda queue: keep_last_of(queue, "key"),
    "groups": lambda queue: group_by(queue, "key"),
}
client, key = st.integers(0, CLIENTS - 1), st.sampled_from("abc-")
steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(key, min_size=1, max_size=6)),
    st.tuples(st.just("consume"), client, st.integers(0, 4)),
    st.tuples(st.just("cancel"), client),
    st.tuples(st.just("settle"), client, st.integers(0, 9), st.sampled_from(("ack", "return", "reject"))),
    st.tuples(st.just("die"), client),
    st.tuples(st.just("purge")),
    st.tuples(st.just("again")),
)


class World:
    def __init__(self, kind: str, limit: int) -> None:
        self.engine = Engine(segment_size=8192)
        self.engine.begin_epoch(1)
        self.queue = self.engine.create_queue(1, "q", True)
        KINDS[kind](self.queue)
        self.grouped = kind == "groups"
        if limit:
            self.queue.max_count = limit
        self.publisher = MemoryClient(self.engine, q=self.queue)
        self.clients = [MemoryClient(self.engine, q=self.queue) for _ in range(CLIENTS)]
        self.held: list[dict[int, bytes]] = [{} for _ in range(CLIENTS)]
        self.published = 0

    def publish(self, keys: list[str]) -> None:
        for each in keys:
            self.published += 1
            headers = {} if each == "-" else {"key": each}
            self.publisher.publish(f"{each}{self.published}".encode(), "q", headers=headers)

    def consume(self, number: int, prefetch: int) -> None:
        self.cancel(number)
        self.clients[number].channel.consume(self.queue, "c", False, prefetch)

    def cancel(self, number: int) -> None:
        self.clients[number].channel.cancel("c")

    def settle(self, number: int, place: int, how: str) -> None:
        held = self.held[number]
        if held:
            tag = sorted(held)[place % len(held)]
            del held[tag]
            method = Basic.Ack(tag) if how == "ack" else Basic.Nack(tag, requeue=how == "return")
            self.clients[number].send(method)

    def die(self, number: int) -> None:
        """What it holds comes back."""
        self.clients[number].connection.close()
        self.clients[number] = MemoryClient(self.engine, q=self.queue)
        self.held[number] = {}

    def purge(self) -> None:
        self.engine.purge(self.queue)

    def again(self) -> None:
        """The role ends and begins again; the clients are gone."""
        for number in range(CLIENTS):
            self.die(number)
        self.engine.flush()
        self.engine.demote()
        self.engine.begin_epoch(self.engine.epoch + 1)

    def look(self) -> None:
        self.publisher.turn()
        for held, each in zip(self.held, self.clients, strict=True):
            held |= {tag: body for tag, body, _ in deliveries(each.turn())}
        self.queue.check()
        bodies = [body for held in self.held for body in held.values()]
        assert len(bodies) == len(set(bodies)) == self.queue.unacked
        if self.grouped:
            groups = [{body[:1] for body in held.values()} - {b"-"} for held in self.held]
            assert not (groups[0] & groups[1] or groups[1] & groups[2] or groups[0] & groups[2])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=few(150), deadline=None)
@given(history=st.lists(steps, max_size=40), limit=st.sampled_from((0, 0, 3)))
def test_any_order_of_what_comes_back(kind: str, history: list[Any], limit: int) -> None:
    world = World(kind, limit)
    for name, *arguments in history:
        partial(getattr(world, name), *arguments)()
        world.look()
