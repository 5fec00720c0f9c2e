"""Every other file that a broker writes: what a full or failing disk costs there."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import IO, Any

import pytest

from ha.model.membership import HaState
from ha.model.salvaged import Header
from ha.model.state_file import FileDirectory
from ha.registry.file import FileRegistry
from ha.registry.living import Living
from ha.salvage import files as salvage_files
from ha.salvage.files import SalvageFiles, WrittenSalvage
from ha.shell.events import EventLog
from qpidd_py.errors import ConfigError, LinkError
from qpidd_py.process import PidFile

HEADER = Header("a", "id-a", "b", 2, 1)


class Raw:
    """An unbuffered file on a disk with `room` octets left; `close` may fail, too."""

    def __init__(self, file: Any, room: int, close: OSError | None = None) -> None:
        self._file, self.room, self._close = file, room, close

    def write(self, octets: bytes) -> int:
        taken = octets[: self.room]
        self.room -= len(taken)
        if octets and not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(taken))

    def close(self) -> None:
        self._file.close()
        if self._close is not None:
            raise self._close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def numbers(directory: Path) -> list[int]:
    lines = [line for path in sorted(directory.iterdir()) for line in path.read_text().splitlines()]
    return [json.loads(line)["seq"] for line in lines]


def test_a_full_disk_costs_events_and_no_half_line_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(tmp_path, "n", lambda: 1)
    log.write("start")
    raw = Raw(log._file, 100)
    log._file = raw  # type: ignore[assignment]
    for _ in range(3):
        log.write("state", reason="x" * 50)
    assert numbers(tmp_path) == [1]
    assert log.lost == 3 and "No space left" in log.trouble
    raw.room = 1 << 20
    log.write("state")
    log.close()
    assert numbers(tmp_path) == [1, 5, 6]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "events are not written",
        "events are written again; the gap in their numbers shows what is missing",
    ]


def test_a_segment_that_cannot_be_closed_costs_no_more_than_its_name(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "n", lambda: 1)
    log.write("start")
    log._file = Raw(log._file, 1 << 20, OSError(errno.EIO, "Input/output error"))  # type: ignore[assignment]
    log._size = 1 << 30
    log.write("state")
    log.write("state")
    log.close()
    assert numbers(tmp_path)[0] == 1 and numbers(tmp_path)[-1] == 4


def test_a_salvage_file_that_cannot_be_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is still in its buffer is written in closing, and that fails, too."""
    files = SalvageFiles(tmp_path / "salvage", 1 << 20)
    real = salvage_files.create
    failing = OSError(errno.ENOSPC, "No space left on device")

    def create(path: Path) -> IO[bytes]:
        return Raw(real(path), 1 << 20, failing)  # type: ignore[return-value]

    monkeypatch.setattr(salvage_files, "create", create)
    salvage = files.begin(HEADER)
    with pytest.raises(LinkError, match="No space left"):
        salvage.finish()
    salvage.cancel()
    assert files.names() == []


def test_a_directory_that_cannot_be_read_is_an_error_of_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: SalvageFiles) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(SalvageFiles, "_used", fails)
    with pytest.raises(LinkError, match="Input/output"):
        SalvageFiles(tmp_path / "salvage", 1 << 20).begin(HEADER)


def test_a_mark_after_one_that_was_cut_off_is_read(tmp_path: Path) -> None:
    files = SalvageFiles(tmp_path / "salvage", 1 << 20)
    salvage = files.begin(HEADER)
    assert isinstance(salvage, WrittenSalvage)
    salvage.finish()
    files.mark(salvage.name, "tried", [1, 2])
    with files._marks_path(salvage.name).open("ab") as file:
        file.write(b'{"restored":[1')
    files.mark(salvage.name, "restored", [2])
    marks = files.marks(salvage.name)
    assert (marks.restored, marks.tried) == ({2}, {1})


def test_a_registry_entry_whose_write_failed_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename is seen, but the directory was not synced: who looks may not take it for done."""
    registry = FileRegistry(tmp_path / "registry", Living(tmp_path / "registry", "id-a"))
    state = HaState("id-a", 1, "id-a")
    synced: list[str] = []

    def fails(self: FileDirectory) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(FileDirectory, "sync_names", fails)
        with pytest.raises(OSError, match="Input/output"):
            registry.exchange(state, 1.0)
    monkeypatch.setattr(FileDirectory, "sync_names", lambda self: synced.append("names"))
    assert registry.exchange(state, 1.0).states == (state,)
    assert synced == ["names"]
    registry.exchange(state, 1.0)
    assert synced == ["names"], "once is enough"


def test_a_lock_that_takes_no_pid_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, octets: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(ConfigError, match=r"cannot write .*/lock: No space left on device"):
            PidFile(tmp_path / "lock")
    lock = PidFile(tmp_path / "lock")  # the first one does not hold it any more
    monkeypatch.setattr("os.pwrite", full)
    lock.tell("why it does not stop")
    lock.remove()
