"""Free space on the disk of the journal: publishers wait before it is full.  Pure.

    enough ──less than the limit──▶ low: publishers wait ──RELIEF times the limit──▶ enough

What is consumed meanwhile gives segments back.  If something else fills the disk, the reserve of the journal is left
(`disk.py`), and publishers wait as before.
"""

from __future__ import annotations

from typing import Final

from qpidd_py.option_values import Amount

RELIEF: Final = 1.1
MOST: Final = 1 << 30
"""The limit in octets that a percentage gives at most."""


def least_free(limit: Amount, size: int) -> int:
    """Octets that `limit` (disk-free-limit) keeps free on a file system of `size` octets."""
    return min(limit.of(size), MOST) if limit.percent else limit.octets


class SpaceWatch:
    """Whether space is low."""

    def __init__(self, limit: Amount) -> None:
        """`limit`: disk-free-limit; a percentage is of the file system, and at most `MOST`."""
        self._limit = limit
        self.reason = ""
        """Why publishers wait; empty if there is enough."""

    def look(self, free: int, size: int) -> bool:
        """True if `reason` has changed between empty and not; `free` and `size` in octets."""
        limit = least_free(self._limit, size)
        low = free < limit * (RELIEF if self.reason else 1)
        changed = low != bool(self.reason)
        if changed:
            text = f"{free >> 20} MiB are free for the journal, less than {limit >> 20} MiB (disk-free-limit)"
            self.reason = f"disk: {text}" if low else ""
        return changed
