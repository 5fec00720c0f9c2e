"""Vote and in-sync set on disk, in a file of two slots: each change overwrites the older slot in place.

    slot     one line of JSON with its generation and a checksum over all of it, padded with spaces to SLOT octets
    number   generation % 2; the valid slot with the higher generation is the state

The file is created once: both slots are written under another name, synced, renamed, and the directory is synced.  A
change then needs no space, so a full disk does not stop it (a copy-on-write file system such as btrfs or ZFS may need
some; then the write fails as described below).

A write that fails, or is cut off by a kill or a power failure, leaves its slot in an unknown condition.  The other slot
still holds the state in force, and the next change overwrites the bad slot again, in full: after a failed fsync the
page cache may hold data that the disk does not, and a second fsync alone would succeed without writing it.  For the
same reason `Directory.read` bypasses the cache.

A file with two invalid slots, or of another size, is refused: a broker that forgot its vote could make two primaries.
One limit remains: a slot that was damaged after its sync looks like one whose write was cut off, so the earlier state
is taken.

Pure: `Directory` is the port; `FileDirectory` is the real one.                                   Shell: FileDirectory.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from pathlib import Path
from typing import Any, Final, Protocol

from ha.model.membership import HaState
from ha.model.protocol import need
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import QpiddError

NAME: Final = "ha-state.json"
TEMPORARY: Final = "ha-state.new"
SLOT: Final = 32 << 10
"""Octets; a state of three brokers needs about 700, so more than a hundred brokers fit."""


class StateFileError(QpiddError):
    """The file exists, but does not hold what was stored."""


class Directory(Protocol):
    """Files of one directory.  Data that is not synced may be lost, or be there in part, after a power failure."""

    def read(self, name: str) -> bytes | None:
        """The content as it would be after a power failure; None if there is no such file.  Raises OSError."""
        ...

    def write(self, name: str, octets: bytes) -> None:
        """Make or overwrite a file; not durable yet.  Raises OSError."""
        ...

    def sync(self, name: str) -> None:
        """Make the content of this file durable.  Raises OSError."""
        ...

    def overwrite(self, name: str, at: int, octets: bytes) -> None:
        """Replace the octets from `at` on; durable when it returns.  After an OSError their content is undefined."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing a file of the new name; not durable yet.  Raises OSError."""
        ...

    def sync_names(self) -> None:
        """Make creations and renames durable.  Raises OSError."""
        ...


def encode(state: HaState, generation: int) -> bytes:
    """One slot.  Raises OSError (EFBIG) for a state that does not fit."""
    value = {"generation": generation, **state.to_json()}
    line = json.dumps({**value, "crc32": _checksum(value)}).encode()
    if len(line) >= SLOT:
        raise OSError(errno.EFBIG, f"the state has {len(line)} octets, a slot {SLOT}")
    return line.ljust(SLOT - 1) + b"\n"


def decode(octets: bytes) -> tuple[int, HaState]:
    """Generation and state.  Raises StateFileError."""
    try:
        value = read_object(octets)
        found = value.pop("crc32", "none")
        expected = _checksum(value)
        # The format before slots: one line without a generation.
        generation, state = need({"generation": 0, **value}, "generation", int), HaState.from_json(value)
    except (ValueError, QpiddError) as error:
        raise StateFileError(f"not a state of a broker: {error!s:.200}") from error
    if found != expected:
        raise StateFileError(f"checksum {found}, expected {expected}")
    return generation, state


def _checksum(value: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(value, sort_keys=True).encode()):08x}"


def newest(octets: bytes) -> tuple[int, HaState]:
    """Generation and state of the file.  Raises StateFileError."""
    if len(octets) < SLOT:
        return decode(octets)
    if len(octets) != 2 * SLOT:
        raise StateFileError(f"{len(octets)} octets, expected {2 * SLOT}")
    found, faults = [], []
    for number in (0, 1):
        try:
            generation, state = decode(octets[number * SLOT : (number + 1) * SLOT])
            if generation % 2 != number:
                raise StateFileError(f"generation {generation} belongs into the other one")
            found.append((generation, state))
        except StateFileError as error:
            faults.append(f"slot {number}: {error}")
    if not found:
        raise StateFileError("; ".join(faults))
    return max(found, key=lambda slot: slot[0])


class StateFile:
    """The file of one broker, for one run of its process."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._generation = 0
        """Generation of the state in force; 0: there is no file with slots yet."""

    def __str__(self) -> str:
        return f"{self._directory}/{NAME}"

    def open(self) -> HaState | None:
        """The state stored last; None if none was ever stored.  Raises OSError and StateFileError."""
        octets = self._directory.read(NAME)
        if octets is None:
            return None
        self._generation, state = newest(octets)
        if not self._generation:
            self._create(state)
        return state

    def store(self, state: HaState) -> None:
        """Store `state`; it is on disk when this returns.  After an OSError the earlier state stays in force until a
        later call returns (after a restart it may be either)."""
        if not self._generation:
            self._create(state)
            return
        generation = self._generation + 1
        self._directory.overwrite(NAME, generation % 2 * SLOT, encode(state, generation))
        self._generation = generation

    def _create(self, state: HaState) -> None:
        directory = self._directory
        directory.write(TEMPORARY, encode(state, 2) + encode(state, 1))
        directory.sync(TEMPORARY)
        directory.rename(TEMPORARY, NAME)
        directory.sync_names()
        self._generation = 2


class FileDirectory:
    """A directory of the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes | None:
        try:
            descriptor = os.open(self.path / name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:
            # Write out what a killed process left in the cache, and discard what a failed fsync left there.
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()

    def write(self, name: str, octets: bytes) -> None:
        (self.path / name).write_bytes(octets)

    def sync(self, name: str) -> None:
        _sync(self.path / name, os.O_RDWR)

    def overwrite(self, name: str, at: int, octets: bytes) -> None:
        # Sync by the same descriptor: another one may not get the error of this write.
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while octets:
                written = os.pwrite(descriptor, octets, at)
                octets, at = octets[written:], at + written
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        (self.path / old).replace(self.path / new)

    def sync_names(self) -> None:
        _sync(self.path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
