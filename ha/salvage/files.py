"""Salvage files on disk: write, list, read, mark what was restored, discard.                                    Shell.

    DATA_DIR/salvage/20261121T070526Z-3.jsonl             a header, one line for each message, an end (`selection.py`)
    DATA_DIR/salvage/20261121T070526Z-3.jsonl.restored    numbers of messages: tried, restored, refused

Lines are synced before the messages are dropped.  A file without its end line was cut off by a crash: its lines are
valid, and `list` and `show` report that it is not finished.  A line that cannot be read is skipped.

A message is marked *tried* before it is sent to the primary and *restored* when the primary has confirmed it.  If the
broker dies in between, a message that is only tried may or may not be at the primary.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple

from ha.model.environment import SalvageFile
from ha.model.salvaged import Header, Record
from ha.salvage.lines import (
    SalvageError,
    decode_header,
    decode_record,
    encode_end,
    encode_header,
    encode_record,
    file_name,
    is_end,
)
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import LinkError

log = logging.getLogger("ha")

_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]+(-[0-9]+)?\.jsonl")
_MARKS: Final = ".restored"


TIME: Final = "%Y%m%dT%H%M%SZ"
"""UTC."""


@dataclass(frozen=True)
class Summary:
    """What `list` shows of one file, without reading its messages."""

    file: str
    time: str
    header: Header
    found: int
    """Messages in the file."""
    complete: bool
    octets: int
    """Size of the file."""
    restored: int


@dataclass
class Marks:
    """Outcomes of the messages of one file, by number (from 1)."""

    restored: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)
    """Sent to a primary, with no answer recorded."""

    def apply(self, what: str, numbers: object) -> None:
        """Raises ValueError for what are no numbers of messages."""
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise ValueError(f"not numbers of messages: {numbers!r:.80}")
        if what == "tried":
            self.tried.update(numbers)
            return
        self.tried.difference_update(numbers)
        if what == "restored":
            self.restored.update(numbers)


class WrittenSalvage:
    """`environment.SalvageFile`."""

    def __init__(self, path: Path, file: IO[bytes], room: int, limit: int) -> None:
        """`room`: octets that may still be written."""
        self._path, self._file, self._room, self._limit = path, file, room, limit
        self._messages = 0

    @property
    def name(self) -> str:
        return self._path.name

    def add(self, records: Sequence[Record]) -> None:
        self._messages += len(records)
        self.write(b"".join(map(encode_record, records)))

    def finish(self) -> None:
        self.write(encode_end(self._messages))
        try:
            self._file.close()
        except OSError as error:
            raise LinkError(f"{self._path}: {error}") from error

    def cancel(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()  # flushes the rest, so it fails again on a full disk
        with contextlib.suppress(OSError):
            self._path.unlink()

    def write(self, octets: bytes) -> None:
        """Append `octets`; they are on disk when this returns.  Raises LinkError."""
        self._room -= len(octets)
        if self._room < 0:
            raise LinkError(f"ha-salvage-limit of {self._limit} octets is reached; restore and discard salvage files")
        try:
            self._file.write(octets)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise LinkError(f"{self._path}: {error}") from error


class NoSalvage:
    """`environment.SalvageFile` of a broker with ha-salvage-limit 0; the caller logs what is lost."""

    name = ""

    def add(self, records: Sequence[Record]) -> None:
        pass

    def finish(self) -> None:
        pass

    def cancel(self) -> None:
        pass


class Place(NamedTuple):
    """Behind that many lines of a file; its octets, 0 at the beginning."""

    number: int = 0
    octets: int = 0


class SalvageFiles:
    """The directory."""

    def __init__(self, directory: Path | None, limit: int, clock: Callable[[], float] = time.time) -> None:
        """`limit`: octets of all files together, 0 = keep none.  `clock`: seconds since 1970."""
        self._directory = directory
        self.limit = limit if directory is not None else 0
        self._clock = clock

    # ---- writing --------------------------------------------------------------------------------------------------

    def begin(self, header: Header) -> SalvageFile:
        """Raises LinkError when the disk does not take it."""
        if self._directory is None or not self.limit:
            return NoSalvage()
        try:
            path, file = self._create(self._directory, header)
            room = self.limit - self._used()
        except OSError as error:
            raise LinkError(f"{self._directory}: {error}") from error
        salvage = WrittenSalvage(path, file, room, self.limit)
        try:
            salvage.write(encode_header(header, path.name.partition("-")[0]))
        except LinkError:
            salvage.cancel()
            raise
        return salvage

    def _create(self, directory: Path, header: Header) -> tuple[Path, IO[bytes]]:
        directory.mkdir(parents=True, exist_ok=True)
        now, number = time.strftime(TIME, time.gmtime(self._clock())), 1
        while (directory / file_name(now, header.epoch, number)).exists():
            number += 1
        path = directory / file_name(now, header.epoch, number)
        file = create(path)
        sync_directory(directory)
        return path, file

    def _used(self) -> int:
        assert self._directory is not None
        return sum(path.stat().st_size for path in self._directory.iterdir())

    # ---- reading --------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Oldest first."""
        if self._directory is None or not self._directory.is_dir():
            return []
        return sorted(path.name for path in self._directory.iterdir() if _NAME.fullmatch(path.name))

    def summary(self, name: str) -> Summary:
        """Raises SalvageError and OSError."""
        path = self._path(name)
        lines, last = 0, b""
        with path.open("rb") as file:
            header, moment = decode_header(file.readline())
            for line in file:
                lines, last = lines + 1, line
        complete = is_end(last)
        torn = not complete and bool(last) and not is_record(last)
        found, restored = lines - complete - torn, len(self.marks(name).restored)
        return Summary(name, moment, header, found, complete, path.stat().st_size, restored)

    def records(self, name: str) -> Iterator[tuple[int, Record]]:
        """(number, message), from 1; a line that cannot be read is left out.  Raises SalvageError and OSError."""
        with self._path(name).open("rb") as file:
            decode_header(file.readline())
            for number, line in enumerate(file, 1):
                if is_end(line):
                    return
                try:
                    yield number, decode_record(line)
                except SalvageError as error:
                    log.warning("salvage file %s, message %d cannot be read: %s", name, number, error)

    def page(self, name: str, place: Place, limit: int) -> tuple[list[tuple[int, Record]], Place]:
        """At most so many messages from there on, and where the next page begins.  Raises SalvageError and OSError."""
        found: list[tuple[int, Record]] = []
        number, octets = place
        with self._path(name).open("rb") as file:
            if not octets:
                header = file.readline()
                decode_header(header)
                octets = len(header)
            file.seek(octets)
            while len(found) < limit and (line := file.readline()) and not is_end(line):
                number, octets = number + 1, octets + len(line)
                with contextlib.suppress(SalvageError):  # `summary` counts it, and `records` logs it
                    found.append((number, decode_record(line)))
        return found, Place(number, octets)

    def size(self, name: str) -> int:
        """Octets.  Raises SalvageError and OSError."""
        return self._path(name).stat().st_size

    def time(self, name: str) -> int:
        """When the file was written, in seconds since 1970.  Raises SalvageError and OSError."""
        with self._path(name).open("rb") as file:
            moment = decode_header(file.readline())[1]
        try:
            return calendar.timegm(time.strptime(moment, TIME))
        except ValueError as error:
            raise SalvageError(f"{name}: time: found {moment[:64]!r}, expected YYYYMMDDTHHMMSSZ") from error

    def marks(self, name: str) -> Marks:
        """Raises SalvageError and OSError."""
        marks, path = Marks(), self._marks_path(name)
        if not path.exists():
            return marks
        for line in path.read_bytes().splitlines():
            # If the last line is torn, its messages count as tried, which is safe.
            with contextlib.suppress(ValueError):
                for what, numbers in read_object(line).items():
                    marks.apply(what, numbers)
        return marks

    # ---- marking and discarding -----------------------------------------------------------------------------------

    def mark(self, name: str, what: str, numbers: Sequence[int]) -> None:
        """`what`: tried, restored or refused; on disk when it returns.  Raises SalvageError and OSError."""
        with self._marks_path(name).open("ab") as file:
            # Start on a new line: the last one may have been cut off by a full disk.
            file.write(b"\n" + json.dumps({what: list(numbers)}, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def discard(self, name: str) -> None:
        """Raises SalvageError and OSError."""
        marks = self._marks_path(name)
        self._path(name).unlink()
        marks.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        """Raises SalvageError for any other name than a salvage file's: names come from users."""
        if self._directory is None or not _NAME.fullmatch(name) or not (self._directory / name).exists():
            raise SalvageError(f"no salvage file {name!r}")
        return self._directory / name

    def _marks_path(self, name: str) -> Path:
        return self._path(name).with_name(name + _MARKS)


def is_record(line: bytes) -> bool:
    try:
        return bool(decode_record(line))
    except SalvageError:
        return False


def create(path: Path) -> IO[bytes]:
    """A new file."""
    return path.open("xb")


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
