"""What a broker must not forget, as a file: one line of JSON with a checksum, replaced as a whole.

The order of the steps is the point.  The new content goes into a file beside the old one and is synced there; then it
takes the old one's name; then the directory is synced.  Whenever the power fails, the name stands for the whole old or
the whole new content, and after `store` has returned, for the new one.  The checksum is for everything that this does
not cover (a disk that lies about syncing, an editor): a file that is not exactly what was stored is refused, because
a broker that has forgotten its vote could make two primaries.

Pure: `Directory` is the port; `FileDirectory` is the real one.                                   Shell: FileDirectory.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, Final, Protocol

from ha.membership import HaState
from qpidd_py.errors import QpiddError

NAME: Final = "ha-state.json"
TEMPORARY: Final = "ha-state.new"


class StateFileError(QpiddError):
    """The file is there, but it is not what was stored."""


class Directory(Protocol):
    """Files of one directory.  What is not synced may be lost, or be there in part, after a power failure."""

    def read(self, name: str) -> bytes | None:
        """None when there is no such file.  Raises OSError."""
        ...

    def write(self, name: str, octets: bytes) -> None:
        """Make or overwrite a file; not durable yet.  Raises OSError."""
        ...

    def sync(self, name: str) -> None:
        """The content of this file is durable.  Raises OSError."""
        ...

    def rename(self, old: str, new: str) -> None:
        """In one step, over whatever has the new name; not durable yet.  Raises OSError."""
        ...

    def sync_names(self) -> None:
        """The names are durable.  Raises OSError."""
        ...


def encode(state: HaState) -> bytes:
    value = state.to_json()
    return json.dumps({**value, "crc32": _checksum(value)}).encode() + b"\n"


def decode(octets: bytes) -> HaState:
    """Raises StateFileError."""
    try:
        value = json.loads(octets)
        found = value.pop("crc32")
        expected = _checksum(value)
        state = HaState.from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError, QpiddError) as error:
        raise StateFileError(f"not a state of a broker: {error!r}") from error
    if found != expected:
        raise StateFileError(f"checksum {found}, expected {expected}")
    return state


def _checksum(value: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(value, sort_keys=True).encode()):08x}"


def store(directory: Directory, state: HaState) -> None:
    """On disk when this returns.  Raises OSError."""
    directory.write(TEMPORARY, encode(state))
    directory.sync(TEMPORARY)
    directory.rename(TEMPORARY, NAME)
    directory.sync_names()


def stored(directory: Directory) -> HaState | None:
    """None when nothing was ever stored.  Raises OSError and StateFileError."""
    octets = directory.read(NAME)
    return None if octets is None else decode(octets)


class FileDirectory:
    """A directory of the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, octets: bytes) -> None:
        (self.path / name).write_bytes(octets)

    def sync(self, name: str) -> None:
        _sync(self.path / name, os.O_RDWR)

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
