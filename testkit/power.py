"""A power cut for real processes: what they had written and not synced is gone, in any sectors.

`PowerCut.environment` loads `power.c` into a process, which notes what each change has overwritten; `PowerCut.cut`,
after the process was killed, takes back what was not synced, as a disk without power does: of each file any sectors,
one of them torn; of the names all from some moment on.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from random import Random
from struct import Struct
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("power.c")
SECTOR: Final = 512
_RECORD: Final = Struct("<IIQQQQ")


class Kind(IntEnum):
    """As in `power.c`."""

    WRITE = 1
    SYNC = 2
    CREATE = 3
    RENAME = 4
    UNLINK = 5
    NAMES = 6
    SHRINK = 7


class Change(NamedTuple):
    kind: Kind
    inode: int
    offset: int
    length: int
    """Octets that were written, or cut off."""
    size: int
    """Of the file before that."""
    body: bytes
    """Old content, or names."""

    @property
    def names(self) -> list[Path]:
        return [Path(os.fsdecode(name)) for name in self.body.split(b"\0") if name]


def library(directory: Path) -> Path:
    """Compiles it, once for each directory."""
    found = directory / "power.so"
    if not found.exists():
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(found), str(SOURCE), "-ldl"], check=True)
    return found


class PowerCut:
    """The disk below one folder."""

    def __init__(self, library: Path, folder: Path, undo: Path, milliseconds: int = 0, spared: str = "") -> None:
        """`undo`: a folder on the same file system, outside; `milliseconds`: how long a sync takes; `spared`: a folder
        in `folder` of which everything is kept."""
        self._library = library
        self._folder = folder
        self._undo = undo
        self._milliseconds = milliseconds
        self._spared = spared
        undo.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """For a process whose files below the folder may be taken back."""
        return {
            "LD_PRELOAD": str(self._library),
            "POWER_DIR": str(self._folder),
            "POWER_UNDO": str(self._undo),
            "POWER_MS": str(self._milliseconds),
            "POWER_SPARED": self._spared,
        }

    def cut(self, rng: Random) -> int:
        """After the process was killed.  Returns the number of changes that were not synced."""
        contents, names = _unsynced(_changes(self._undo / "log"))
        share = rng.choice((0.0, 0.5, 0.9, 1.0))
        for inode, changes in contents.items():
            _spoil(self._undo / f"i-{inode}", changes, share, rng)
        for change in reversed(names[rng.randint(0, len(names)) :]):
            self._take_back(change)
        for path in self._undo.iterdir():
            path.unlink()
        return sum(map(len, contents.values())) + len(names)

    def _take_back(self, change: Change) -> None:
        """The name is what it was."""
        path, kept = change.names[0], self._undo / f"i-{change.inode}"
        if change.kind is Kind.CREATE:
            path.unlink(missing_ok=True)
        elif change.kind is Kind.UNLINK:
            os.link(kept, path)
        else:
            with contextlib.suppress(FileNotFoundError):  # it was killed before it had renamed it
                change.names[1].rename(path)
            if change.inode and not change.names[1].exists():
                os.link(kept, change.names[1])


def _changes(log: Path) -> Iterator[Change]:
    data, at = log.read_bytes() if log.exists() else b"", 0
    while at + _RECORD.size <= len(data):
        kind, octets, *fields = _RECORD.unpack_from(data, at)
        at += _RECORD.size + octets
        if at <= len(data):
            yield Change(Kind(kind), *fields, data[at - octets : at])


def _unsynced(changes: Iterator[Change]) -> tuple[dict[int, list[Change]], list[Change]]:
    """Of files, by inode, and of names, in their order."""
    contents: dict[int, list[Change]] = {}
    names: list[Change] = []
    for change in changes:
        if change.kind in (Kind.WRITE, Kind.SHRINK):
            contents.setdefault(change.inode, []).append(change)
        elif change.kind is Kind.SYNC:
            contents.pop(change.inode, None)
        elif change.kind is Kind.NAMES:
            names = [other for other in names if any(name.parent != change.names[0] for name in other.names)]
        else:
            names.append(change)
    return contents, names


def _spoil(path: Path, changes: list[Change], share: float, rng: Random) -> None:
    """`share` of the sectors that were changed are on the disk."""
    seen = path.read_bytes()
    found = bytearray(seen)
    for change in reversed(changes):
        _put(found, change.offset, change.body)
        del found[change.size :]
    for change in changes:
        if change.kind is Kind.SHRINK:
            if rng.random() < share:
                del found[change.offset :]
            continue
        for at, octets in _sectors(seen, change):
            if rng.random() < share:
                _put(found, at, octets if rng.random() < 0.9 else octets[: rng.randrange(len(octets) + 1)])
    path.write_bytes(found)


def _sectors(seen: bytes, change: Change) -> Iterator[tuple[int, bytes]]:
    at, end = change.offset, min(change.offset + change.length, len(seen))
    while at < end:
        following = min(end, at - at % SECTOR + SECTOR)
        yield at, seen[at:following]
        at = following


def _put(content: bytearray, at: int, octets: bytes) -> None:
    if octets:
        content.extend(bytes(max(0, at - len(content))))
        content[at : at + len(octets)] = octets
