"""Reading a journal touches fresh memory for one segment, not for each."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys

import pytest

from qpidd_py.store.allocator import freed_blocks_used_again

BLOCK = 40 << 20
PAGES = BLOCK // resource.getpagesize()


def faults() -> int:
    """Page faults of four blocks, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        assert len(b"x" * BLOCK) == BLOCK
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no glibc")
def test_the_memory_of_one_segment_is_used_for_the_next() -> None:
    with freed_blocks_used_again():
        assert faults() < 2 * PAGES


def pages() -> int:
    """Resident ones of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1])


def kept_afterwards() -> int:
    """Pages of a block that are still there when it was freed."""
    with freed_blocks_used_again():
        faults()
    before = pages()
    block = b"x" * BLOCK
    del block
    return pages() - before


def test_afterwards_it_goes_back_to_the_system() -> None:
    """In a process of its own: holes that other tests have left in the heap would take the block, and keep it."""
    code = "from tests.unit.store.test_allocator import kept_afterwards; print(kept_afterwards())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < PAGES // 2
