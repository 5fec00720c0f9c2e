"""The progress of each load process: a small shared file with one slot each, so that reading does not slow them
down."""

import mmap
import struct
import time
from pathlib import Path
from typing import NamedTuple

_SLOT = struct.Struct("=QQ")  # messages confirmed or acknowledged; time of the last one, µs monotonic


class Progress(NamedTuple):
    done: int
    last: int  # µs, CLOCK_MONOTONIC; 0: none yet


def create(path: Path, slots: int) -> None:
    path.write_bytes(bytes(_SLOT.size * slots))


class Slot:
    """The writing side, of one process."""

    def __init__(self, path: Path, index: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._offset = index * _SLOT.size
        self._count = 0

    def add(self, messages: int = 1) -> None:
        self._count += messages
        _SLOT.pack_into(self._map, self._offset, self._count, time.monotonic_ns() // 1000)


class Board:
    """The reading side, of all."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def read(self, index: int) -> Progress:
        return Progress(*_SLOT.unpack_from(self._map, index * _SLOT.size))
