"""What a reader of a journal makes of damage: a torn tail is cut off, rot is never read as an earlier end."""

from __future__ import annotations

import errno
import os
import random
from struct import Struct

import pytest

from qpidd_py.core import crc32c, link_frame
from qpidd_py.store import layout
from qpidd_py.store.layout import ENVELOPE_SIZE, HEADER_SIZE, MAGIC, FormatError, Kind, segment_name
from qpidd_py.store.recovery import Damaged, Found, Frame, frames, scan
from qpidd_py.store.writer import JournalEnd, Roll, SyncFailed, Work, Writer
from tests.support.memory_disk import MemoryDisk

SIZE = 4096


def frame(number: int, size: int = 30) -> bytes:
    return link_frame(Kind.BATCH, number, b"%d" % number + b"x" * size)


def written(*commits: list[Work]) -> tuple[MemoryDisk, Writer]:
    disk = MemoryDisk()
    writer = Writer(disk, JournalEnd())
    for work in commits:
        writer.commit(work)
    return disk, writer


def read(disk: MemoryDisk) -> list[int]:
    """Positions of the frames that are read."""
    return [found.position for found in frames(disk, scan(disk))]


def test_an_empty_folder_is_an_empty_journal() -> None:
    disk = MemoryDisk()
    disk.files["notes.txt"] = bytearray(b"not ours")
    assert scan(disk) == Found() and read(disk) == []


def test_frames_come_back_in_order_over_segments() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1), frame(2)], [Roll(2, SIZE), frame(3)], [frame(4)])
    found = scan(disk)
    assert [item.position for item in frames(disk, found)] == [1, 2, 3, 4]
    assert (found.end.number, found.end.generation, found.torn) == (4, 2, False)
    first = next(iter(frames(disk, found)))
    assert first == Frame(1, Kind.BATCH, 1, frame(1)) and first.body.startswith(b"1x")


def test_one_commit_syncs_once() -> None:
    disk, writer = written([Roll(1, SIZE), frame(1)])
    before = disk.syncs
    assert writer.commit([frame(number) for number in range(2, 200)]) == 199
    assert disk.syncs == before + 1


def test_a_tail_that_was_cut_at_any_octet_is_cut_off() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1)], [frame(2), frame(3)])
    name, whole = segment_name(1), bytes(disk.files[segment_name(1)])
    octets = scan(disk).segments[0].octets
    begin = HEADER_SIZE + ENVELOPE_SIZE + len(frame(1))
    second = begin + ENVELOPE_SIZE + len(frame(2))
    for cut in range(begin, octets):
        disk.files[name] = bytearray(whole[:cut] + bytes(SIZE - cut))
        assert read(disk) == ([1, 2] if cut >= second else [1]), cut


def test_what_was_on_disk_and_is_damaged_is_rot() -> None:
    """The last commit proves that all before it was on disk."""
    disk, _ = written([Roll(1, SIZE), frame(1), frame(2)], [frame(3)])
    name, whole = segment_name(1), bytes(disk.files[segment_name(1)])
    last = scan(disk).segments[0].octets - ENVELOPE_SIZE - len(frame(3))
    rng = random.Random(1)
    for at in range(HEADER_SIZE, last):
        disk.files[name] = bytearray(whole)
        disk.files[name][at] ^= 1 << rng.randrange(8)
        with pytest.raises(Damaged, match="were on disk and are damaged"):
            scan(disk)


def test_rot_in_an_earlier_segment_is_found() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1), frame(2)], [Roll(2, SIZE), frame(3)])
    disk.files[segment_name(1)][HEADER_SIZE + 60] ^= 1
    with pytest.raises(Damaged, match=f"{segment_name(1)}, octet {HEADER_SIZE}: frames 1 to 2 were on disk"):
        scan(disk)


def test_a_damaged_header_is_rot_if_anything_proves_it() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1)], [Roll(2, SIZE), frame(2)], [frame(3)])
    disk.files[segment_name(2)][20] ^= 1
    with pytest.raises(Damaged, match="frames 2 to 2 were on disk"):
        scan(disk)
    disk.files[segment_name(2)] = bytearray(SIZE)
    assert read(disk) == [1], "a segment that was begun, and of which nothing was written"


@pytest.mark.parametrize("content", [b"hello", b"\0" * 3 + b"x" * 100, MAGIC[:4] + b"no" + bytes(90)])
def test_a_last_segment_that_nothing_of_ours_was_written_to_is_damaged(content: bytes) -> None:
    """A new segment has zeros or an earlier header where its own belongs, or a part of it."""
    disk, _ = written([Roll(1, SIZE), frame(1)])
    disk.files[segment_name(2)] = bytearray(content)
    with pytest.raises(Damaged, match=f"{segment_name(2)}: it does not begin as a segment"):
        scan(disk)
    disk.files[segment_name(2)] = bytearray(MAGIC[:7] + bytes(SIZE))
    assert read(disk) == [1]


