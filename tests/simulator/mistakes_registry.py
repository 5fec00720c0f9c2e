"""Mistakes of the registry that is one file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from ha.model.membership import HaState
from ha.registry.file import FileRegistry, encode
from tests.simulator.mistakes_safety import patched


def write_in_place() -> AbstractContextManager[None]:
    """The file is overwritten, not replaced: a full disk leaves half of it."""

    def write(self: FileRegistry, states: Mapping[str, HaState]) -> None:
        self._directory.write(self._path.name, encode(states))
        self._directory.sync(self._path.name)

    return patched(FileRegistry, _write=write)
