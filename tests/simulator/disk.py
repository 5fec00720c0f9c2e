"""A directory that may lose what was not synced: `ha.model.state_file.Directory` with power failures.

`crash_at` steps from now the process dies in the middle of a write (`Killed`).  Then `settle` decides what is on the
disk: a file that was not synced may be old, new, cut off, or new in some sectors only; names that were not synced may
be the old ones.

`fault` says what every write does until it is repaired:

    full    nothing is written (ENOSPC)
    io      the first half is written, and lost by the cache (EIO)
    sync    no new file can be synced (EIO)
    names   new names cannot be synced (EIO), and are seen
    fsync   the cache has it all and takes it for written, the disk has nothing (EIO); later syncs do not write it
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from random import Random

SECTOR = 32
"""Octets that are written together; small, because the files are."""


FAULTS = ("full", "io", "fsync")


class Killed(BaseException):
    """The process dies here.  Not an Exception: no caller may handle it."""


@dataclass(eq=False)
class _File:
    """What a reader sees, and what a power failure leaves."""

    seen: bytes = b""
    durable: bytes = b""
    lies: bool = False
    """The cache shows what was not written, and takes it for written."""


class Disk:
    """Files by name."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self.crash_at = 0
        """The process dies at that step of writing, counted from 1; 0 = it does not."""
        self.fault = ""
        """One of FAULTS; empty: none."""

    def read(self, name: str) -> bytes | None:
        file = self._names.get(name)
        if file is not None and (file.lies or self.fault == "fsync"):
            file.seen, file.lies = file.durable, False
        elif file is not None:
            file.durable = file.seen  # a start syncs what the former life had written
        return None if file is None else file.seen

    def durable(self, name: str) -> bytes:
        """What a power failure would leave at least."""
        return self._durable_names[name].durable

    def seen(self, name: str) -> bytes | None:
        """What a reader sees, durable or not."""
        file = self._names.get(name)
        return None if file is None else file.seen

    def overwrite(self, name: str, at: int, octets: bytes) -> None:
        file = self._names[name]
        if self.fault == "full":
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        if self.fault == "io":
            half = octets[: len(octets) // 2]
            file.seen = _placed(file.seen, at, half)
            file.durable = _placed(file.durable, at, half)
            raise OSError(errno.EIO, "the simulated disk fails")
        file.seen = _placed(file.seen, at, octets)
        self._step()
        if self.fault == "fsync":
            file.lies = True
            raise OSError(errno.EIO, "the simulated disk fails to sync")
        self._step()
        file.durable = _placed(file.durable, at, octets)
        self._step()

    def write(self, name: str, octets: bytes) -> None:
        file = self._names.setdefault(name, _File())
        if self.fault in ("full", "io"):
            file.seen = octets[: len(octets) // 2]
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        file.seen = octets
        self._step()

    def sync(self, name: str) -> None:
        self._step()
        file = self._names[name]
        self._fail_to_sync("sync")
        file.durable = file.seen

    def rename(self, old: str, new: str) -> None:
        self._names[new] = self._names.pop(old)
        self._step()

    def sync_names(self) -> None:
        self._step()
        self._fail_to_sync("names")
        self._durable_names = dict(self._names)

    def _fail_to_sync(self, fault: str) -> None:
        if self.fault == fault:
            raise OSError(errno.EIO, "the simulated disk fails to sync")

    def _step(self) -> None:
        if self.crash_at:
            self.crash_at -= 1
            if not self.crash_at:
                raise Killed

    def settle(self, rng: Random, power: bool = True) -> None:
        """The process has died, and the host with it if it has lost its power: what is left?"""
        self.crash_at = 0
        if not power and self._names == self._durable_names and rng.random() < 0.5:
            return  # the cache has survived
        if self._names != self._durable_names and rng.random() < 0.5:
            self._names = dict(self._durable_names)
        for file in self._names.values():
            if file.seen != file.durable:
                file.seen = _torn(rng, file.durable, file.seen)
            file.durable, file.lies = file.seen, False
        self._durable_names = dict(self._names)


def _placed(old: bytes, at: int, new: bytes) -> bytes:
    return old[:at] + new + old[at + len(new) :]


def _torn(rng: Random, old: bytes, new: bytes) -> bytes:
    """What may be in a file that was being written; of one that was overwritten in place nothing else has changed."""
    in_place = len(old) == len(new)
    kind = rng.choice(("old", "new", "mixed", "zeros") if in_place else ("old", "new", "short", "mixed", "zeros"))
    if kind == "short":
        return new[: rng.randint(0, len(new))]
    if kind in ("old", "new"):
        return old if kind == "old" else new
    filler = old.ljust(len(new), b"\0") if kind == "mixed" else bytes(len(new))
    found = bytearray(new)
    for at in range(0, len(new), SECTOR):
        sector = slice(at, at + SECTOR)
        if old[sector] != new[sector] and rng.random() < 0.5:
            found[sector] = filler[sector]
    return bytes(found[: len(new)])
