"""A journal on real files, for a process that loses its power: says on standard output what is on disk.

`python -m tests.unit.store.power_program FOLDER [MISTAKE]` continues the journal and writes until it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qpidd_py.core import link_frame
from qpidd_py.store.disk import Folder
from qpidd_py.store.layout import Kind
from qpidd_py.store.recovery import HEAD, Frame, frames, scan, settle
from qpidd_py.store.writer import Drop, Roll, Work, Writer

SIZE = 1 << 14
KEPT = 3
"""Segments."""


def body(number: int) -> bytes:
    return b"%d" % number * (1 + number * 7 % 60)


def frame(number: int) -> bytes:
    return link_frame(Kind.BATCH, number, body(number))


def is_right(found: Frame) -> bool:
    return found.kind == Kind.HEAD or (found.position == found.number and found.octets == frame(found.number))


def main() -> None:
    path, mistake = Path(sys.argv[1]), (sys.argv[2:] or [""])[0]
    if mistake:
        MISTAKES[mistake]()
    disk = Folder(path)
    settle(disk)
    found = scan(disk)
    assert all(map(is_right, frames(disk, found)))
    writer, number = Writer(disk, found.end), found.end.number
    generations, used = [segment.generation for segment in found.segments], SIZE
    while True:
        work: list[Work] = []
        for _ in range(1 + number % 5):
            if used >= SIZE:
                generations.append(generations[-1] + 1 if generations else 1)
                work.append(Roll(generations[-1], SIZE))
                used = 0
            number += 1
            work.append(frame(number))
            used += len(frame(number)) + 100
        writer.commit(work)
        print(number, flush=True)
        while len(generations) > KEPT:
            dropped, number = generations.pop(0), number + 1
            writer.commit([link_frame(Kind.HEAD, number, HEAD.pack(dropped, generations[0])), Drop(dropped)])


def _folder_not_synced() -> None:
    Folder._sync_folder = lambda self: None  # type: ignore[method-assign]


def _not_synced() -> None:
    Folder.sync = lambda self, name: None  # type: ignore[method-assign]


def _told_first() -> None:
    """The number is told before the sync."""

    def commit(self: Any, work: Any, sync: bool = True) -> int:
        items = list(work)
        print(self._number + sum(isinstance(item, bytes) for item in items), flush=True)
        return original(self, items, sync)

    original = Writer.commit
    Writer.commit = commit  # type: ignore[method-assign]


MISTAKES: dict[str, Callable[[], None]] = {
    "directory not synced": _folder_not_synced,
    "not synced": _not_synced,
    "told first": _told_first,
}

if __name__ == "__main__":
    main()
