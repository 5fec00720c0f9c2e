"""The page file on a real disk, and its thread."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidd_py.core import Engine, Page, Paging
from qpidd_py.option_values import Amount
from qpidd_py.store.pages import PageFile, PageThread
from tests.support.memory import MemoryClient

SLOT = 8192
BODIES = [b"%03d" % n + b"x" * 2000 for n in range(20)] + [b"large" * SLOT] + [b"%03d" % n for n in range(20)]


class Paged:
    """An engine with messages whose segments go where the test says."""

    def __init__(self, folder: Path, limit: Amount = Amount()) -> None:  # noqa: B008 (immutable)
        self.file = PageFile(folder, SLOT, limit)
        self.engine = Engine(segment_size=SLOT)
        self.queue = self.engine.create_queue(1, "q", False)
        self.paging = Paging(self.engine, self.file.fill)
        self.client = MemoryClient(self.engine, q=self.queue)
        for body in BODIES:
            self.client.publish(body, "q")
        self.client.turn()

    def leaving(self) -> list[Page]:
        """With slots from the end of the file to its beginning."""
        pages = self.paging.leave(1 << 40, 0)
        end = 40
        for page in pages:
            number = -(-page.octets // SLOT)
            page.place = tuple(range(end - 1, end - 1 - number, -1))
            end -= number
        return pages

    def bodies(self) -> list[bytes]:
        return [message[5] for message in self.queue.peek(100)]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    paged = Paged(tmp_path)
    for page in paged.leaving():
        paged.file.write(page)
        paged.paging.left(page)
    assert paged.engine.pool.paged > 6 * SLOT and not list(tmp_path.iterdir())
    assert paged.bodies() == BODIES
    paged.file.close()


def test_short_reads_and_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, octets, at: pwrite(fd, octets[:1000], at))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, at: preadv(fd, [buffers[0][:777]], at))
    test_what_was_written_is_read(tmp_path)


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    paged = Paged(tmp_path)
    with pytest.raises(OSError, match="it ends before octet 8192") as failed:
        paged.file.fill((0,), bytearray(SLOT))
    assert failed.value.errno == errno.EIO


def test_the_last_of_the_disk_is_left_free(tmp_path: Path) -> None:
    paged = Paged(tmp_path, Amount(octets=1 << 60))
    with pytest.raises(OSError, match="disk-free-limit") as failed:
        paged.file.write(paged.leaving()[0])
    assert failed.value.errno == errno.ENOSPC


def test_it_shrinks(tmp_path: Path) -> None:
    paged = Paged(tmp_path)
    (page, *_) = paged.leaving()
    paged.file.write(page)
    free = os.stat(f"/proc/self/fd/{paged.file._file.fileno()}").st_size
    paged.file.shrink(0)
    assert free > 30 * SLOT and os.stat(f"/proc/self/fd/{paged.file._file.fileno()}").st_size == 0


class Told:
    def __init__(self, paged: Paged) -> None:
        self.paged = paged
        self.heard: list[tuple[str, OSError | None]] = []
        self.done = asyncio.Event()

    def wrote(self, page: Page, error: OSError | None) -> None:
        self.heard.append(("wrote", error))
        if error is None:
            self.paged.paging.left(page)
        else:
            self.paged.paging.stay(page)
        self.done.set()

    def arrived(self, page: Page, error: OSError | None) -> None:
        self.heard.append(("arrived", error))
        self.paged.paging.arrived(page)
        self.done.set()


def test_the_thread_writes_reads_and_reports(tmp_path: Path) -> None:
    paged = Paged(tmp_path)
    thread = PageThread(paged.file, SLOT)

    async def run() -> None:
        thread.told = told = Told(paged)
        pages = paged.leaving()
        for page in pages[:2]:
            thread.write(page)
        assert told.heard == [("wrote", None)] * 2, "at once before the start"
        guarded: list[Callable[[], None]] = []

        def guard(call: Callable[[], None]) -> None:
            guarded.append(call)
            call()

        thread.start(asyncio.get_running_loop(), guard)
        assert len(pages) > 4
        for page in pages[2:]:
            thread.write(page)
        while len(told.heard) < len(pages):
            told.done.clear()
            await asyncio.wait_for(told.done.wait(), 60)
        paged.client.channel.consume(paged.queue, "c", False, 0)
        paged.client.turn()
        wanted = paged.paging.next_read()
        assert wanted is not None
        thread.read(wanted)
        while told.heard[-1][0] != "arrived":
            told.done.clear()
            await asyncio.wait_for(told.done.wait(), 60)
        assert len(guarded) == len(told.heard) - 2

    asyncio.run(run())
    assert paged.bodies() == BODIES
    thread.stop()
