"""What goes wrong with the disks of journals, apart from crashes and power cuts (`journal.py`).

disk-rots       a broker dies, and what its disk had synced is damaged when it comes back; another disk has it all
disk-hangs      no commit ends for a while
disk-forgets    a sync fails, and with it goes what it should have written: the process ends, the cache shows it
put-back        an administrator puts back what a backup of the data directory has; since then the in-sync set has
                changed (or else nothing shows that it is an old copy: `ha/README.md`, section 8)
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from ha.model.state_file import StateFile
from qpidd_py.store.recovery import Damaged, scan
from tests.simulator.disk import Disk
from tests.simulator.scenario import Action
from tests.support.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from tests.simulator.faults import Faults
    from tests.simulator.process import BrokerProcess

Fields = Mapping[str, Any]
PUT_BACK = ("manager", "registry")
ATTEMPTS = 20
"""Places that are tried until one is found whose damage shows."""


def planned(rng: Random, mode: str, names: str, latest: float) -> Action:
    """One of these faults.  A voter must not forget, and with `availability` only the manager knows what is old."""
    kinds = ("disk-rots", "disk-hangs", "disk-forgets", *(["put-back"] * 2 if mode in PUT_BACK else []))
    kind, at = rng.choice(kinds), round(rng.uniform(0.3, latest), 4)
    fields: dict[str, Any] = {"who": rng.choice([*names, "primary"]), "for": rng.choice((0.05, 0.3, 1.0))}
    if kind == "put-back":
        fields["after"] = round(rng.uniform(0.2, 2.0), 4)
    return Action(at, kind, fields)


class JournalFaults:
    """Carries them out."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._simulation = faults.simulation
        self.kinds = {
            "disk-rots": self._rots,
            "disk-hangs": self._hangs,
            "disk-forgets": self._forgets,
            "put-back": self._put_back,
        }

    def _target(self, fields: Fields) -> BrokerProcess | None:
        """One with a journal that may die."""
        process = self._faults.target(fields["who"])
        fit = process is not None and process.journal is not None and self._faults.rules.may_kill(process)
        return process if fit else None

    def _others_hold(self, process: BrokerProcess) -> bool:
        return any(other is not process for other in self._simulation.history.holders())

    def _stop(self, process: BrokerProcess, fields: Fields, power: bool) -> None:
        self._faults.rules.stop(process, power, float(fields["for"]))

    def _rots(self, fields: Fields) -> None:
        process = self._target(fields)
        if process is None or not self._others_hold(process):
            return
        self._stop(process, fields, power=True)
        if rot(process.platter, process.rng):
            self._lost(process, "its disk rots")

    def _lost(self, process: BrokerProcess, why: str) -> None:
        self._simulation.scheduler.log(process.name, why)
        self._simulation.history.counts[why] += 1
        process.content = None
        self._simulation.history.fewer()

    def _hangs(self, fields: Fields) -> None:
        process = self._target(fields)
        if process is not None and process.journal is not None:
            self._simulation.scheduler.log(process.name, "the disk of its journal hangs")
            process.journal.hang(2 * float(fields["for"]))

    def _forgets(self, fields: Fields) -> None:
        process = self._target(fields)
        if process is not None:
            self._simulation.scheduler.log(process.name, "a sync of its journal will fail")
            process.platter.sync_error = errno.EIO

    def _put_back(self, fields: Fields) -> None:
        process = self._target(fields)
        if process is None:
            return
        state, platter, machine = process.state, process.platter.copy(), process.machine
        ours = process.node.local.persisted.in_sync.key

        def swap() -> None:
            changed = ours < self._simulation.history.newest.key
            if changed and process.machine == machine and self._target(fields) and self._others_hold(process):
                self._stop(process, fields, power=True)
                process.disk, process.platter, process.state, process.outdated = Disk(), platter, state, True
                StateFile(process.disk).store(state)
                self._lost(process, "its data directory is put back from a backup")

        self._faults.later(float(fields["after"]), swap)


def rot(disk: MemoryDisk, rng: Random) -> bool:
    """Damage one bit of what was synced; False if no damage shows."""
    for _ in range(ATTEMPTS if disk.files else 0):
        name = rng.choice(disk.names())
        octets = disk.files[name]
        at, bit = rng.randrange(min(len(octets), 8192)), 1 << rng.randrange(8)
        octets[at] ^= bit
        try:
            scan(disk)
        except Damaged:
            disk.harden(name)
            return True
        octets[at] ^= bit
    return False
