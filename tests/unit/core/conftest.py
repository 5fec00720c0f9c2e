"""An engine with a queue and a client, driven in memory."""

from __future__ import annotations

import pytest

from qpidd_py.core import Engine, Queue
from tests.support.memory import MemoryClient


@pytest.fixture
def engine() -> Engine:
    return Engine(segment_size=65536)


@pytest.fixture
def queue(engine: Engine) -> Queue:
    return engine.create_queue(1, "a", True)


@pytest.fixture
def client(engine: Engine, queue: Queue) -> MemoryClient:
    return MemoryClient(engine, a=queue)
