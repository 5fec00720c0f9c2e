"""Three nodes with fencing: what can happen to a primary, its node and its cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.campaign import LIMIT, selection, survive
from tests.pacemaker.cluster import Cluster, Setup, running
from tests.pacemaker.disasters import kill_primary, move, returns
from tests.pacemaker.trial import Trial

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


@pytest.mark.slow
@pytest.mark.timeout(LIMIT)
def test_a_primary_that_dies_is_fenced_where_that_is_wanted(cluster: Cluster, tmp_path: Path) -> None:
    """`on-fail=fence` of the promoted monitor; it counts from the next promotion."""
    set_on_fail(cluster, "fence")
    try:
        survive(cluster, "on-fail", tmp_path, kill_and_fence)
    finally:
        set_on_fail(cluster, "demote")


def kill_and_fence(cluster: Cluster, trial: Trial) -> None:
    move(cluster, trial)
    back = returns(cluster, cluster.primary())
    kill_primary(cluster, trial, "kill -9 of the primary")
    back()
    cluster.calm(120)


def set_on_fail(cluster: Cluster, value: str) -> None:
    operation = f'<op id="qpidd-monitor-interval-200ms" on-fail="{value}"/>'
    cluster.on_any("cibadmin", "--modify", "--scope", "resources", "--xml-text", operation)
