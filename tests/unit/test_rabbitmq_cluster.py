"""The cluster of RabbitMQ that tests and benchmarks start: what does not need one that runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.rabbitmq import RabbitCluster


def test_a_node_that_took_too_long_to_start_is_ended_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script was waited for, without end."""
    cluster, started = RabbitCluster.__new__(RabbitCluster), list[int]()
    cluster.base, cluster.killed = tmp_path, 0
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as script:
        cluster.scripts = {0: script}
        (tmp_path / "node0").mkdir()
        (tmp_path / "node0" / "pid").write_text(str(script.pid))
        monkeypatch.setattr(RabbitCluster, "_start_node", lambda self, number: started.append(number))
        cluster.repair()
        assert script.poll() is not None and started == [0] and cluster.killed is None
