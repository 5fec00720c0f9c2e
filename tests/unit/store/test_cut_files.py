"""Real files that are cut off at any octet, or have a flipped bit: what is read is what the broker held at some moment,
with everything before the damage; or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from qpidd_py.broker.broker import Broker
from qpidd_py.core import Batch, Engine
from qpidd_py.store.disk import Folder
from qpidd_py.store.layout import ENVELOPE_SIZE, Kind, segment_name
from qpidd_py.store.recovery import Damaged, Frame, frames, scan
from qpidd_py.store.replay import Replay
from tests.support.slow import mostly_slow
from tests.unit.store.machine import Machine

PLACES = 10_000
STEPS = 25
Held = dict[str, list[bytes]]


class Life:
    """A broker that has written a journal, what it held at each position of its log, and a reader of its files."""

    def __init__(self, path: Path, rng: Random) -> None:
        self.held: dict[int, Held] = {0: {}}
        self.compared = 0
        self._disk = Folder(path)
        machine = Machine(self._disk, rng)  # type: ignore[arg-type]
        hand_over = machine.journal.batch
        machine.broker.engine.on_batch = lambda batch: self._note(machine, batch, hand_over(batch))
        for name in "ab":
            machine.declare(name)
        for _ in range(STEPS):
            machine.publish(rng.choice("ab"), rng.randrange(1, 4), 40)
            machine.turn()
            machine.commit()
            machine.consume(rng.choice("ab"), rng.randrange(3))
            machine.commit()
        machine.settle()
        self.path = path / segment_name(scan(self._disk).end.generation)
        self.whole = self.path.read_bytes()
        self.octets = scan(self._disk).segments[-1].octets
        self.last_two = self.octets - sum(len(each.octets) + ENVELOPE_SIZE for each in self._batches()[-2:])

    def _batches(self) -> list[Frame]:
        found = list(frames(self._disk, scan(self._disk)))
        assert {each.kind for each in found[-2:]} == {Kind.BATCH}
        return found

    def _note(self, machine: Machine, batch: Batch, _: None) -> None:
        if batch.last == machine.broker.engine.position:  # otherwise more of this turn follows
            self.held[batch.last] = contents(machine.broker)

    def read(self, octets: bytes) -> int:
        """The position up to which the journal can be read if the last segment is this.  Raises Damaged."""
        self.path.write_bytes(octets)
        broker = Broker(engine=Engine(segment_size=2048))
        found = scan(self._disk)
        Replay(broker.engine, broker.configurations, found).apply(frames(self._disk, found))
        position = broker.engine.position
        if position in self.held:
            self.compared += 1
            assert contents(broker) == self.held[position]
        assert scan(self._disk) == found, "reading changes nothing"
        return position


def contents(broker: Broker) -> Held:
    queues = broker.vhost.queues.items()
    return {name: [bytes(item[5]) for item in queue.core.peek(1 << 30)] for name, queue in queues}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    yield Life(tmp_path_factory.mktemp("cut") / "journal", Random(4))


def cut(life: Life, at: int, last: int) -> int:
    """Cut off, or followed by zeros, as a file is whose space was taken before.  Returns the position."""
    kept = life.whole[:at]
    short, zeros = life.read(kept), life.read(kept + bytes(len(life.whole) - at))
    assert last <= short <= zeros  # a message may end with zeros
    return short


def test_a_cut_at_every_octet_of_the_last_batches(life: Life) -> None:
    last = 0
    for at in range(life.last_two, life.octets + 1):
        last = cut(life, at, last)
    assert last == max(life.held) and life.compared > life.octets - life.last_two


@pytest.mark.parametrize("places", mostly_slow([300, PLACES], 1))
def test_a_cut_at_any_octet(life: Life, places: int) -> None:
    rng, last = Random(places), 0
    for at in sorted(rng.randrange(100, life.octets) for _ in range(places)):
        last = cut(life, at, last)


@pytest.mark.parametrize("places", mostly_slow([500, PLACES], 1))
def test_a_flipped_bit(life: Life, places: int) -> None:
    rng, refused = Random(places), 0
    for _ in range(places):
        octets = bytearray(life.whole)
        at = rng.randrange(life.octets)
        octets[at] ^= 1 << rng.randrange(8)
        try:
            life.read(bytes(octets))
        except Damaged:
            refused += 1
    assert refused > places / 2, "what later frames prove"
