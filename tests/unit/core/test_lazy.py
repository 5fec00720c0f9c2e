"""Lazy queues: their messages leave memory as soon as they can, those of others stay, and each comes back."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Engine, Lazy, Queue
from tests.support.memory import MemoryClient, deliveries
from tests.support.paged import ALL, MemoryPages

SEGMENT = 8192
EACH = 7
"""Messages of 1,000 octets in a segment."""


class Site:
    """Two queues, of which `a` is lazy."""

    def __init__(self, replicated: bool = True, levels: int = 0) -> None:
        self.engine = Engine(segment_size=SEGMENT)
        self.queues = {
            name: self.engine.create_queue(number, name, replicated) for number, name in ((1, "a"), (2, "b"))
        }
        if levels:
            self.queues["a"].add_levels(levels)
        self.client = MemoryClient(self.engine, **self.queues)
        self.pages = MemoryPages(self.engine)
        self.lazy = Lazy(self.pages.paging)
        self.known: dict[Queue, int] = dict.fromkeys(self.queues["a"].levels or [self.queues["a"]], 0)
        self.places = count(1000)
        self.published = count()

    def publish(self, names: str, **properties: int) -> None:
        for name in names:
            self.client.publish(b"%s%08d" % (name.encode(), next(self.published)) + b"x" * 991, name, **properties)
            self.engine.end_turn()

    def out(self, octets: int = ALL) -> int:
        """How many segments are written."""
        pages = self.lazy.leave(self.known, octets)
        for page in pages:
            page.place = (next(self.places),)
            page.checksum()
            self.pages.octets[page.place] = bytearray(page)
            self.pages.paging.left(page)
        return len(pages)

    def taken(self, name: str) -> list[bytes]:
        self.client.channel.consume(self.queues[name], name, False, 0)
        found = [body[:9] for _, body, _ in deliveries(self.client.turn())]
        while self.pages.arrive():
            found += [body[:9] for _, body, _ in deliveries(self.client.turn())]
        return found


@pytest.mark.parametrize("replicated", [True, False])
def test_all_but_the_open_segment_leaves_and_comes_back(replicated: bool) -> None:
    site = Site(replicated)
    site.publish("a" * 10 * EACH)
    assert site.out() == 9 and site.out() == 0
    assert site.engine.pool.allocated == 2 * SEGMENT, "that of each log"
    site.publish("a" * EACH)
    assert site.out() == 1
    assert site.taken("a") == [b"a%08d" % number for number in range(11 * EACH)]


def test_what_is_mostly_of_others_stays() -> None:
    site = Site()
    site.publish("bbbbbab" * 4)
    assert site.out() == 0
    site.publish("aaaaaba" * 4 + "b")
    assert site.out() == 4 and site.out() == 0
    assert not site.lazy.leave({}, ALL)
    assert site.queues["b"].ready == 4 * 6 + 5 and len(site.taken("b")) == 4 * 6 + 5


def test_what_a_link_still_reads_stays_until_it_has_gone_out() -> None:
    site = Site()
    batches: list[Batch] = []
    site.engine.on_batch = batches.append
    site.publish("a" * 3 * EACH)
    assert site.out() == 0
    batches.clear()
    assert site.out() == 2


def test_what_has_come_back_for_a_consumer_stays() -> None:
    site = Site()
    site.publish("a" * 5 * EACH)
    assert site.out() == 4
    assert len(site.taken("a")) == 5 * EACH
    assert site.out() == 0 and not site.engine.pool.paged


def test_so_much_at_a_time_and_the_rest_with_the_next_steps() -> None:
    site = Site()
    site.publish("a" * 9 * EACH)
    assert [site.out(2 * SEGMENT) for _ in range(5)] == [2, 2, 2, 2, 0]


def test_each_level_of_a_queue_with_priorities() -> None:
    site = Site(levels=3)
    for priority in (0, 2) * (3 * EACH):
        site.publish("a", priority=priority)
    assert site.out() >= 4
    assert len(site.taken("a")) == 6 * EACH


def test_nothing_is_kept_of_segments_that_are_dead() -> None:
    """A reference would keep their memory."""
    site = Site()
    batches: list[Batch] = []
    site.engine.on_batch = batches.append
    site.publish("a" * 5 * EACH)
    assert site.out() == 0
    site.engine.purge(site.queues["a"])
    batches.clear()
    site.engine.end_turn()
    batches.clear()
    assert site.out() == 0
    assert site.engine.pool.allocated <= 2 * SEGMENT


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_message_comes_once_and_in_order(seed: int) -> None:
    rng, site = Random(seed), Site(bool(seed % 2))
    site.engine.pool.sparse = 1
    for name in "ab":
        site.client.channel.consume(site.queues[name], name, False, 3)
    found: dict[str, list[int]] = {"a": [], "b": []}
    wanted: dict[str, list[int]] = {"a": [], "b": []}

    def collect() -> None:
        for tag, body, _ in deliveries(site.client.turn()):
            found[body[:1].decode()].append(int(body[1:9]))
            if rng.random() < 0.9:
                site.client.send(Basic.Ack(tag))

    for _ in range(300):
        what = rng.randrange(6)
        if what < 2:
            name, number = rng.choice("aab"), next(site.published)
            wanted[name].append(number)
            site.client.publish(b"%s%08d" % (name.encode(), number) + b"x" * rng.choice((1, 500, 991, 3000)), name)
        elif what == 2:
            site.out(rng.choice((1, ALL)))
        elif what == 3:
            site.pages.at_random(rng)
        elif what == 4:
            site.engine.tick()
        collect()
    for _ in range(2000):
        site.pages.arrive()
        collect()
        site.client.send(Basic.Ack(0, True))
    assert found == wanted
    for queue in site.queues.values():
        queue.check()
