"""`journal-sync`: what was written counts before it is on disk, and what a power cut costs then."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qpidd_py.option_values import SyncEvery, sync_every
from qpidd_py.store.disk import Folder
from qpidd_py.store.recovery import scan
from qpidd_py.store.thread import JournalThread
from qpidd_py.store.writer import JournalEnd, Roll, Writer
from tests.support.memory_disk import MemoryDisk
from tests.support.wait import wait_for
from tests.unit.store.test_recovery import SIZE, frame


def writer_on(disk: MemoryDisk) -> Writer:
    writer = Writer(disk, JournalEnd())
    assert writer.commit([Roll(1, SIZE), frame(1)]) == 1
    return writer


def test_what_was_handed_over_outlives_the_process() -> None:
    writer = writer_on(disk := MemoryDisk())
    assert writer.commit([frame(2), frame(3)], sync=False) == 3
    assert writer.unsynced and writer.durable == 1
    disk.kill()
    assert scan(disk).end.number == 3


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_takes_the_end_and_damages_nothing(seed: int) -> None:
    """What was never said to be on disk is a torn end, not rot: `scan` would raise."""
    writer = writer_on(disk := MemoryDisk())
    writer.commit([frame(2)], sync=False)
    writer.sync()
    assert not writer.unsynced and writer.durable == 2
    for number in range(3, 9):
        writer.commit([frame(number)], sync=False)
    disk.power_cut(random.Random(seed))
    assert 2 <= scan(disk).end.number <= 8


def test_the_next_segment_begins_when_the_last_one_is_on_disk() -> None:
    writer = writer_on(disk := MemoryDisk())
    writer.commit([frame(2), Roll(2, SIZE), frame(3)], sync=False)
    assert writer.durable == 2
    disk.power_cut(random.Random(0))
    assert scan(disk).end.number >= 2


@pytest.mark.parametrize(
    ("value", "seconds"), [("batch", 0.0), ("interval:100", 0.1), ("interval:1", 0.001), ("os", float("inf"))]
)
def test_the_option_is_shown_as_it_is_written(value: str, seconds: float) -> None:
    assert sync_every(value) == SyncEvery(seconds) and str(sync_every(value)) == value


@pytest.mark.parametrize("value", ["", "never", "interval", "interval:", "interval:0", "interval:1.5", "interval:-1"])
def test_other_words_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="batch, os, or interval: and milliseconds, such as interval:100"):
        sync_every(value)


class Syncs:
    """A thread on a real folder; counts what it says and syncs."""

    def __init__(self, folder: Path, value: str) -> None:
        self.written: list[int] = []
        self.syncs = 0
        self.writer = Writer(Folder(folder), JournalEnd())
        self._sync = self.writer.sync
        self.writer.sync = self._count  # type: ignore[method-assign]
        loop: Any = SimpleNamespace(call_soon_threadsafe=lambda call, *rest: call(*rest))
        told: Any = SimpleNamespace(
            written=self.written.append, full=lambda reason: None, space=lambda *sizes: None, failed=self.written.append
        )
        self.thread = JournalThread(loop, self.writer, lambda: (1, 1), told, sync_every(value))
        self.thread.start()

    def _count(self) -> None:
        self.syncs += self.writer.unsynced or bool(self.writer._buffers)
        self._sync()

    def submit(self, *work: Any) -> None:
        for item in work:
            self.thread.submit(item)
        number = sum(not isinstance(item, Roll) for item in work)
        wait_for(lambda: self.written[-1:] >= [number], 60, lambda: f"written: {self.written}")


def test_an_interval_syncs_soon_and_once(tmp_path: Path) -> None:
    found = Syncs(tmp_path, "interval:300")
    found.submit(Roll(1, SIZE), *(frame(number) for number in range(1, 4)))
    wait_for(lambda: not found.writer.unsynced, 60, "it is synced")
    assert found.writer.durable == 3
    assert found.thread.stop(10)


def test_the_system_syncs_at_the_latest_at_a_clean_end(tmp_path: Path) -> None:
    found = Syncs(tmp_path, "os")
    found.submit(Roll(1, SIZE), frame(1))
    assert found.writer.unsynced and found.syncs == 0
    assert found.thread.stop(10)
    assert not found.writer.unsynced and found.syncs == 1
