"""Detects which brokers of one machine are gone: each holds a lock that ends with its process.                   Shell.

The lock is on a file named by the broker's identity, which contains the machine's boot id.  Only locks of this boot are
evidence: on a disk that machines share, the locks of a machine that is cut off are released although its brokers live.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class Living:
    """Our own lock, held until our process ends, and the state of the others' locks."""

    def __init__(self, registry: Path, id: str, boot: Path = BOOT) -> None:
        """`registry`: the locks are in a folder next to this file.  Raises OSError."""
        self._folder = folder = registry.with_name(registry.name + ".alive")
        self._boot = boot.read_bytes()
        folder.mkdir(exist_ok=True)
        self._descriptor = os.open(folder / id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        # A shared lock, since a copy of our data directory has our identity: the id is gone when both processes are.
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        os.pwrite(self._descriptor, self._boot, 0)

    def close(self) -> None:
        """Our process is about to end."""
        os.close(self._descriptor)

    def gone(self, ids: Iterable[str]) -> frozenset[str]:
        """The ids of brokers that have certainly ended."""
        return frozenset(id for id in ids if self._is_gone(id))

    def _is_gone(self, id: str) -> bool:
        try:
            descriptor = os.open(self._folder / id, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.pread(descriptor, len(self._boot), 0) == self._boot
        except OSError:
            return False
        finally:
            os.close(descriptor)
