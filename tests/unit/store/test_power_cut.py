"""Real files, a process that is killed, and a disk that forgets what was not synced (`testkit/power.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from qpidd_py.store.disk import Folder
from qpidd_py.store.recovery import Damaged, frames, scan
from testkit.power import PowerCut, library
from tests.support.slow import few
from tests.unit.store import power_program

COMMITS = 60
"""A life ends within that many."""


class Machine:
    """A journal that one process after the other continues."""

    def __init__(self, directory: Path, mistake: str = "") -> None:
        self.folder = directory / "journal"
        self._power = PowerCut(library(directory), self.folder, directory / "undo", milliseconds=1)
        self._mistake = mistake
        self.promised = 0
        self.taken_back = 0

    def live(self, rng: Random) -> None:
        """Start, write, be killed; then the power is cut."""
        command = [sys.executable, "-m", "tests.unit.store.power_program", str(self.folder)]
        command += [self._mistake] if self._mistake else []
        environment = {**os.environ, **self._power.environment}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            for _ in range(rng.randint(1, COMMITS)):
                if line := process.stdout.readline():
                    self.promised = int(line)
            process.kill()
            self.promised = max([self.promised, *map(int, process.stdout.read().split())])
        self.taken_back += self._power.cut(rng)

    def check(self) -> None:
        disk = Folder(self.folder)
        found = scan(disk)
        assert found.end.number >= self.promised, f"{self.promised - found.end.number} frames are lost"
        assert all(map(power_program.is_right, frames(disk, found)))


def test_what_was_synced_outlives_the_power(tmp_path: Path) -> None:
    rng, machine = Random(1), Machine(tmp_path)
    for _ in range(few(60)):
        machine.live(rng)
        machine.check()
    assert machine.promised > 100 and machine.taken_back, "otherwise nothing was tried"


@pytest.mark.parametrize("mistake", power_program.MISTAKES)
def test_a_mistake_is_noticed(tmp_path: Path, mistake: str) -> None:
    rng, machine = Random(2), Machine(tmp_path, mistake)
    with pytest.raises((AssertionError, Damaged, FileNotFoundError)):
        for _ in range(40):
            machine.live(rng)
            machine.check()
