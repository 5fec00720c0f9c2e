"""The state file: what a slot is, which slot counts, and what is synced when."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ha.model import state_file
from ha.model.membership import HaState
from ha.model.state_file import NAME, SLOT, TEMPORARY, FileDirectory, StateFile, StateFileError, decode, encode, newest

OLD, NEW = HaState("id-a", 1, "id-a"), HaState("id-a", 2, "id-b")


def of_size(size: int) -> HaState:
    """A state whose slot has so many octets before it is filled up."""
    empty = len(encode(HaState(""), 7).rstrip())
    return HaState("x" * (size - empty))


# ---- a slot ------------------------------------------------------------------------------------------------------


def test_a_slot_has_its_size_and_ends_with_a_newline() -> None:
    slot = encode(NEW, 7)
    assert len(slot) == SLOT and slot.endswith(b" \n") and decode(slot) == (7, NEW)
    full = encode(of_size(SLOT - 1), 7)
    assert len(full) == SLOT and full.endswith(b"}\n")


def test_a_state_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    with pytest.raises(OSError) as caught:
        encode(of_size(SLOT), 7)
    assert caught.value.errno == errno.EFBIG


def changed(slot: bytes, **changes: Any) -> bytes:
    """With the old checksum."""
    return json.dumps({**json.loads(slot), **changes}).encode()


@pytest.mark.parametrize(
    "octets",
    [b"", b"[]", b"{}", b"\0" * SLOT, changed(encode(NEW, 7), epoch=9), changed(encode(NEW, 7), crc32="00000000")],
)
def test_what_is_no_slot_is_refused(octets: bytes) -> None:
    with pytest.raises(StateFileError):
        decode(octets)


def test_a_file_from_before_there_were_slots_has_generation_0() -> None:
    value = NEW.to_json()
    line = json.dumps({**value, "crc32": state_file._checksum(value)}).encode()
    assert newest(line) == (0, NEW)


# ---- two slots ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ((encode(OLD, 2), encode(NEW, 3)), (3, NEW)),
        ((encode(NEW, 4), encode(OLD, 3)), (4, NEW)),
        ((encode(NEW, 4), b"\0" * SLOT), (4, NEW)),
        ((b"\0" * SLOT, encode(NEW, 3)), (3, NEW)),
        ((encode(NEW, 4), encode(OLD, 8)), (4, NEW)),
        ((encode(OLD, 9), encode(NEW, 3)), (3, NEW)),
    ],
)
def test_the_newest_slot_that_is_whole_and_in_its_place_counts(
    slots: tuple[bytes, bytes], expected: tuple[int, HaState]
) -> None:
    assert newest(b"".join(slots)) == expected


def test_why_neither_slot_counts_is_said_of_both() -> None:
    with pytest.raises(StateFileError, match=r"slot 0: generation 3 belongs.*; slot 1: not a state"):
        newest(encode(NEW, 3) + b"\0" * SLOT)


@pytest.mark.parametrize("size", [SLOT, SLOT + 1, 2 * SLOT - 1, 2 * SLOT + 1, 3 * SLOT])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    octets = (encode(NEW, 4) + encode(OLD, 3) + encode(NEW, 4))[:size]
    with pytest.raises(StateFileError, match=f"{size} octets, expected {2 * SLOT}"):
        newest(octets)


# ---- the file of one broker --------------------------------------------------------------------------------------


class Notes:
    """A directory that notes what is done to it."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.done: list[str] = []
        self.error: OSError | None = None

    def __str__(self) -> str:
        return "data"

    def read(self, name: str) -> bytes | None:
        assert name == NAME
        return self.content

    def write(self, name: str, octets: bytes) -> None:
        self.temporary = octets
        self.done.append(f"write {name}")

    def sync(self, name: str) -> None:
        self.done.append(f"sync {name}")

    def rename(self, old: str, new: str) -> None:
        self.content = self.temporary
        self.done.append(f"rename {old} {new}")

    def sync_names(self) -> None:
        self.done.append("sync names")

    def overwrite(self, name: str, at: int, octets: bytes) -> None:
        self.done.append(f"overwrite {name} {at // SLOT}")
        if self.error:
            raise self.error
        assert self.content is not None
        self.content = self.content[:at] + octets + self.content[at + len(octets) :]


CREATED = [f"write {TEMPORARY}", f"sync {TEMPORARY}", f"rename {TEMPORARY} {NAME}", "sync names"]


def test_a_new_broker_has_nothing_and_its_first_state_makes_a_durable_file() -> None:
    directory = Notes()
    file = StateFile(directory)
    assert file.open() is None and directory.done == [] and str(file) == f"data/{NAME}"
    file.store(OLD)
    assert directory.done == CREATED
    assert directory.content == encode(OLD, 2) + encode(OLD, 1)


