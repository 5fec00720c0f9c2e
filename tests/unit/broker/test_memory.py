"""The memory limit: when publishers wait, and when they go on."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import psutil
import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.broker.memory import CAUSE, RELIEF, RESERVE_CAUSE, RETRY, TRIM, MemoryWatch, ReserveWatch
from qpidd_py.core import Engine
from qpidd_py.server.memory import available, resident
from tests.support.memory import MemoryClient

MIB = 1 << 20
LIMIT = 100 * MIB


class Process:
    """Its resident memory is what the test says."""

    def __init__(self, trims: int = 0) -> None:
        self.broker = Broker("b", engine=Engine(segment_size=MIB))
        self.used = 10 * MIB
        self.measured = 0
        self.trims = trims
        self.watch = MemoryWatch(self.broker, LIMIT, self.resident)

    def resident(self) -> int:
        self.measured += 1
        return self.used

    def waits(self) -> bool:
        found = {CAUSE} == set(self.broker.limits), self.broker.engine.throttled, bool(self.broker.blocked)
        assert len(set(found)) == 1
        return found[0]


def test_publishers_wait_at_the_limit_and_go_on_well_below_it() -> None:
    process = Process()
    relief = int(RELIEF * LIMIT)
    steps = [(LIMIT - 1, False), (LIMIT, True), (LIMIT - 1, True), (relief, True), (relief - 1, False)]
    for number, (used, waits) in enumerate(steps):
        process.used = used
        process.watch.tick(float(number))
        assert process.waits() is waits


def test_memory_is_given_back_to_the_system_at_most_once_a_second_while_publishers_wait() -> None:
    process = Process()
    process.watch.tick(0.0)
    process.used = 2 * LIMIT
    measured = []
    for now in (1.0, 1.25, 1.25 + TRIM, 1.5 + TRIM):
        process.measured = 0
        process.watch.tick(now)
        measured.append(process.measured)
    assert measured == [1, 2, 2, 1]


def test_between_two_measurements_the_core_counts() -> None:
    """A publisher brings more in a quarter of a second than what is left."""
    process = Process()
    process.used = LIMIT - 3 * MIB
    process.watch.tick(0.0)
    engine = process.broker.engine
    queue = engine.create_queue(1, "q", False)
    client = MemoryClient(engine, q=queue)
    published = 0
    while not process.waits():
        client.publish(b"x" * 60000, "q")
        client.turn()
        published += 60000
        assert published < 6 * MIB
    assert published > 2 * MIB


def test_memory_that_is_kept_for_reuse_is_room() -> None:
    process = Process()
    engine = process.broker.engine
    queue = engine.create_queue(1, "q", False)
    client = MemoryClient(engine, q=queue)
    for _ in range(200):
        client.publish(b"x" * 60000, "q")
    client.turn()
    held = engine.pool.held()
    engine.purge(queue)
    engine.end_turn()
    assert engine.pool.held() == held, "its segments are kept"
    process.used = LIMIT - 1
    process.watch.tick(0.0)
    for _ in range(100):
        client.publish(b"x" * 60000, "q")
        client.turn()
    assert not process.waits()
    engine.purge(queue)
    engine.end_turn()
    engine.pool.trim()
    assert engine.pool.held() <= 3 * MIB


def test_other_causes_go_on_when_this_one_ends(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.broker.limit("disk", "the disk is full")
    process.used = LIMIT
    with caplog.at_level(logging.ERROR):
        process.watch.tick(0.0)
    assert "publishers wait" in caplog.text
    assert set(process.broker.limits) == {"disk", CAUSE}
    process.used = 0
    process.watch.tick(1.0)
    assert process.broker.blocked == "the disk is full" and process.broker.engine.throttled
    process.broker.limit("disk", "")
    assert not process.broker.blocked and not process.broker.engine.throttled


# ---- how much there is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "file", "limit"),
    [
        ("0::/a/b", "a/b/memory.max", 500),
        ("0::/a/b", "a/memory.max", 500),
        ("0::/a/b", "a/b/memory.max", "max"),
        ("4:memory:/a", "memory/a/memory.limit_in_bytes", 500),
        ("4:cpu:/a", "cpu/a/memory.limit_in_bytes", "none"),
    ],
)
def test_the_limit_of_a_control_group_counts(tmp_path: Path, line: str, file: str, limit: int | str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("500\n" if limit == "none" else f"{limit}\n")
    of_process = tmp_path / "cgroup"
    of_process.write_text(f"{line}\n")
    expected = limit if isinstance(limit, int) else psutil.virtual_memory().total
    assert available(of_process, tmp_path) == expected
    assert available(tmp_path / "missing", tmp_path) == psutil.virtual_memory().total


def test_the_limit_of_the_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (600 * MIB, 600 * MIB))
    assert available() == 600 * MIB


def test_the_resident_memory_of_this_process() -> None:
    assert abs(resident()() - psutil.Process().memory_info().rss) < 8 * MIB


def test_publishers_wait_while_the_reserve_is_gone() -> None:
    broker = Broker("b")
    given, uses = [True], [3]
    watch = ReserveWatch(broker, lambda: given[0], lambda: uses[0])
    watch.tick(0.0)
    assert not broker.limits
    given[0], uses[0] = False, 4
    watch.tick(1.0)
    assert set(broker.limits) == {RESERVE_CAUSE} and broker.engine.throttled
    watch.tick(1.0 + RETRY)
    assert broker.blocked, "the system gives no more"
    given[0] = True
    watch.tick(1.5 + RETRY)
    assert broker.blocked, "it is not asked all the time"
    watch.tick(1.0 + 2 * RETRY)
    assert not broker.limits and not broker.engine.throttled


def test_a_turn_without_memory_stops_publishers() -> None:
    broker = Broker("b")
    ReserveWatch(broker, lambda: True, lambda: 0)
    assert broker.engine.on_short is not None
    broker.engine.on_short()
    assert broker.blocked
