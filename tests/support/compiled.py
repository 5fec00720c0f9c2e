"""Compiles the test files that have changed, once and on all processors: `python -m tests.support.compiled`.

pytest rewrites the asserts of a test file when it imports it, and keeps the result.  From a new checkout each worker of
pytest-xdist would rewrite all of them at the same time: 15 s of processor time for each worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def stale(folder: Path) -> list[Path]:
    """The test files below it of which there is no compiled form that is newer."""
    return [file for file in sorted(folder.rglob("test_*.py")) if not _compiled(file)]


def shares(files: Iterable[Path], number: int) -> list[list[Path]]:
    """`files` in so many parts of about the same size; none is empty."""
    dealt = sorted(files, key=lambda file: file.stat().st_size, reverse=True)
    return [part for start in range(number) if (part := dealt[start::number])]


def _compiled(file: Path) -> bool:
    kept = (file.parent / "__pycache__").glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
    return any(each.stat().st_mtime >= file.stat().st_mtime for each in kept)


def main() -> None:
    """What goes wrong here is said by the run of the tests that follows."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    parts = shares(stale(ROOT / "tests"), os.cpu_count() or 1)
    begun = [subprocess.Popen([*command, *map(str, part)], cwd=ROOT, stdout=subprocess.DEVNULL) for part in parts]
    for process in begun:
        process.wait()


if __name__ == "__main__":
    main()
