"""What queues with a time to live, limits or priorities cost, next to a plain one."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks import gate
from benchmarks.gate_load import SPECIAL, Client, Load, run
from qpidd_py.amqp.codec import encode_properties
from qpidd_py.amqp.frames import publish_frames
from qpidd_py.core import Engine
from tests.support.slow import mostly_slow
from tests.support.system import needs

MOST = 1.5
"""Times the instructions of a plain queue."""
OCTETS = 200
"""Of memory for a message of 16 octets that waits."""


@pytest.mark.parametrize("load", SPECIAL.values(), ids=SPECIAL)
def test_a_load_leaves_nothing(load: Load) -> None:
    run(load, 300)


@cache
def instructions(load: str) -> float:
    return gate.each(gate.ROOT, load, gate.by_callgrind)


@needs("valgrind")
@pytest.mark.parametrize("load", mostly_slow([*SPECIAL], 0))
def test_instructions(load: str) -> None:
    assert instructions(load) < MOST * instructions("16 octets")


@pytest.mark.parametrize("number", mostly_slow([200_000, 1_000_000], 1))
def test_memory_of_messages_that_wait(number: int) -> None:
    engine = Engine()
    engine.schedule = lambda: None
    engine.on_batch = lambda batch: None
    queue = engine.create_queue(1, "queue", True)
    queue.ttl = 3_600_000
    queue.add_levels(9)
    connection = Client(engine, queue).connection
    properties = encode_properties({"priority": 4, "expiration": "3600000"}, 16)
    published = publish_frames(1, "", "queue", properties, b"x" * 16, 131072, False) * 1000
    for _ in range(number // 1000):
        connection.feed(published)
        engine.end_turn()
        engine.advance_safe(engine.position)
    assert queue.ready == number
    assert engine.pool.allocated + 40 * number < OCTETS * number  # entries of 16 octets, twice that while they grow
