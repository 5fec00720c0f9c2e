"""Large blocks of memory, while a journal is read.                                                               Shell.

glibc gives a freed block of more than 32 MiB back to the system, so each segment that is read would touch fresh memory:
half of the processor time of reading a journal.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_READING: Final = 1 << 30
_USUAL: Final = 4 << 20
"""glibc comes to such a threshold by itself when blocks of this size were freed."""


@contextmanager
def freed_blocks_used_again() -> Iterator[None]:
    """Afterwards what is free goes back to the system.  Without glibc it does nothing."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    _keep(library, _READING)
    try:
        yield
    finally:
        _keep(library, _USUAL)
        library.malloc_trim(0)


def _keep(library: ctypes.CDLL, octets: int) -> None:
    library.mallopt(_MMAP_THRESHOLD, octets)
    library.mallopt(_TRIM_THRESHOLD, 2 * octets if octets < _READING else octets)
