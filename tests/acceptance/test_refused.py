"""Real brokers, `manager` without a registry: a host that refuses connections for a moment though its broker lives."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from qpidd_py.cli.client_socket import RequestRefused
from tests.acceptance.cut import DivisibleCluster
from tests.support.fault_proxy import Entrance


def test_no_backup_is_promoted_over_a_primary_whose_listener_restarts(tmp_path: Path) -> None:
    """Its links are reset, and its port refuses for 0.7 s; a refusal counts after two heartbeats, 2 s."""
    options = {"ha-safety": "manager", "ha-registry": "none", "link-heartbeat-interval": "1"}
    with DivisibleCluster(tmp_path, **options) as cluster:
        first, second, _ = cluster.members
        wire = cluster.wire(first)
        wire.let(Entrance.REFUSE)
        wire.cut(reset=True)
        opens = threading.Timer(0.7, wire.let, (Entrance.OPEN,))
        opens.start()
        with pytest.raises(RequestRefused, match=r"node1 .*is primary"):
            second.promote_once()
        opens.join()
        cluster.settle()
        assert first.status == "active"
