"""The judge, broken on purpose: brokers that nothing keeps from confirming at the same time are convicted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import LIMIT
from tests.pacemaker.cluster import CLIENT, PORT, Cluster, Setup, running
from tests.pacemaker.disasters import start_stack
from tests.pacemaker.trial import Trial
from torture.loaders import Loaders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(Setup(safety="availability", fencing=False), tmp_path)


def test_without_a_majority_and_without_fencing_two_confirm(cluster: Cluster, tmp_path: Path) -> None:
    """A primary that is cut off, and that no Pacemaker demotes, forgets its backups and serves the clients next to it,
    while another one is promoted."""
    node = cluster.node(cluster.primary())

    def desert() -> None:
        node.signal("^corosync")
        cluster.lab.cut(node.name)

    with Trial(cluster, "judge", tmp_path / "trial") as trial:
        inside = Loaders(trial.directory, node, f"{node.address}:{PORT}", 60.0, "inside", login=CLIENT)
        try:
            inside.start()
            trial.happen("corosync killed and cable cut", node.name, desert)
            trial.served()
            cluster.lab.heal(node.name)
            start_stack(cluster, node.name)
            cluster.calm(120)
        finally:
            inside.kill()
    assert trial.report is not None
    assert len(trial.report.two_confirming) == 1
    assert f"{node.name} confirmed in epoch 1 after" in trial.report.two_confirming[0]
    assert set(trial.report.two_confirming) <= set(trial.report.failures())
