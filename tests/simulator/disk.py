"""A directory that may lose what was not synced: `ha.state_file.Directory` with power failures.

`crash_at` steps from now the process dies in the middle of a write (`Killed`).  Then `settle` decides what is on the
disk: a file that was not synced may be old, new, cut off, or new in some sectors only; names that were not synced may
be the old ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

SECTOR = 32
"""Octets that are written together; small, because the files are."""


class Killed(BaseException):
    """The process dies here.  Not an Exception: nobody may handle it."""


@dataclass(eq=False)
class _File:
    """What a reader sees, and what a power failure leaves."""

    seen: bytes = b""
    durable: bytes = b""


class Disk:
    """Files by name."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self.crash_at = 0
        """The process dies at that step of writing, counted from 1; 0 = it does not."""

    def read(self, name: str) -> bytes | None:
        file = self._names.get(name)
        return None if file is None else file.seen

    def write(self, name: str, octets: bytes) -> None:
        file = self._names.setdefault(name, _File())
        file.seen = octets
        self._step()

    def sync(self, name: str) -> None:
        self._step()
        file = self._names[name]
        file.durable = file.seen

    def rename(self, old: str, new: str) -> None:
        self._names[new] = self._names.pop(old)
        self._step()

    def sync_names(self) -> None:
        self._step()
        self._durable_names = dict(self._names)

    def _step(self) -> None:
        if self.crash_at:
            self.crash_at -= 1
            if not self.crash_at:
                raise Killed

    def settle(self, rng: Random) -> None:
        """The process has died, the host perhaps too: what is left?"""
        self.crash_at = 0
        if self._names != self._durable_names and rng.random() < 0.5:
            self._names = dict(self._durable_names)
        for file in self._names.values():
            if file.seen != file.durable:
                file.seen = _torn(rng, file.durable, file.seen)
            file.durable = file.seen
        self._durable_names = dict(self._names)


def _torn(rng: Random, old: bytes, new: bytes) -> bytes:
    """What may be in a file that was being overwritten."""
    kind = rng.choice(("old", "new", "short", "mixed", "zeros"))
    if kind == "short":
        return new[: rng.randint(0, len(new))]
    if kind in ("old", "new"):
        return old if kind == "old" else new
    filler = old.ljust(len(new), b"\0") if kind == "mixed" else bytes(len(new))
    sectors = range(0, len(new), SECTOR)
    return b"".join((new if rng.random() < 0.5 else filler)[at : at + SECTOR] for at in sectors)[: len(new)]
