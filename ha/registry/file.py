"""The registry as one file on a disk that all brokers of a cluster share: for the local manager.                Shell.

The file is JSON with a checksum, replaced as a whole and synced, under a lock in a file next to it; so exchanges are
serialised.  A damaged file is an error: an empty registry would allow any promotion.  Which processes have ended is
known for certain (`living.py`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from ha.model.environment import Exchanged
from ha.model.membership import HaState
from ha.model.protocol import need
from ha.model.state_file import Directory, FileDirectory
from ha.registry.worker import RegistryError, Store, merged
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import QpiddError

RETRY: Final = 0.002
"""Seconds between two attempts to get the lock."""


def encode(states: Mapping[str, HaState]) -> bytes:
    brokers = {id: state.to_json() for id, state in sorted(states.items())}
    return json.dumps({"brokers": brokers, "crc32": _checksum(brokers)}, indent=1).encode() + b"\n"


def decode(octets: bytes) -> dict[str, HaState]:
    """Raises RegistryError."""
    try:
        value = read_object(octets)
        brokers, found = need(value, "brokers", dict), value.get("crc32")
        states = {id: HaState.from_json(entry) for id, entry in brokers.items()}
    except (ValueError, QpiddError) as error:
        raise RegistryError(f"not a registry: {error}") from error
    if found != _checksum(brokers):
        raise RegistryError(f"checksum {found}, expected {_checksum(brokers)}")
    return states


def _checksum(brokers: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(brokers, sort_keys=True).encode()):08x}"


class Lives(Protocol):
    """Knows which processes have ended (`living.py`)."""

    def gone(self, ids: Iterable[str]) -> frozenset[str]:
        """The ids of brokers that have certainly ended."""
        ...


class FileRegistry(Store):
    """The registry in a file, which the manager may read, too."""

    def __init__(self, path: Path, lives: Lives, directory: Directory | None = None) -> None:
        """`directory`: the directory of `path`, if it is simulated."""
        self._path = path
        self._lives = lives
        self._directory = directory or FileDirectory(path.parent)
        self._unsure = False
        """True if our last write failed: then what can be read may not be on the disk."""

    def exchange(self, state: HaState | None, timeout: float) -> Exchanged:
        """Raises RegistryError and OSError."""
        if state is None:
            # Reading needs no lock, and must not wait for a process that was stopped while it held it.
            return self._end(self._read())
        with self._locked(time.monotonic() + timeout):
            states = self._read()
            new = merged(states.get(state.id), state)
            if self._unsure or new != states.get(state.id):
                states[state.id] = new
                self._unsure = True
                self._write(states)
                self._unsure = False
            return self._end(states)

    def _end(self, states: Mapping[str, HaState]) -> Exchanged:
        return Exchanged(tuple(states.values()), gone=self._lives.gone(states))

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        path = self._path.with_name(self._path.name + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            while not _lock(descriptor):
                if time.monotonic() >= deadline:
                    raise RegistryError(f"{self._path} is locked by another process")
                time.sleep(RETRY)
            yield
        finally:
            os.close(descriptor)

    def _octets(self) -> bytes | None:
        """The present content of the file, synced or not; None if there is none."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def _read(self) -> dict[str, HaState]:
        octets = self._octets()
        if octets is None:
            return {}
        try:
            return decode(octets)
        except RegistryError as error:
            raise RegistryError(f"{self._path} cannot be used: {error}") from error

    def _write(self, states: Mapping[str, HaState]) -> None:
        temporary = self._path.name + ".new"
        self._directory.write(temporary, encode(states))
        self._directory.sync(temporary)
        self._directory.rename(temporary, self._path.name)
        self._directory.sync_names()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
