"""Three nodes with fencing: what can happen to a primary, its node and its cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import selection, survive
from tests.pacemaker.cluster import Cluster, Setup, running

SHORT = ("kill9",)  # test_two_nodes.py fences, test_no_fencing.py cuts a primary off
LONG = (
    "cut-primary", "node", "sigstop", "move", "standby", "two-in-a-row", "catchup", "cut-backup", "link-down",
    "corosync", "controld", "freeze", "replace", "power-cycle",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from running(Setup(fencing=True), tmp_path_factory.mktemp("fencing"))


@pytest.mark.parametrize("name", selection(SHORT, LONG))
def test_nothing_confirmed_is_lost(cluster: Cluster, name: str, tmp_path: Path) -> None:
    survive(cluster, name, tmp_path)
