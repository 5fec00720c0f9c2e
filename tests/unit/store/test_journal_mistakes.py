"""Each rule of the journal, broken on purpose, is noticed by the histories of `test_journal_crashes.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from qpidd_py.broker.configurations import Configurations
from qpidd_py.broker.snapshot import decode_snapshot, encode_snapshot
from qpidd_py.core.batch import OPERATIONS
from qpidd_py.errors import QpiddError
from qpidd_py.store import layout, recovery, writer
from qpidd_py.store.carry import Carry
from qpidd_py.store.journal import Journal
from qpidd_py.store.layout import FRAME_HEADER, MARK, encode_mark
from qpidd_py.store.recovery import Damaged, Found
from qpidd_py.store.writer import Drop, Writer
from tests.support.memory_disk import MemoryDisk
from tests.unit.store import machine, test_recovery
from tests.unit.store.test_journal_crashes import rot, run

MOST = 100
"""Histories within which a mistake is found."""
Patch = pytest.MonkeyPatch


def acknowledged_before_it_is_synced(patch: Patch) -> None:
    def commit(self: Any, work: Any) -> int:
        self._work.extend(work)
        number: int = self._number + sum(not isinstance(item, (writer.Roll, Drop)) for item in self._work)
        if len(self._work) > 6:
            original(self, ())
        return number

    original = Writer.commit
    patch.setattr(Writer, "commit", commit)


def written_and_not_synced(patch: Patch) -> None:
    def sync(self: Any) -> None:
        self._write()
        self.durable = self._number

    patch.setattr(Writer, "sync", sync)


def a_length_is_trusted(patch: Patch) -> None:
    patch.setattr(recovery, "frame_length", lambda data, at: int.from_bytes(data[at + 4 : at + 8], "little") + 32)


def dropped_when_the_carry_begins(patch: Patch) -> None:
    def begin(self: Any) -> None:
        original(self)
        for generation in [found for found in self._segments if found < self._generation]:
            self._drop(generation)

    original = Journal._begin_carry
    patch.setattr(Journal, "_begin_carry", begin)


def dropped_before_the_head_is_synced(patch: Patch) -> None:
    def commit(self: Any, work: Any) -> int:
        work = list(work)
        return original(self, [*(item for item in work if isinstance(item, Drop)), *work])

    original = Writer.commit
    recycle = MemoryDisk.recycle
    patch.setattr(MemoryDisk, "recycle", lambda disk, name: recycle(disk, name) if name in disk.files else None)
    patch.setattr(Writer, "commit", commit)


def configuration_ahead_of_the_log(patch: Patch) -> None:
    """A segment begins between two batches of a turn."""

    def batch(self: Any, found: Any) -> None:
        if self._used > machine.SEGMENT // 2:
            self._roll()
        self._add(found, len(found), found.last)

    patch.setattr(Journal, "batch", batch)


def no_configuration_in_a_segment(patch: Patch) -> None:
    encoded = Configurations.encoded
    patch.setattr(Configurations, "encoded", lambda self: encode_snapshot(decode_snapshot(encoded(self))[:1]))


def carried_up_to_the_wrong_place(patch: Patch) -> None:
    """What is behind the beginning of the segment is in it already."""

    def init(self: Any, engine: Any, id: int, generation: int, cut: int, *more: Any) -> None:
        original(self, engine, id, generation, engine.position, *more)

    original = Carry.__init__
    patch.setattr(Carry, "__init__", init)


def a_carry_that_was_not_completed_is_read(patch: Patch) -> None:
    def scan(disk: Any) -> Found:
        found = recovery.scan(disk)
        found.carry = found.carries
        return found

    patch.setattr(machine, "scan", scan)


def what_was_read_is_not_synced(patch: Patch) -> None:
    patch.setattr(machine.Machine, "_read", lambda self: recovery.scan(self.disk))


def the_cache_is_believed_after_a_failed_sync(patch: Patch) -> None:
    patch.setattr(MemoryDisk, "settle", MemoryDisk.sync)


def queues_left_out_of_a_carry(patch: Patch) -> None:
    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._queues = self._queues[1:]

    original = Carry.__init__
    patch.setattr(Carry, "__init__", init)


def marked_before_it_is_synced(patch: Patch) -> None:
    """After a crash a torn tail looks like rot."""

    def commit(self: Any, work: Any) -> int:
        self._work.extend(work)
        ahead = self._number + sum(not isinstance(item, (writer.Roll, Drop)) for item in self._work)
        self._disk.keep(MARK, encode_mark(ahead))
        return original(self, ())

    original = Writer.commit
    patch.setattr(Writer, "commit", commit)


def the_mark_is_not_read(patch: Patch) -> None:
    patch.setattr(recovery, "_check_mark", lambda disk, found: None)


def no_mark_when_it_is_quiet(patch: Patch) -> None:
    patch.setattr(Writer, "mark", lambda self: None)


def settlements_go_first(patch: Patch) -> None:
    """What is consumed is written at once, and what is published with the next batch."""

    def batch(self: Any, found: Any) -> None:
        late = held.pop(id(self), None)
        if late is None and OPERATIONS[bytes(found)[FRAME_HEADER + 4]] == "enqueue":
            held[id(self)] = found
            return
        original(self, found)
        if late is not None:
            original(self, late)

    held: dict[int, Any] = {}
    original = Journal.batch
    patch.setattr(Journal, "batch", batch)


def head_before_its_carry(patch: Patch) -> None:
    """The frame that says what the journal begins with is written before what it begins with."""

    def begin(self: Any) -> None:
        at = self._carries + 1, self._generation
        self._add_frame(layout.Kind.HEAD, recovery.HEAD.pack(*at))
        original(self)

    original = Journal._begin_carry
    patch.setattr(Journal, "_begin_carry", begin)


def rot_is_cut_off(patch: Patch) -> None:
    """What was on disk once and is damaged is taken for a torn end."""
    patch.setattr(recovery, "_check_tail", lambda *arguments: None)


def generation_outside_the_checksum(patch: Patch) -> None:
    """It is not looked at, either: the number and the chain may fit."""

    def decode(data: bytearray, at: int) -> Any:
        found = original(data, at)
        name = layout.decode_header(data)
        return found._replace(generation=name.generation) if found is not None and name is not None else found

    original = layout.decode_envelope
    patch.setattr(recovery, "decode_envelope", decode)


def chain_not_looked_at(patch: Patch) -> None:
    def follows(data: bytearray, segment: Any, end: Any) -> Any:
        envelope = layout.decode_envelope(data, segment.octets)
        return original(data, segment, replace(end, checksum=envelope.previous) if envelope else end)

    original = recovery._next
    patch.setattr(recovery, "_next", follows)


MISTAKES: list[Callable[[Patch], None]] = [
    acknowledged_before_it_is_synced,
    written_and_not_synced,
    a_length_is_trusted,
    dropped_when_the_carry_begins,
    dropped_before_the_head_is_synced,
    configuration_ahead_of_the_log,
    no_configuration_in_a_segment,
    carried_up_to_the_wrong_place,
    a_carry_that_was_not_completed_is_read,
    what_was_read_is_not_synced,
    the_cache_is_believed_after_a_failed_sync,
    queues_left_out_of_a_carry,
    marked_before_it_is_synced,
    settlements_go_first,
    head_before_its_carry,
]
DIRECTED: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (rot_is_cut_off, test_recovery.test_what_was_on_disk_and_is_damaged_is_rot),
    (generation_outside_the_checksum, test_recovery.test_nothing_of_an_earlier_use_of_a_file_is_read),
    (chain_not_looked_at, test_recovery.test_a_frame_of_a_tail_that_was_cut_off_does_not_follow_another),
]
"""Mistakes that another rule hides nearly always, and the test that is about them."""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_noticed(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, QpiddError, Damaged, KeyError)):
        for seed in range(MOST):
            run(seed)


@pytest.mark.parametrize("mistake", [the_mark_is_not_read, no_mark_when_it_is_quiet], ids=lambda each: each.__name__)
def test_a_mistake_with_the_mark_lets_rot_pass(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        rot(1)


@pytest.mark.parametrize(("mistake", "test"), DIRECTED, ids=lambda function: function.__name__)
def test_a_mistake_is_noticed_where_nothing_hides_it(
    mistake: Callable[[Patch], None], test: Callable[[], None], monkeypatch: Patch
) -> None:
    test()
    mistake(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test()
