"""Files of a journal are read into the memory of one who reads them all."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from qpidd_py.store.disk import Folder

SEGMENT = 1 << 20


def address(memory: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))


@pytest.mark.parametrize("before", [b"", b"x", b"y" * SEGMENT, b"z" * 3 * SEGMENT])
@pytest.mark.parametrize("content", [b"", b"a", b"b" * SEGMENT])
def test_what_was_read_before_leaves_nothing(tmp_path: Path, before: bytes, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    memory = bytearray(before)
    Folder(tmp_path).read("file", memory)
    assert memory == content


def test_the_memory_of_one_segment_is_used_for_the_next(tmp_path: Path) -> None:
    memory, places = bytearray(), set()
    for name in ("1", "2", "3"):
        (tmp_path / name).write_bytes(name.encode() * SEGMENT)
        Folder(tmp_path).read(name, memory)
        places.add(address(memory))
    assert len(places) == 1


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        Folder(tmp_path).read("file", bytearray())
