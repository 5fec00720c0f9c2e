"""The state file: what was stored is there, whole; what is not exactly that is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ha.membership import HaState, InSync, Member
from ha.state_file import NAME, TEMPORARY, FileDirectory, StateFileError, decode, encode, store, stored
from tests.simulator.disk import Disk, Killed

OLD = HaState("me", 3, "you", InSync(2, "you", 5, (Member("me"),)))
NEW = HaState("me", 4, "me", InSync(4, "me", 6, (Member("me"), Member("you"))))


def test_what_was_stored_is_there(tmp_path: Path) -> None:
    directory = FileDirectory(tmp_path)
    assert stored(directory) is None
    for state in (OLD, NEW):
        store(directory, state)
        assert stored(directory) == state
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_file_that_is_not_what_was_stored_is_refused() -> None:
    octets = encode(NEW)
    assert decode(octets) == NEW
    for at in range(len(octets) - 1):
        with pytest.raises(StateFileError):
            decode(octets[:at])
    for damaged in (bytes(len(octets)), octets.replace(b'"epoch": 4', b'"epoch": 3'), b"[]", b"7", b'{"id": "me"}'):
        with pytest.raises(StateFileError):
            decode(damaged)


@pytest.mark.parametrize("step", range(1, 5))
def test_a_crash_in_any_step_leaves_the_old_or_the_new_one(step: int) -> None:
    found = set()
    for seed in range(50):
        disk = Disk()
        store(disk, OLD)
        disk.crash_at = step
        with pytest.raises(Killed):
            store(disk, NEW)
        disk.settle(Random(seed))
        found.add(stored(disk))
    # The rename is the third step.
    assert found == ({OLD} if step < 3 else {OLD, NEW})


def test_the_disk_tears_what_is_not_synced() -> None:
    found = set()
    for seed in range(50):
        disk = Disk()
        store(disk, OLD)
        disk.write(NAME, encode(NEW))
        disk.settle(Random(seed))
        found.add(disk.read(NAME))
    assert {encode(OLD), encode(NEW)} < found


def test_what_is_left_over_from_a_crash_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / TEMPORARY).write_bytes(b"half a st")
    directory = FileDirectory(tmp_path)
    assert stored(directory) is None
    store(directory, NEW)
    assert stored(directory) == NEW
