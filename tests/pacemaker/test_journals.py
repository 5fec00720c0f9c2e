"""Brokers with journals: the power of all nodes is cut under load, and nothing confirmed and persistent is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import selection, survive
from tests.pacemaker.cluster import Cluster, Setup, running

JOURNAL = {"journal": "yes", "journal-segment-size": "4M"}
SETUPS = {
    "three": Setup(fencing=True, options=JOURNAL),
    "two": Setup(nodes=2, fencing=True, safety="manager", registry="pacemaker", options=JOURNAL),
}


@pytest.fixture(scope="module", params=SETUPS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from running(SETUPS[request.param], tmp_path_factory.mktemp(f"journals-{request.param}"))


@pytest.mark.parametrize("name", selection((), ("power-cycle", "node", "kill9")))
def test_nothing_confirmed_is_lost(cluster: Cluster, name: str, tmp_path: Path) -> None:
    survive(cluster, name, tmp_path)
