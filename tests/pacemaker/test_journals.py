"""Brokers with journals: the power of all nodes is cut under load, and nothing confirmed and persistent is lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_disk_faults import SOURCE
from tests.pacemaker.campaign import selection, survive
from tests.pacemaker.cluster import Cluster, Setup, running
from tests.pacemaker.lab.host import Node

JOURNAL = {"journal": "yes", "journal-segment-size": "4M"}
SETUPS = {
    "three": Setup(fencing=True, options=JOURNAL),
    "two": Setup(nodes=2, fencing=True, safety="manager", registry="pacemaker", options=JOURNAL),
}
PATIENT = Setup(fencing=True, options={**JOURNAL, "ha-slow-backup-timeout": "4"})
"""A primary whose disk hangs gives way after that time, and would end by itself after twice that time."""
SMALL = Setup(options={**JOURNAL, "memory-limit": "64M"})
"""Half of what waits leaves memory."""
LIBRARY = "/usr/local/lib/disk-faults.so"


@pytest.fixture(scope="module", params=SETUPS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from running(SETUPS[request.param], tmp_path_factory.mktemp(f"journals-{request.param}"))


@pytest.mark.parametrize("name", selection((), ("power-cycle", "restart", "node", "kill9")))
def test_nothing_confirmed_is_lost(cluster: Cluster, name: str, tmp_path: Path) -> None:
    survive(cluster, name, tmp_path)


@pytest.fixture
def on_faulty_disks(tmp_path: Path) -> Iterator[Cluster]:
    """What runs on a node fails where `disk_faults.c` says so."""

    def load_faults(node: Node) -> None:
        library = node.path("/tmp") / "disk-faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
        node.run("install", "-D", "-m", "755", "/tmp/disk-faults.so", LIBRARY, check=True)
        node.run("sh", "-c", f"echo {LIBRARY} >/etc/ld.so.preload", check=True)

    yield from running(PATIENT, tmp_path, load_faults)


@pytest.mark.parametrize("name", selection((), ("hung-disk",)))
def test_the_role_moves_from_a_primary_whose_disk_hangs(on_faulty_disks: Cluster, name: str, tmp_path: Path) -> None:
    report = survive(on_faulty_disks, name, tmp_path / "trial")
    victim = report.effects[0].happening.node
    log = on_faulty_disks.broker_log(victim)
    assert any("the disk of its journal has written nothing" in line for line in log)


@pytest.fixture
def of_little_memory(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(SMALL, tmp_path)


@pytest.mark.parametrize("name", selection((), ("rot",)))
def test_the_role_moves_from_a_primary_that_cannot_read_all(
    of_little_memory: Cluster, name: str, tmp_path: Path
) -> None:
    report = survive(of_little_memory, name, tmp_path / "trial")
    log = of_little_memory.broker_log(report.effects[0].happening.node)
    assert any("rot: the page file in /var/lib/qpidd" in line for line in log)
    assert not any("the role goes to a backup" in line for line in log), "Pacemaker has moved it, by the score"
