"""The state file: what was stored is there, whole; a failed or torn write leaves what was before; damage is refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from random import Random

import pytest

from ha.model.membership import HaState, InSync, Member
from ha.model.state_file import NAME, SLOT, TEMPORARY, FileDirectory, StateFile, StateFileError, decode, encode, newest
from tests.simulator.disk import FAULTS, Disk, Killed

OLD = HaState("me", 3, "you", InSync(2, "you", 5, (Member("me"),)), vouched=(2, "you", 5))
NEW = HaState("me", 4, "me", InSync(4, "me", 6, (Member("me"), Member("you"))))
NEXT = HaState("me", 5, "you", NEW.in_sync)


def disk_with(*states: HaState) -> tuple[Disk, StateFile]:
    disk = Disk()
    file = StateFile(disk)
    for state in states:
        file.store(state)
    return disk, file


def test_what_was_stored_is_there(tmp_path: Path) -> None:
    directory = FileDirectory(tmp_path)
    file = StateFile(directory)
    assert file.open() is None
    for state in (OLD, NEW, NEXT):
        file.store(state)
        assert StateFile(directory).open() == state
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_change_takes_no_space_and_stays_in_its_place(tmp_path: Path) -> None:
    file = StateFile(FileDirectory(tmp_path))
    file.store(OLD)
    before = os.stat(tmp_path / NAME)
    for state in (NEW, NEXT):
        file.store(state)
    after = os.stat(tmp_path / NAME)
    assert (after.st_size, after.st_ino) == (before.st_size, before.st_ino) == (2 * SLOT, before.st_ino)
    assert after.st_blocks == before.st_blocks
    assert [json.loads(line)["epoch"] for line in (tmp_path / NAME).read_text().splitlines()] == [NEXT.epoch, NEW.epoch]


def test_a_slot_that_is_not_what_was_stored_is_refused() -> None:
    octets = encode(NEW, 7)
    assert decode(octets) == (7, NEW)
    line = octets.rstrip()
    for at in range(len(line)):
        with pytest.raises(StateFileError):
            decode(octets[:at])
    changed = [octets.replace(b'"epoch": 4', b'"epoch": 3'), octets.replace(b'"generation": 7', b'"generation": 9')]
    for damaged in (*changed, bytes(SLOT), b"[]", b"7", b'{"id": "me"}'):
        with pytest.raises(StateFileError):
            decode(damaged)


def test_the_newer_valid_slot_is_the_state() -> None:
    old, new, torn = encode(OLD, 8), encode(NEW, 9), bytes(SLOT)
    assert newest(old + new) == (9, NEW)
    assert newest(encode(NEW, 10) + encode(OLD, 9)) == (10, NEW)
    assert newest(old + torn) == (8, OLD)
    assert newest(torn + new) == (9, NEW)
    for damaged in (torn + torn, old, old + new + b"\n", (old + new)[:-1], new + torn, b""):
        with pytest.raises(StateFileError):
            newest(damaged)


@pytest.mark.parametrize("step", range(1, 4))
def test_a_crash_in_any_step_leaves_the_old_or_the_new_one(step: int) -> None:
    found = set()
    for seed in range(50):
        disk, file = disk_with(OLD)
        disk.crash_at = step
        with pytest.raises(Killed):
            file.store(NEW)
        disk.settle(Random(seed))
        after = StateFile(disk)
        found.add(after.open())
        after.store(NEXT)
        disk.settle(Random(seed))
        assert StateFile(disk).open() == NEXT
    # The second step is the sync.
    assert found == ({OLD, NEW} if step < 3 else {NEW})


@pytest.mark.parametrize("step", range(1, 5))
def test_a_crash_while_the_file_is_made_leaves_none_or_all_of_it(step: int) -> None:
    found = set()
    for seed in range(50):
        disk = Disk()
        disk.crash_at = step
        with pytest.raises(Killed):
            StateFile(disk).store(OLD)
        disk.settle(Random(seed))
        found.add(StateFile(disk).open())
    # The rename is the third step.
    assert found == ({None} if step < 3 else {None, OLD})


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_write_that_fails_leaves_what_was_before(fault: str, attempts: int) -> None:
    for seed in range(30):
        disk, file = disk_with(OLD, NEW)
        disk.fault = fault
        for _ in range(attempts):
            with pytest.raises(OSError):
                file.store(NEXT)
        disk.settle(Random(seed))
        assert StateFile(disk).open() in (NEW, NEXT)
        disk.fault = ""
        file.store(NEXT)
        disk.settle(Random(seed))
        assert StateFile(disk).open() == NEXT


def test_what_a_failed_sync_has_left_in_the_cache_is_not_believed() -> None:
    """The process is killed, the machine goes on: its cache shows a vote that the disk does not have."""
    disk, file = disk_with(OLD, NEW)
    disk.fault = "fsync"
    with pytest.raises(OSError):
        file.store(NEXT)
    assert StateFile(disk).open() == NEW


def test_a_state_that_does_not_fit_is_an_error_and_changes_nothing() -> None:
    disk, file = disk_with(OLD)
    many = tuple(Member(f"{number:032}", "n" * 200, "a" * 200) for number in range(100))
    with pytest.raises(OSError, match="octets, a slot") as raised:
        file.store(HaState("me", 9, "me", InSync(9, "me", 9, many)))
    assert raised.value.errno == errno.EFBIG
    assert StateFile(disk).open() == OLD


def test_the_file_of_an_earlier_version_is_read_and_gets_slots(tmp_path: Path) -> None:
    """One line of JSON with a checksum and no generation."""
    line = (
        '{"id": "me", "epoch": 3, "leader": "you", "in_sync": {"epoch": 2, "leader": "you", "version": 5, "members": '
        '[{"id": "me", "name": "", "address": ""}], "brokers": []}, "crc32": "CRC"}\n'
    )
    crc = "d67e7b8e"
    (tmp_path / NAME).write_text(line.replace("CRC", crc))
    directory = FileDirectory(tmp_path)
    assert StateFile(directory).open() == OLD
    assert (tmp_path / NAME).stat().st_size == 2 * SLOT
    assert StateFile(directory).open() == OLD
    (tmp_path / NAME).write_text(line.replace("CRC", "00000000"))
    with pytest.raises(StateFileError, match="checksum"):
        StateFile(directory).open()


def test_the_disk_tears_what_is_not_synced() -> None:
    found = set()
    for seed in range(50):
        disk, file = disk_with(OLD)
        disk.crash_at = 1
        with pytest.raises(Killed):
            file.store(NEW)
        disk.settle(Random(seed))
        found.add((disk.read(NAME) or b"")[SLOT:])
    assert {encode(OLD, 1), encode(NEW, 3)} < found


def test_what_is_left_over_from_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / TEMPORARY).write_bytes(b"half a st")
    directory = FileDirectory(tmp_path)
    file = StateFile(directory)
    assert file.open() is None
    file.store(NEW)
    assert StateFile(directory).open() == NEW
