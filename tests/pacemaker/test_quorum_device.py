"""A pair with a quorum device: the half that it hears goes on, and the other one cannot shoot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import LIMIT, survive
from tests.pacemaker.cluster import Cluster, Setup, running
from tests.pacemaker.disasters import BOOTED, returns
from tests.pacemaker.lab.names import CLIENTS_ADDRESS
from tests.pacemaker.qnetd import serving
from tests.pacemaker.trial import Trial
from tests.support.system import needs

pytestmark = [pytest.mark.timeout(LIMIT), pytest.mark.slow, needs("corosync-qnetd", "corosync-qdevice")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    setup = Setup(
        nodes=2, fencing=True, safety="manager", registry="pacemaker", deployment={"quorum-device": CLIENTS_ADDRESS}
    )
    for cluster in running(setup, tmp_path_factory.mktemp("quorum-device")):
        with serving(cluster, CLIENTS_ADDRESS, tmp_path_factory.mktemp("qnetd")):
            yield cluster


def cut_primary(cluster: Cluster, trial: Trial) -> None:
    primary = cluster.primary()
    other = cluster.backups()[0]
    init, back = cluster.node(other).init, returns(cluster, primary)
    trial.happen("cut of the primary's node", primary, lambda: cluster.lab.cut(primary))
    trial.served()
    back()
    assert cluster.node(other).init == init, "the healthy node is not shot"
    cluster.lab.heal(primary)
    cluster.wait_for(lambda: all(node.running for node in cluster.lab.nodes), BOOTED, "both nodes are on")
    cluster.calm(120)
    assert cluster.primary() == other


def test_the_node_that_is_cut_off_is_shot(cluster: Cluster, tmp_path: Path) -> None:
    report = survive(cluster, "cut", tmp_path, cut_primary)
    print(report.effects[0].line())


@pytest.mark.parametrize("name", ["cut-backup", "node", "kill9"])
def test_nothing_confirmed_is_lost(cluster: Cluster, name: str, tmp_path: Path) -> None:
    survive(cluster, name, tmp_path)
