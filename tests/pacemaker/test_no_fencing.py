"""Three nodes without any fencing: the brokers' majority alone keeps two primaries from confirming."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import selection, survive
from tests.pacemaker.cluster import Cluster, Setup, running

SHORT = ("cut-primary",)
LONG = (
    "two-in-a-row", "power-cycle", "kill9", "sigstop", "move", "standby", "catchup", "node", "freeze", "cut-backup",
    "link-down", "corosync", "controld", "replace", "parameter", "parameter-after-demotion", "rolling-restart",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from running(Setup(fencing=False), tmp_path_factory.mktemp("no-fencing"))


@pytest.mark.parametrize("name", selection(SHORT, LONG))
def test_nothing_confirmed_is_lost(cluster: Cluster, name: str, tmp_path: Path) -> None:
    survive(cluster, name, tmp_path)
