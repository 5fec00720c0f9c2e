"""Two nodes with fencing: no majority among brokers, so Pacemaker's registry and fencing are what counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import selection, survive
from tests.pacemaker.cluster import Cluster, Setup, running

SHORT = ("node",)
LONG = ("kill9", "sigstop", "move", "cut-primary", "cut-backup", "standby", "corosync", "power-cycle")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    setup = Setup(nodes=2, fencing=True, safety="manager", registry="pacemaker")
    yield from running(setup, tmp_path_factory.mktemp("two-nodes"))


@pytest.mark.parametrize("name", selection(SHORT, LONG))
def test_nothing_confirmed_is_lost(cluster: Cluster, name: str, tmp_path: Path) -> None:
    survive(cluster, name, tmp_path)
