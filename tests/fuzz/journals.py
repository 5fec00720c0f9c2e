"""A fuzzer for journals: damaged files, and whole ones with frames that no broker has written."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from ha.model.protocol import encode_drop, encode_merge
from qpidd_py.broker.broker import Broker
from qpidd_py.cli.qpidd_journal import main as qpidd_journal
from qpidd_py.core import encode_ids, link_frame
from qpidd_py.errors import LinkError
from qpidd_py.store.disk import Folder
from qpidd_py.store.layout import HEADER_SIZE, MARK, FormatError, Kind, encode_mark, segment_name
from qpidd_py.store.recovery import CARRY, HEAD, TAKEN, Damaged, frames, scan
from qpidd_py.store.replay import Replay
from qpidd_py.store.writer import JournalEnd, Roll, Work, Writer
from tests.fuzz.frames import Frame, hostile_frame, material
from tests.fuzz.hostile import mutated, spoiled, to_json
from tests.fuzz.target import Target, files, judge_refusal, judge_words, run_program

NOTE: Final[dict[str, Any]] = {
    "instances": ["run-1"], "lineage": [[1, "id-a", 0]], "boot": "x",
    "state": {"id": "id-a", "epoch": 1, "leader": "id-a",
              "in_sync": {"epoch": 1, "leader": "id-a", "version": 1, "members": [], "brokers": []}},
}  # fmt: skip


class Written(NamedTuple):
    """Frames of two segments, and how the files were damaged afterwards."""

    frames: list[Frame]
    damage: int
    """Seed; 0: they are whole."""


def _journal(rng: Random) -> Written:
    found = material()
    frames: list[Frame] = [
        (Kind.SNAPSHOT, found.position, found.snapshot),
        (Kind.NOTE, found.position, to_json(mutated(rng, NOTE, 1))),
        *((Kind.CARRIED, found.position, CARRY.pack(1) + octets) for octets in found.slices),
        (Kind.HEAD, found.position, HEAD.pack(1, 1)),
        *((Kind.BATCH, position, octets) for position, octets in found.batches),
        (Kind.DIFFERENCE, found.position, b""),
        (Kind.ADOPTED, found.position, found.snapshot),
        (Kind.DROP, found.position, encode_drop(found.queue, encode_ids([(1 << 48 | 1, 1 << 48 | 3)]))),
        *((Kind.SLICE, found.position, octets) for octets in found.slices),
        (Kind.MERGE, found.position, encode_merge(found.queue)),
        (Kind.TAKEN, found.position, TAKEN.pack(7)),
        (Kind.GIVEN_UP, found.position, b""),
        (Kind.BASE, found.position, CARRY.pack(1)),
    ]
    told = [hostile_frame(rng, frame) if rng.random() < 0.1 else frame for frame in frames if rng.random() < 0.95]
    return Written(told, rng.getrandbits(32) if rng.random() < 0.5 else 0)


def _write(folder: Path, written: Written) -> None:
    writer, octets = Writer(Folder(folder), JournalEnd()), [link_frame(*frame) for frame in written.frames]
    room = HEADER_SIZE + 2 * sum(map(len, octets)) + 4096
    work: list[Work] = [Roll(1, room), *octets]
    writer.commit(work)
    (folder / MARK).write_bytes(encode_mark(len(octets)))
    if written.damage:
        rng = Random(written.damage)
        for name in rng.sample([segment_name(1), MARK], rng.randrange(3)):
            (folder / name).write_bytes(spoiled(rng, (folder / name).read_bytes()))


def _judge(folder: Path, written: Written) -> None:
    journal, repaired = folder / "journal", folder / "repaired"
    for each in (journal, repaired):
        shutil.rmtree(each, ignore_errors=True)
    _write(journal, written)
    before = {path.name: path.read_bytes() for path in journal.iterdir()}
    for verb in (["inspect"], ["verify", "--json"], ["dump"], ["export"], ["repair", "--to", str(repaired)]):
        code, output, errors = run_program(qpidd_journal, verb[0], str(journal), *verb[1:])
        assert code in (0, 1), code
        judge_words(errors)
        judge_words(output.splitlines()[-1] if output else "")
        assert not code or output or errors, f"{verb[0]} failed, and said nothing"
    assert before == {path.name: path.read_bytes() for path in journal.iterdir()}, "a tool has changed it"
    _start(journal)


def _start(journal: Path) -> None:
    """As a broker that starts."""
    broker, disk = Broker(), Folder(journal)
    try:
        found = scan(disk)
        Replay(broker.engine, broker.configurations, found).apply(frames(disk, found))
    except (Damaged, FormatError, LinkError) as error:
        judge_refusal(str(error))


TARGETS: Final = (Target("journal", _journal, files(_judge), 8),)
