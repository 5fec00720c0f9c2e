"""Memory that a thread touches before queues that grow need it."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile

import pytest

from qpidd_py.core import Engine
from qpidd_py.core.batch import Pool
from qpidd_py.core.memory import hold_reserve, reserve_uses
from tests.support.memory import MemoryClient
from tests.support.wait import wait_for

MIB = 1 << 20
MOST = 8 * MIB


def threads() -> int:
    gc.collect()  # engines and their connections refer to each other
    return len(os.listdir("/proc/self/task"))


def touched_after(action: Callable[[], None], pool: Pool) -> int:
    """It gives nothing back while the thread is at it."""
    action()
    return pool.touched()


BODY = b"x" * (MIB // 3)
"""Of a message; two of them fill a segment."""


class Growing:
    """A queue that takes one segment for two messages."""

    def __init__(self) -> None:
        self.engine = Engine(segment_size=MIB)
        self.pool = self.engine.pool
        self.pool.look_ahead()
        self.engine.tick()
        self.queue = self.engine.create_queue(1, "q", False)
        self.client = MemoryClient(self.engine, q=self.queue)

    def grow(self, segments: int) -> None:
        for _ in range(2 * segments):
            self.client.publish(BODY, "q")
            self.client.turn()


@pytest.fixture
def growing() -> Growing:
    return Growing()


def test_nothing_is_touched_for_queues_that_do_not_grow(growing: Growing) -> None:
    before = threads()
    growing.grow(1)
    for _ in range(3):
        growing.engine.tick()
    assert threads() == before and growing.pool.touched() == 0


def test_growth_finds_touched_memory_and_none_is_left_when_it_ends(growing: Growing) -> None:
    pool = growing.pool
    growing.grow(20)
    wait_for(lambda: pool.touched() == MOST, what="as much as may be")
    assert pool.held() == pool.allocated + MOST
    allocated = pool.allocated
    growing.grow(1)
    assert pool.allocated == allocated + MIB, "a block that was touched is a segment now"
    growing.engine.tick()
    wait_for(lambda: pool.touched() >= MOST - MIB)
    wait_for(lambda: touched_after(growing.engine.tick, pool) == 0)
    assert {body for *_, body in growing.queue.peek(100)} == {BODY}


def test_what_may_be_kept_bounds_it(growing: Growing) -> None:
    growing.pool.keep = 4 * MIB
    growing.engine.tick()
    growing.grow(20)
    wait_for(lambda: growing.pool.touched() == 2 * MIB)
    growing.pool.keep = MIB
    wait_for(lambda: touched_after(growing.engine.tick, growing.pool) == 0)
    growing.grow(20)
    assert growing.pool.touched() == 0


def test_memory_that_waits_goes_back_when_memory_is_scarce(growing: Growing) -> None:
    growing.grow(20)
    wait_for(lambda: growing.pool.touched() == MOST)
    wait_for(lambda: touched_after(growing.pool.trim, growing.pool) == 0)


def test_its_thread_ends_with_the_engine() -> None:
    growing = Growing()
    before = threads()
    growing.grow(3)
    assert threads() == before + 1
    del growing
    wait_for(lambda: threads() == before)


@contextmanager
def space(octets: int) -> Iterator[None]:
    """The process gets so much more address space, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + octets, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_where_the_system_has_no_memory_ahead_there_is_none_and_nothing_fails(growing: Growing) -> None:
    growing.grow(1)
    with space(6 * MIB):
        growing.grow(3)
        wait_for(lambda: growing.pool.touched() < MOST)
        assert growing.queue.ready == 8
    growing.grow(10)
    wait_for(lambda: growing.pool.touched() == MOST, what="it goes on when there is memory")


def test_while_the_reserve_is_used_up_nothing_is_touched_and_what_waits_goes_back(growing: Growing) -> None:
    assert hold_reserve()
    growing.grow(20)
    wait_for(lambda: growing.pool.touched() == MOST)
    uses = reserve_uses()
    with space(MIB):
        taken = list(takewhile(lambda _: reserve_uses() == uses, (bytes(4 * MIB) for _ in range(1000))))
    try:
        assert reserve_uses() == uses + 1
        taken.clear()
        wait_for(lambda: touched_after(growing.engine.tick, growing.pool) == 0)
        for _ in range(5):
            growing.engine.tick()
            growing.grow(20)
            assert growing.pool.touched() == 0
    finally:
        assert hold_reserve()
    growing.engine.tick()
    growing.grow(20)
    wait_for(lambda: growing.pool.touched() == MOST, what="it goes on when there is a reserve")
