"""The supervisor's shell, with real processes that stand in for brokers: signals, sockets, commands, no leftovers."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ha.qpid_cluster import cluster_file, control
from tests.support.wait import wait_for, wait_logged

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("fake_ha_broker.py")


class Cluster:
    def __init__(self, path, extra=""):
        self.path = path
        self.file = path / "cluster.yaml"
        self.file.write_text(
            f"cluster: t\ndirectory: {path}/run\ncommand: [{sys.executable}, {FAKE}]\n"
            f"options: {{shared: {path}}}\nsupervisor: {{hang-timeout: 2s, restart-delay: 300ms{extra}}}\n"
            "nodes: [{name: a, port: 0}, {name: b, port: 0}, {name: c, port: 0}]\n"
        )
        self.spec = cluster_file.load(self.file)
        self.pids = set()

    def run(self, *words, timeout=40):
        return subprocess.run(
            [sys.executable, "-m", "ha.qpid_cluster.main", "--config", str(self.file), *words],
            cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def status(self):
        found = control.request(self.spec.control_path, "status")
        self.pids |= {node["pid"] for node in found["nodes"] if node["pid"]} | {found["supervisor_pid"]}
        return found

    def node(self, name):
        return next(node for node in self.status()["nodes"] if node["name"] == name)

    def primary(self):
        return self.status()["primary"]

    @property
    def log(self):
        file = self.path / "run" / "supervisor.log"
        return file.read_text() if file.exists() else ""  # a busy machine has not begun to write it


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    up = found.run("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    found.status()
    yield found
    found.run("down")
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in found.pids))


def test_up_says_that_it_is_not_for_production_and_promotes_the_first(tmp_path):
    found = Cluster(tmp_path)
    up = found.run("up", "--detach")
    try:
        assert up.returncode == 0
        assert "not for production" in up.stdout
        assert "primary a" in up.stdout
        assert max(len(line) for line in up.stdout.splitlines()[1:]) <= 80
        before = (tmp_path / "run/supervisor.out").read_text()
        again = found.run("up", "--detach")
        assert again.returncode == 2
        assert "runs already" in again.stderr
        assert "a started" in before
        assert (tmp_path / "run/supervisor.out").read_text().startswith(before)
    finally:
        assert found.run("down").returncode == 0
    assert found.run("status").returncode == 3
    assert found.run("kill", "a").returncode == 3
    assert found.run("down").returncode == 0


def test_kill_9_of_the_primary_by_anybody_promotes_and_restarts(cluster):
    os.kill(cluster.node("a")["pid"], signal.SIGKILL)
    wait_for(lambda: cluster.primary() == "b")
    wait_for(lambda: cluster.node("a")["state"] == "ready")
    wait_logged(cluster, "the primary a died (signal 9 (SIGKILL))")
    assert cluster.node("a")["starts"] == 2


def test_kill_hold_and_start(cluster):
    assert cluster.run("kill", "b", "--hold").returncode == 0
    wait_for(lambda: cluster.node("b")["process"] == "down")
    assert cluster.primary() == "a"
    assert cluster.run("pause", "b").returncode == 1
    assert cluster.run("start", "b").returncode == 0
    wait_for(lambda: cluster.node("b")["state"] == "ready")


def test_a_paused_primary_is_replaced_and_resumes_as_backup(cluster):
    pid = cluster.node("a")["pid"]
    assert cluster.run("pause", "a").returncode == 0
    wait_for(lambda: cluster.primary() == "b")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert cluster.node("a")["process"] == "paused"
    assert cluster.run("start", "a").returncode == 0
    wait_for(lambda: cluster.node("a")["process"] == "up" and cluster.node("a")["state"] == "ready")
    assert cluster.node("a")["pid"] == pid
    wait_logged(cluster, "a answers again after")


def test_a_refusal_falls_through(cluster):
    (cluster.path / "refuse-b").touch()
    os.kill(cluster.node("a")["pid"], signal.SIGKILL)
    wait_for(lambda: cluster.primary() == "c")
    wait_logged(cluster, "b refused the promotion: b does not want to")


def test_switch_over_and_refusals_reach_the_caller(cluster):
    (cluster.path / "refuse-b").touch()
    refused = cluster.run("promote", "b")
    assert (refused.returncode, cluster.primary()) == (1, "a")
    assert "relocation to b failed: b does not want to" in refused.stderr
    assert cluster.run("promote", "c").returncode == 0
    assert cluster.primary() == "c"
    wait_for(lambda: cluster.node("a")["state"] == "ready")
    assert cluster.node("a")["starts"] == 1
    refused = cluster.run("promote", "c")
    assert refused.returncode == 1
    assert "primary already" in refused.stderr
    unknown = cluster.run("kill", "z")
    assert unknown.returncode == 2
    assert "a, b, c" in unknown.stderr


def test_stop_keeps_it_down(cluster):
    assert cluster.run("stop", "c").returncode == 0
    wait_for(lambda: cluster.node("c")["process"] == "down")
    found = json.loads(cluster.run("status", "--json").stdout)
    assert [node["wanted"] for node in found["nodes"]] == [True, True, False]


def test_a_rolling_restart_gives_every_broker_a_new_process(cluster):
    wait_for(lambda: sorted(node["state"] for node in cluster.status()["nodes"]) == ["active", "ready", "ready"])
    before = {node["name"]: node["pid"] for node in cluster.status()["nodes"]}
    done = cluster.run("rolling-restart", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "b is restarted and ready", "c is restarted and ready", "b is primary", "a is restarted and ready",
    ]  # fmt: skip
    after = {node["name"]: node["pid"] for node in cluster.status()["nodes"]}
    assert not set(before.values()) & set(after.values()) and cluster.primary() == "b"
    assert cluster.run("stop", "c").returncode == 0
    refused = cluster.run("rolling-restart")
    assert refused.returncode == 1 and "wanted one active, all others ready" in refused.stderr


def test_no_broker_outlives_a_supervisor_that_is_killed(cluster):
    cluster.run("pause", "b")
    os.kill(cluster.status()["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in cluster.pids))
    assert cluster.run("status").returncode == 3
    assert cluster.run("up", "--detach").returncode == 0  # the dead one's socket and lock are no obstacle


def test_a_broker_that_cannot_be_started_is_said_so(tmp_path):
    found = Cluster(tmp_path)
    text = found.file.read_text().replace(str(FAKE), "/nonexistent.py").replace("300ms", "50ms")
    found.file.write_text(text)
    up = found.run("up", "--detach", "--timeout", "1.5")
    try:
        assert up.returncode == 1
        assert "no primary" in up.stdout + up.stderr
        wait_for(lambda: "exit code 2" in found.log)  # a busy machine has only begun to start them
    finally:
        found.run("down")


def test_a_port_that_another_program_uses_is_named(tmp_path):
    found = Cluster(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found.file.write_text(found.file.read_text().replace("name: b, port: 0", f"name: b, port: {port}"))
        up = found.run("up", "--detach")
    assert up.returncode == 1
    assert f"127.0.0.1:{port} is used by another program" in up.stderr
