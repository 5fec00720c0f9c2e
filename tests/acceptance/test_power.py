"""Brokers with journals under load: killed again and again, all of them at once, and with disks that forget what was
not synced (`testkit/power.py`).  What was confirmed is there."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest

from testkit.power import PowerCut, library
from tests.acceptance.cluster import Cluster, Member, first_promotable
from tests.acceptance.load import LibraryPair, assert_nothing_lost, progress
from tests.support.slow import mostly_slow

JOURNAL = {"journal": "yes", "journal_segment_size": "1M"}


class OnForgetfulDisk(Member):
    power: PowerCut

    def spawn(self) -> OnForgetfulDisk:
        """Not from the fork server: the library has to be loaded first."""
        with self.log_file.open("ab") as log:
            self._log_start = log.tell()
            environment = {**os.environ, **self.power.environment}
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=environment)
        return self


def forgetful(directory: Path, size: int, **options: str) -> Cluster:
    cluster = Cluster(directory, size, **JOURNAL, **options)
    for member in cluster.members:
        member.__class__ = OnForgetfulDisk
        assert isinstance(member, OnForgetfulDisk)
        undo = directory / f"{member.name}-undo"
        member.power = PowerCut(library(directory), member.data_dir, undo, milliseconds=3)
    return cluster


def power_cut(cluster: Cluster, rng: Random) -> int:
    """Of all nodes at once.  Returns the number of changes that were not on a disk."""
    for member in cluster.members:
        member.signal(signal.SIGKILL)
    lost = 0
    for member in cluster.members:
        member.wait()
        assert isinstance(member, OnForgetfulDisk)
        lost += member.power.cut(rng)
    return lost


@pytest.mark.parametrize("case", mostly_slow(["manager 3 2", "quorum 3 15", "manager 2 15", "availability 3 15"], 1))
def test_a_power_cut_of_all_nodes_loses_nothing(tmp_path: Path, case: str) -> None:
    safety = case.split()[0]
    size, rounds = map(int, case.split()[1:])
    rng, forgotten = Random(size), 0
    with forgetful(tmp_path, size, ha_safety=safety) as cluster:
        cluster.start()
        pair = LibraryPair(cluster.url, "orders", rate=400)
        for _ in range(rounds):
            progress([pair], rng.randint(20, 200))
            forgotten += power_cut(cluster, rng)
            cluster.spawn()
            first_promotable(cluster.members)
        cluster.settle()
        pair.finish()
        assert_nothing_lost(pair)
    assert forgotten, "otherwise the disks had everything, and this was a test of kill -9"


@pytest.mark.parametrize("case", mostly_slow(["quorum 10", "manager 200", "quorum 200"], 1))
def test_brokers_that_are_killed_again_and_again(tmp_path: Path, case: str) -> None:
    """One, some or all of them; the others, and those that come back, go on."""
    safety, restarts = case.split()[0], int(case.split()[1])
    rng, done = Random(restarts), 0
    with Cluster(tmp_path, **JOURNAL, ha_safety=safety).start() as cluster:
        pair = LibraryPair(cluster.url, "orders", rate=400)
        while done < restarts:
            victims = rng.sample(cluster.members, rng.choice((1, 1, 2, 3)))
            for member in victims:
                member.kill()
            for member in victims:
                member.spawn()
            done += len(victims)
            cluster.ready()
            progress([pair], rng.randint(5, 50))
        pair.finish()
        assert_nothing_lost(pair)
