"""The free space of the journal's disk, and when publishers wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qpidd_py.option_values import Amount
from qpidd_py.store.disk import Folder
from qpidd_py.store.space import SpaceWatch

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("limit", "size", "low"),
    [
        (Amount(octets=100 * MIB), GIB, 100 * MIB),
        (Amount(percent=5), 1000 * MIB, 50 * MIB),
        (Amount(percent=5), 1000 * GIB, GIB),
        (Amount(octets=2 * GIB), 1000 * GIB, 2 * GIB),
    ],
)
def test_publishers_wait_below_the_limit_and_go_on_a_tenth_above_it(limit: Amount, size: int, low: int) -> None:
    watch = SpaceWatch(limit)
    relief = low + low // 10
    steps = [(low, False), (low - 1, True), (low, True), (relief - 1, True), (relief + 1, False), (low, False)]
    waits = False
    for free, expected in steps:
        assert watch.look(free, size) is (expected != waits)
        waits = expected
        assert bool(watch.reason) is waits
        assert not waits or f"less than {low >> 20} MiB (disk-free-limit)" in watch.reason


def test_without_a_limit_they_never_wait() -> None:
    assert not SpaceWatch(Amount()).look(0, GIB)


def test_segments_that_are_kept_for_reuse_are_space(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "journal")
    found = os.statvfs(tmp_path)
    free, size = folder.space()
    assert size == found.f_blocks * found.f_frsize and 0 < free <= size
    (tmp_path / "journal" / "spare-7").write_bytes(b"x" * 5000)
    (tmp_path / "journal" / "other").write_bytes(b"x" * 5000)
    spare = folder.space()[0] - os.statvfs(tmp_path).f_bavail * found.f_frsize
    assert abs(spare - 5000) <= 64 * MIB
