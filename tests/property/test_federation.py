"""Random brokers with random routes that follow bindings, on a model: what is published reaches each queue that wants
it once, whatever came and went before, and goes around in no circle."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidd_py.shovel.federation import Bindings, Bound, Path, Terms, Verdict, Ways

KEYS = (b"a", b"b")


class Node:
    """A broker with one direct exchange."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.world = name, world
        self.bindings = Bindings()
        self.ways = Ways(name, lambda: world.now)
        self.queues: dict[str, set[bytes]] = {}
        self.made: dict[str, set[Bound]] = {}
        self.changed: dict[str, set[Terms]] = {}
        """What our route has bound at each of its sources."""

    def bind(self, queue: str, key: bytes) -> None:
        self.queues.setdefault(queue, set()).add(key)
        self.bindings.add((False, queue), Bound((key, b"")))

    def unbind(self, queue: str, key: bytes) -> None:
        self.queues.get(queue, set()).discard(key)
        self.bindings.remove((False, queue), Bound((key, b"")))

    def follow(self, source: Node) -> bool:
        """One look of the route from this source: whether something has changed."""
        made, here = self.made.setdefault(source.name, set()), (False, f"route to {self.name}")
        if source.name not in self.changed:
            self.changed[source.name] = self.bindings.watch()
        terms, was = set(self.changed[source.name]), set(made)
        self.changed[source.name].clear()
        wanted = {Bound(each, path) for each in terms for path in self.bindings.wanted(each, self.name, source.name)}
        for bound in wanted - made:
            source.bindings.add(here, bound)
        for bound in {each for each in made if each.terms in terms} - wanted:
            source.bindings.remove(here, bound)
            made.discard(bound)
        made |= wanted
        assert all(len({*each.path, source.name}) == len(each.path) + 1 for each in made)
        before = self.ways.told(source.name)
        self.ways.hear(source.name, source.name, source.told())
        return was != made or before != self.ways.told(source.name)

    def told(self) -> list[Path]:
        return [path for source in self.world.routes[self.name] for path in self.ways.told(source)]


class World:
    def __init__(self, count: int, edges: set[tuple[int, int]], seed: int) -> None:
        self.now, self.random = 0.0, random.Random(seed)
        self.nodes = {name: Node(name, self) for name in "abcdef"[:count]}
        names = list(self.nodes)
        self.routes: dict[str, list[str]] = {name: [] for name in names}
        for to, source in sorted(edges):
            if to != source and max(to, source) < count:
                self.routes[names[to]].append(names[source])
        self.marked = 0

    def pairs(self) -> list[tuple[Node, Node]]:
        found = [(self.nodes[to], self.nodes[source]) for to, sources in self.routes.items() for source in sources]
        self.random.shuffle(found)
        return found

    def settle(self) -> None:
        for _ in range(40):
            if not sum(to.follow(source) for to, source in self.pairs()):
                return
        raise AssertionError("the bindings do not come to rest")

    def publish(self, at: str, key: bytes) -> Counter[tuple[str, str]]:
        """How often each queue has got it."""
        got: Counter[tuple[str, str]] = Counter()
        waiting: list[tuple[Node, Path]] = [(self.nodes[at], ())]
        for _ in range(10_000):
            if not waiting:
                return got
            here, trace = waiting.pop(self.random.randrange(len(waiting)))
            got.update((here.name, queue) for queue, keys in here.queues.items() if key in keys)
            for to, source in self.pairs():
                if source is here and any(bound.terms[0] == key for bound in to.made.get(here.name, ())):
                    way = (*trace, here.name)
                    verdict = to.ways.judge(here.name, way)
                    self.marked += verdict is Verdict.MARK
                    if verdict is not Verdict.LEAVE:
                        waiting.append((to, way))
        raise AssertionError("it goes around")

    def reaches(self, at: str) -> set[str]:
        found, waiting = {at}, [at]
        while waiting:
            here = waiting.pop()
            fresh = {to for to, sources in self.routes.items() if here in sources} - found
            found |= fresh
            waiting.extend(fresh)
        return found

    def wanted(self, at: str, key: bytes) -> Counter[tuple[str, str]]:
        there = [(name, queue) for name in self.reaches(at) for queue, keys in self.queues(name) if key in keys]
        return Counter(there)

    def queues(self, name: str) -> list[tuple[str, set[bytes]]]:
        return list(self.nodes[name].queues.items())


EDGES = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)
STEPS = st.lists(
    st.tuples(st.sampled_from(("bind", "unbind", "look")), st.integers(0, 5), st.integers(0, 1), st.integers(0, 1)),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(st.integers(2, 6), EDGES, STEPS, st.integers(0, 1 << 30))
def test_each_queue_gets_each_message_once(
    count: int, edges: set[tuple[int, int]], steps: list[tuple[str, int, int, int]], seed: int
) -> None:
    world = World(count, edges, seed)
    world.settle()
    world.now = 1000.0
    for what, number, queue, key in steps:
        node = world.nodes["abcdef"[number % count]]
        if what == "look":
            for to, source in world.pairs()[:2]:
                to.follow(source)
        else:
            (node.bind if what == "bind" else node.unbind)(f"q{queue}", KEYS[key])
        got = world.publish(node.name, KEYS[key])
        assert not got or max(got.values()) == 1, "while bindings are on their way, too"
    world.settle()
    for at in world.nodes:
        for wanted in KEYS:
            assert world.publish(at, wanted) == world.wanted(at, wanted)
    assert not world.marked


def test_nothing_keeps_itself_when_the_last_queue_has_gone() -> None:
    """In a mesh of five, each with a route from each."""
    world = World(5, {(to, source) for to in range(5) for source in range(5)}, 1)
    for node in world.nodes.values():
        node.bind("q", b"a")
    world.settle()
    for node in world.nodes.values():
        node.unbind("q", b"a")
    world.settle()
    assert not any(node.made[source] for node in world.nodes.values() for source in node.made)


@pytest.mark.parametrize("seed", range(20))
def test_a_route_that_is_added_or_deleted_loses_nothing(seed: int) -> None:
    """A ring of five gets a short cut, and loses it: for a minute what comes twice is marked, then it comes once."""
    ring = {(n, (n + step) % 5) for n in range(5) for step in (1, 4)}
    world = World(5, ring, seed)
    for node in world.nodes.values():
        node.bind("q", b"a")
    world.settle()
    world.now = 1000.0
    world.publish("c", b"a")
    world.routes["a"].append("c")
    world.settle()
    doubtful = world.publish("c", b"a")
    assert all(doubtful[name, "q"] >= 1 for name in world.nodes) and world.marked
    world.now += 61.0
    world.settle()
    assert world.publish("c", b"a") == world.wanted("c", b"a")
    world.routes["a"].remove("c")
    world.nodes["a"].ways.forget("c")
    world.settle()
    assert all(world.publish("c", b"a")[name, "q"] >= 1 for name in world.nodes)
    world.now += 61.0
    world.settle()
    assert world.publish("c", b"a") == world.wanted("c", b"a")
