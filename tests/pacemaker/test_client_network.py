"""`ping-targets`: the role goes where clients can reach it, and stays where it is if the target itself is gone."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.qpid_cluster.render.pacemaker import REACHED
from tests.pacemaker.campaign import LIMIT, survive
from tests.pacemaker.cluster import Cluster, Setup, running
from tests.pacemaker.disasters import actives
from tests.pacemaker.lab.names import BRIDGE, CLIENTS_ADDRESS, SUBNET
from tests.pacemaker.trial import Trial

pytestmark = [pytest.mark.timeout(LIMIT), pytest.mark.slow]
TARGET = SUBNET + "2"
PING = "/usr/bin/ping"
NOTICED = 20.0
"""Seconds until counts have changed, on a busy machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """It comes up although its target has never answered."""
    setup = Setup(deployment={"ping-targets": f"[{TARGET}]"})
    yield from running(setup, tmp_path_factory.mktemp("client-network"))


def answer(cluster: Cluster, action: str) -> None:
    """The target is there (`add`) or gone (`del`), for all nodes at once."""
    cluster.lab.clients.run("ip", "addr", action, f"{TARGET}/32", "dev", BRIDGE, check=True)


def counts(cluster: Cluster, value: str, nodes: int = 3) -> None:
    """Waits until so many nodes have this count."""

    def found() -> bool:
        attributes = cluster.lab.crm_mon().attributes.values()
        return [each.get(REACHED) for each in attributes].count(value) == nodes

    cluster.wait_for(found, NOTICED, f"{nodes} nodes with {REACHED}={value}")


def target_comes_and_goes(cluster: Cluster, trial: Trial) -> None:
    primary, pids = cluster.primary(), {node.name: cluster.broker_pid(node.name) for node in cluster.lab.nodes}
    counts(cluster, "0")
    trial.happen("the target answers for the first time", "all", lambda: answer(cluster, "add"))
    counts(cluster, "1")
    trial.happen("no node reaches the target", "all", lambda: answer(cluster, "del"))
    counts(cluster, "0")
    trial.served()
    answer(cluster, "add")
    counts(cluster, "1")
    trial.served()
    assert {sample.node for sample in trial.sampler.samples if sample.state == "active"} == {primary}
    assert {node.name: cluster.broker_pid(node.name) for node in cluster.lab.nodes} == pids


def clients_network_dies(cluster: Cluster, trial: Trial) -> None:
    """At the primary's node; brokers and Corosync hear each other all the time."""
    primary = cluster.primary()
    node = cluster.node(primary)

    def routes(action: str) -> None:
        for address in (CLIENTS_ADDRESS, TARGET):
            node.run("ip", "route", action, "blackhole", f"{address}/32", check=True)

    pid = cluster.broker_pid(primary)
    trial.happen("the clients' network dies at the primary's node", primary, lambda: routes("add"))
    cluster.wait_for(lambda: {*actives(trial)} - {primary}, 60, "another primary")
    trial.served()
    after = cluster.primary()
    trial.happen("it is back", primary, lambda: routes("del"))
    counts(cluster, "1")
    cluster.calm()
    assert (cluster.primary(), cluster.broker_pid(primary)) == (after, pid), "the role stays, nothing was restarted"


def backup_without_ping(cluster: Cluster, trial: Trial) -> None:
    """Its node does not count as one that clients can reach, and says why; it runs on."""
    answer(cluster, "replace")
    counts(cluster, "1")
    primary, (blind, other) = cluster.primary(), cluster.backups()
    pid, node = cluster.broker_pid(blind), cluster.node(blind)
    node.run("mv", PING, f"{PING}.away", check=True)
    try:
        counts(cluster, "0", nodes=1)
        assert "ping: " in node.read("var/log/pacemaker/pacemaker.log"), "the reason"
        cluster.wait_for(lambda: cluster.primary() == primary, NOTICED, f"{primary} is still primary")
        trial.happen("kill -9 of the primary", primary, cluster.killer(primary, signal.SIGKILL))
        trial.served()
        cluster.wait_for(lambda: cluster.primary() == other, NOTICED, f"{other}, which reaches the target, is primary")
        assert cluster.broker_pid(blind) == pid
    finally:
        node.run("mv", f"{PING}.away", PING, check=True)
    counts(cluster, "1")
    cluster.calm()


def test_a_target_that_is_gone_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    report = survive(cluster, "target", tmp_path, target_comes_and_goes)
    assert max(outage.worst for effect in report.effects for outage in effect.outages.values()) < 1.0


def test_a_primary_that_clients_cannot_reach_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    survive(cluster, "clients", tmp_path, clients_network_dies)


def test_a_node_without_the_program_ping(cluster: Cluster, tmp_path: Path) -> None:
    survive(cluster, "ping", tmp_path, backup_without_ping)