def test_missing_segments_are_found() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1)], [Roll(2, SIZE), frame(2)], [Roll(3, SIZE), frame(3)])
    for missing in (1, 2):
        files = dict(disk.files)
        del disk.files[segment_name(missing)]
        with pytest.raises(Damaged, match="where the journal begins, is missing"):
            scan(disk)
        disk.files = files


def test_nothing_of_an_earlier_use_of_a_file_is_read() -> None:
    """The number and the chain fit, the generation does not."""
    disk, _ = written([Roll(1, SIZE), frame(1), frame(2)])
    old = bytes(disk.files[segment_name(1)])
    second = HEADER_SIZE + ENVELOPE_SIZE + len(frame(1))
    envelope = layout.decode_envelope(old, HEADER_SIZE)
    assert envelope is not None and layout.decode_envelope(old, second) is not None
    header = layout.encode_header(layout.SegmentHeader(2, 2, envelope.checksum))
    disk.files[segment_name(1)] = bytearray(old[:second] + bytes(SIZE - second))
    disk.files[segment_name(2)] = bytearray(header + old[second:])
    assert read(disk) == [1]


def test_a_frame_of_a_tail_that_was_cut_off_does_not_follow_another() -> None:
    """The same generation and the right number: only the chain shows it."""
    disk, _ = written([Roll(1, SIZE), frame(1)], [frame(2), frame(3)])
    octets = bytes(disk.files[segment_name(1)])
    again = MemoryDisk()
    other = Writer(again, JournalEnd())
    other.commit([Roll(1, SIZE), frame(1)])
    other.commit([frame(7)])
    third = HEADER_SIZE + 2 * (ENVELOPE_SIZE + len(frame(1)))
    assert len(frame(7)) == len(frame(2))
    again.files[segment_name(1)][third:SIZE] = octets[third:SIZE]
    assert read(again) == [1, 7]


def test_a_journal_of_another_format_is_refused_with_both_numbers() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1)])
    header = bytearray(disk.files[segment_name(1)][:HEADER_SIZE])
    Struct("<I").pack_into(header, 16, 3)
    Struct("<I").pack_into(header, HEADER_SIZE - 4, crc32c(bytes(header[: HEADER_SIZE - 4])))
    disk.files[segment_name(1)][:HEADER_SIZE] = header
    with pytest.raises(FormatError, match=f"{segment_name(1)}: journal format 3, expected 1 or 2"):
        scan(disk)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_sync_that_fails_is_the_end(number: int) -> None:
    """Also for want of space, which some file systems find out late: what was to be synced may be dropped."""
    disk, writer = written([Roll(1, SIZE), frame(1)])
    disk.sync_error = number
    with pytest.raises(SyncFailed, match=os.strerror(number)):
        writer.commit([frame(2)])
    with pytest.raises(SyncFailed):
        writer.commit([frame(3)])
    assert writer.durable == 1


def test_a_segment_that_was_copied_under_another_name_is_not_read_twice() -> None:
    disk, _ = written([Roll(1, SIZE), frame(1)], [frame(2)])
    for name in (segment_name(2), segment_name(7)):
        disk.files[name] = bytearray(disk.files[segment_name(1)])
        if name == segment_name(2):
            assert read(disk) == [1, 2]
    with pytest.raises(Damaged, match=f"{segment_name(2)}: its header is damaged"):
        scan(disk)


def test_a_full_disk_is_retried_and_nothing_is_written_twice() -> None:
    disk, writer = written([Roll(1, SIZE), frame(1)])
    disk.room = 0
    with pytest.raises(OSError, match="No space"):
        writer.commit([frame(2), Roll(2, SIZE), frame(3)])
    assert writer.durable == 2, "what came before the full disk is on it"
    with pytest.raises(OSError, match="No space"):
        writer.commit([frame(4)])
    disk.room = SIZE
    assert writer.commit([]) == 4
    assert read(disk) == [1, 2, 3, 4]


def test_a_mark_proves_the_last_frames() -> None:
    disk, writer = written([Roll(1, SIZE), frame(1), frame(2)])
    unmarked = disk.copy()
    writer.mark()
    for found in (disk, unmarked):
        found.files[segment_name(1)][scan(found).segments[-1].octets - 1] ^= 1
    assert read(unmarked) == [1], "it may have been torn"
    with pytest.raises(Damaged, match="frames 2 to 2 were on disk and are damaged, says the mark"):
        scan(disk)


@pytest.mark.parametrize("content", [b"", b"QJMARK1\n", layout.encode_mark(9)[:-1], layout.encode_mark(9)[:-1] + b"x"])
def test_a_mark_that_was_cut_off_says_nothing(content: bytes) -> None:
    disk, _ = written([Roll(1, SIZE), frame(1)])
    disk.files[layout.MARK] = bytearray(content)
    assert read(disk) == [1]


def test_a_mark_is_written_when_there_is_news() -> None:
    disk, writer = written([Roll(1, SIZE), frame(1)])
    writer.mark()
    before = disk.syncs
    writer.mark()
    assert disk.syncs == before
    writer.commit([frame(2)], sync=False)
    writer.mark()
    assert layout.decode_mark(disk.files[layout.MARK]) == 1, "the second frame is not on disk"
