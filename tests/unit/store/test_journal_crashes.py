"""Random histories of a broker with a journal, and a power cut or a kill at any operation of the disk."""

from __future__ import annotations

import errno
import random

import pytest

from qpidd_py.store.layout import segment_name
from qpidd_py.store.recovery import Damaged, scan
from tests.support.memory_disk import MemoryDisk, PowerCut
from tests.unit.store.machine import Machine


def act(machine: Machine, rng: random.Random) -> None:
    name = rng.choice("abc")
    if name not in machine.told:
        machine.declare(name, **({"x-max-priority": 3} if rng.random() < 0.2 else {}))
        return
    choice = rng.random()
    if choice < 0.5:
        machine.publish(name, rng.randrange(1, 20), rng.choice((20, 400)))
    elif choice < 0.8:
        machine.consume(name, rng.randrange(1, 30))
    elif choice < 0.82:
        machine.delete(name)
    if rng.random() < 0.7:
        machine.turn()
    if rng.random() < 0.5:
        machine.commit()
    elif rng.random() < 0.1:
        machine.idle()


def live(machine: Machine, rng: random.Random) -> None:
    """Some steps, and an end at any operation of the disk."""
    machine.disk.cut_after = rng.choice((0, rng.randrange(1, 40)))
    machine.disk.sync_error = rng.choice((0, 0, 0, errno.EIO))
    failed = False
    try:
        for _ in range(rng.randrange(1, 60)):
            act(machine, rng)
    except PowerCut:
        pass
    except OSError:
        failed = True  # the process ends, and what the cache shows is not on the disk
    machine.disk.sync_error = 0
    if rng.random() < (0.8 if failed else 0.2):
        machine.disk.kill()
    else:
        machine.disk.power_cut(rng)


def run(seed: int) -> Machine:
    rng = random.Random(seed)
    disk = MemoryDisk()
    machine = Machine(disk, rng)
    for _ in range(8):
        live(machine, rng)
        while True:
            disk.cut_after = rng.choice((0, 0, rng.randrange(1, 6)))  # also while it reads and begins again
            try:
                machine.boot()
                break
            except PowerCut:
                disk.power_cut(rng)
    disk.cut_after = 0
    return machine


def rot(seed: int) -> None:
    """A quiet broker loses its power, and the last frame is damaged: nothing behind it proves that it was there."""
    machine, rng = run(seed), random.Random(seed)
    act(machine, rng)
    machine.idle()
    machine.disk.power_cut(rng)
    last = scan(machine.disk).segments[-1]
    machine.disk.rot(segment_name(last.generation), last.octets - 1 - rng.randrange(20), 1 << rng.randrange(8))
    with pytest.raises(Damaged):
        machine.boot()


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_confirmed_message_is_lost_by_a_crash_at_any_moment(first: int) -> None:
    for seed in range(first, first + 20):
        run(seed)


def test_rot_in_the_last_frames_is_no_torn_tail() -> None:
    for seed in range(20):
        rot(seed)
