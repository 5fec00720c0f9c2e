"""Writes event lines to one file or to a directory of segments.  A failing disk loses events and never disturbs the
client.  Shell.

Lines are buffered and written with one system call per flush, so several processes may append to one file (O_APPEND,
whole lines).  Lines that cannot be written are kept, up to BACKLOG_MAX octets, and tried again at the next flush; lines
beyond that are dropped and counted.  Their numbers (`seq`) are then missing in the file, so a reader sees the loss.  No
call raises for a disk error; each period of errors causes one warning.
"""

from __future__ import annotations

import logging
import os
import re
import time
from pathlib import Path

LOGGER = logging.getLogger("client_lib")
SEGMENT_BYTES = 64 << 20
BACKLOG_MAX = 1 << 20
LOOK_SECONDS = 1.0
"""Seconds between two checks whether the file was renamed, for example by logrotate; then a new file is opened."""

Target = str | Path


def open_sink(target: Target, name: str) -> Sink:
    """An existing directory, or a new name without a suffix: segments that are called `name`.  Else one file."""
    path = Path(target)
    return Segments(path, name) if path.is_dir() or not (path.exists() or path.suffix) else AppendedFile(path)


class Sink:
    """Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped = 0  # lines
        self._buffer = bytearray()
        self._fd = -1
        self._torn = False  # the file ends in the middle of a line whose rest begins the buffer
        self._failing = False

    def add(self, line: bytes) -> None:
        """`line` ends with a newline and is written by a later flush."""
        if len(self._buffer) + len(line) > BACKLOG_MAX:
            self.flush()
        if len(self._buffer) + len(line) > BACKLOG_MAX:
            self.dropped += 1
        else:
            self._buffer += line

    def flush(self) -> None:
        if not self._buffer:
            return
        try:
            self._write()
        except OSError as error:
            if not self._failing:
                LOGGER.warning("events cannot be written to %s: %s", self.path, error)
            self._failing = True
        else:
            if self._failing:
                LOGGER.warning("events are written to %s again; %d lines were dropped", self.path, self.dropped)
            self._failing = False

    def close(self) -> None:
        """Lines that cannot be written now are lost."""
        self.flush()
        self.dropped += self._buffer.count(b"\n")
        self._buffer.clear()
        self._end()

    def _write(self) -> None:
        if not self._torn:
            self._choose_file()
        while self._buffer:
            count = os.write(self._fd, self._buffer)
            self._torn = not self._buffer.endswith(b"\n", 0, count)
            del self._buffer[:count]
            self._written(count)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _end(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _choose_file(self) -> None:
        """Opens the file for the next line, if it is not open."""
        raise NotImplementedError

    def _written(self, count: int) -> None:
        pass


class AppendedFile(Sink):
    """One file, shared by any number of processes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._looked = 0.0

    def _choose_file(self) -> None:
        now = time.monotonic()
        if self._fd >= 0 and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if not self._is_ours():
                self._end()
        if self._fd < 0:
            self._open()

    def _is_ours(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except FileNotFoundError:
            return False


class Segments(Sink):
    """DIRECTORY/NAME-NNNN.jsonl, with the suffix `.open` until it is complete: a new one after SEGMENT_BYTES."""

    def __init__(self, directory: Path, name: str) -> None:
        self._stem = directory / re.sub(r"[^A-Za-z0-9.-]+", "_", name)
        self._number = 1
        self._size = 0
        super().__init__(self._next())

    def _next(self) -> Path:
        return Path(f"{self._stem}-{self._number:04d}.jsonl.open")

    def _choose_file(self) -> None:
        if self._size >= SEGMENT_BYTES:
            self._end()
            self._number, self._size = self._number + 1, 0
            self.path = self._next()
        if self._fd < 0:
            self._open()

    def _written(self, count: int) -> None:
        self._size += count

    def _end(self) -> None:
        if self._fd < 0:
            return
        super()._end()
        try:
            self.path.rename(self.path.with_suffix(""))
        except OSError as error:
            LOGGER.warning("%s keeps its name: %s", self.path, error)
