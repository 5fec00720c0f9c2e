"""Which test files are compiled before the workers start."""

import os
import sys
from pathlib import Path

from tests.support.compiled import shares, stale


def test_what_is_new_or_changed_is_compiled(tmp_path: Path) -> None:
    kept = tmp_path / "a" / "__pycache__"
    kept.mkdir(parents=True)
    for name, compiled in (("test_new", 0), ("test_changed", 1), ("test_same", 3)):
        (tmp_path / "a" / f"{name}.py").touch()
        os.utime(tmp_path / "a" / f"{name}.py", (2, 2))
        if compiled:
            cached = kept / f"{name}.{sys.implementation.cache_tag}-pytest-9.0.pyc"
            cached.touch()
            os.utime(cached, (compiled, compiled))
    assert [file.stem for file in stale(tmp_path)] == ["test_changed", "test_new"]


def test_parts_are_about_the_same_size(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"test_{number}.py").write_bytes(b"x" * number)
    assert [[file.stem for file in part] for part in shares(tmp_path.iterdir(), 2)] == [
        ["test_4", "test_2", "test_0"],
        ["test_3", "test_1"],
    ]
    assert shares([], 2) == []
