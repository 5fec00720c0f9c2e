"""An alert agent that hangs: Pacemaker ends it, and the cluster goes on as if it was not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.qpid_cluster.render.pacemaker import ALERT_AGENT
from tests.pacemaker.campaign import LIMIT, survive
from tests.pacemaker.cluster import Cluster, Setup, running
from tests.pacemaker.disasters import kill_broker
from tests.pacemaker.trial import Trial

pytestmark = [pytest.mark.timeout(LIMIT), pytest.mark.slow]
HANGS = "sleep 4321"
ENDED = 30.0
"""Seconds; the rendered time limit is 5."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from running(Setup(), tmp_path_factory.mktemp("alerts"))


def hanging(cluster: Cluster) -> list[str]:
    """Nodes where an alert agent runs."""
    return [node.name for node in cluster.lab.nodes if node.pids(HANGS)]


def kill_with_hanging_alerts(cluster: Cluster, trial: Trial) -> None:
    for node in cluster.lab.nodes:
        node.run("tee", ALERT_AGENT, stdin=f"#!/bin/sh\nexec {HANGS}\n", check=True)
    kill_broker(cluster, trial)
    assert hanging(cluster), "the agents were called"
    cluster.wait_for(lambda: not hanging(cluster), ENDED, "Pacemaker has ended them")


def test_the_role_moves_while_alert_agents_hang(cluster: Cluster, tmp_path: Path) -> None:
    report = survive(cluster, "alerts", tmp_path, kill_with_hanging_alerts)
    print(report.effects[0].line())
    assert max(outage.worst for effect in report.effects for outage in effect.outages.values()) < 5.0