def test_the_slots_are_overwritten_in_turn() -> None:
    directory = Notes()
    file = StateFile(directory)
    file.store(OLD)
    directory.done.clear()
    for state in (NEW, OLD, NEW):
        file.store(state)
    assert directory.done == [f"overwrite {NAME} {slot}" for slot in (1, 0, 1)]
    assert directory.content == encode(OLD, 4) + encode(NEW, 5)


def test_a_restart_goes_on_with_the_slot_that_is_not_in_force() -> None:
    directory = Notes(encode(OLD, 4) + encode(NEW, 5))
    file = StateFile(directory)
    assert file.open() == NEW and directory.done == []
    file.store(OLD)
    assert directory.content == encode(OLD, 6) + encode(NEW, 5)


def test_a_write_that_has_failed_is_repeated_into_the_same_slot() -> None:
    directory = Notes(encode(OLD, 4) + encode(NEW, 5))
    file = StateFile(directory)
    file.open()
    directory.error = OSError(errno.EIO, "broken")
    with pytest.raises(OSError, match="broken"):
        file.store(OLD)
    directory.error = None
    file.store(OLD)
    assert directory.done == [f"overwrite {NAME} 0"] * 2


def test_a_file_from_before_there_were_slots_gets_them_when_it_is_opened() -> None:
    value = NEW.to_json()
    directory = Notes(json.dumps({**value, "crc32": state_file._checksum(value)}).encode())
    file = StateFile(directory)
    assert file.open() == NEW and directory.done == CREATED
    file.store(OLD)
    assert directory.done == [*CREATED, f"overwrite {NAME} 1"]


# ---- the file system ---------------------------------------------------------------------------------------------


class Calls:
    """What is asked of the system, and on which file: a descriptor is shown as the path that was opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.flags: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._open = os.open
        monkeypatch.setattr(os, "open", self.open)
        for name in ("fsync", "close", "posix_fadvise", "pwrite"):
            monkeypatch.setattr(os, name, self._noted(name, getattr(os, name)))

    def open(self, path: Any, flags: int, *rest: Any) -> int:
        descriptor = self._open(path, flags, *rest)
        self._names[descriptor] = Path(path).name
        self.flags[Path(path).name] = flags
        return descriptor

    def _noted(self, name: str, call: Any) -> Any:
        def noted(descriptor: int, *arguments: Any) -> Any:
            if descriptor in self._names:
                shown = [str(len(each)) if isinstance(each, bytes) else str(each) for each in arguments]
                self.made.append(" ".join([name, self._names[descriptor], *shown]))
                if name == "pwrite":
                    arguments = (arguments[0][:4], *arguments[1:])
            return call(descriptor, *arguments)

        return noted


@pytest.fixture
def directory(tmp_path: Path) -> FileDirectory:
    found = FileDirectory(tmp_path / "data")
    found.path.mkdir()
    return found


def test_what_is_read_is_what_a_power_failure_would_leave(
    directory: FileDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed process has written is synced, and then read from the disk, not from the cache."""
    (directory.path / "x").write_bytes(b"content")
    calls = Calls(monkeypatch)
    assert directory.read("x") == b"content" and directory.read("y") is None
    assert calls.made == ["fsync x", f"posix_fadvise x 0 0 {os.POSIX_FADV_DONTNEED}"]
    assert calls.flags["x"] == os.O_RDWR | os.O_CLOEXEC
    assert str(directory) == str(directory.path)


def test_a_file_that_is_overwritten_is_synced_by_the_same_descriptor(
    directory: FileDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little the system takes at a time."""
    directory.write("x", b"0123456789")
    calls = Calls(monkeypatch)
    directory.overwrite("x", 2, b"abcdef")
    assert (directory.path / "x").read_bytes() == b"01abcdef89"
    assert calls.made == ["pwrite x 6 2", "pwrite x 2 6", "fsync x", "close x"]
    assert calls.flags["x"] == os.O_WRONLY | os.O_CLOEXEC


def test_a_file_that_cannot_be_overwritten_is_closed(directory: FileDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write("x", b"0123456789")
    calls = Calls(monkeypatch)

    def fails(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="full"):
        directory.overwrite("x", 0, b"ab")
    with pytest.raises(OSError, match="full"):
        directory.sync("x")
    assert calls.made == ["pwrite x 2 0", "close x", "close x"]


def test_a_new_file_is_synced_then_its_name(directory: FileDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    directory.write("x", b"content")
    directory.sync("x")
    directory.rename("x", "y")
    directory.sync_names()
    assert (directory.path / "y").read_bytes() == b"content" and not (directory.path / "x").exists()
    assert calls.made == ["fsync x", "close x", "fsync data", "close data"]
    assert calls.flags == {"x": os.O_RDWR, "data": os.O_RDONLY}
