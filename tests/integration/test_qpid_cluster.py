"""`qpid-cluster` with real brokers: every command, and that the supervisor's view is what the brokers say."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pika
import psutil
import pytest

from demo.cluster import Cluster, wait_for
from ha.qpid_cluster.main import settled
from tests.support.certificates import Authority, needs_openssl

ROOT = Path(__file__).parents[2]


def run(cluster, *words):
    return subprocess.run(
        [sys.executable, "-m", "ha.qpid_cluster.main", "--config", str(cluster.file), *words],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def ok(cluster, *words):
    done = run(cluster, *words)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def log(cluster):
    return (cluster.directory / "supervisor.log").read_text()


def all_settled(cluster):
    return wait_for("one active, the others ready", lambda: settled(cluster.status()), 60)


def pids(cluster):
    status = cluster.status()
    return {node["pid"] for node in status["nodes"] if node["pid"]} | {status["supervisor_pid"]}


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    try:
        found.up()
        yield found
    finally:
        found.down()


def parameters(node):
    host, _, port = node["address"].rpartition(":")
    return pika.ConnectionParameters(host, int(port), socket_timeout=2, stack_timeout=4)


def test_up_detached_status_and_down(tmp_path):
    found = Cluster(tmp_path)
    text = ok(found, "up", "--detach")
    try:
        assert "not for production" in text
        assert "primary node1" in text
        assert text.count(" ready ") == 2
        processes = pids(found)
        status = json.loads(ok(found, "status", "--json"))
        assert status["primary"] == "node1"
        assert [node["state"] for node in status["nodes"]] == ["active", "ready", "ready"]
        assert len({node["epoch"] for node in status["nodes"]}) == 1
    finally:
        ok(found, "down")
    wait_for("the end of all processes", lambda: not any(psutil.pid_exists(pid) for pid in processes), 60)
    assert run(found, "status").returncode == 3


def test_clients_are_served_by_the_primary_and_told_by_a_backup_where_it_is(cluster):
    nodes = {node["name"]: node for node in cluster.status()["nodes"]}
    with pika.BlockingConnection(parameters(nodes["node1"])) as connection:
        connection.channel().queue_declare("q")
    with pytest.raises(pika.exceptions.AMQPConnectionError) as caught:
        pika.BlockingConnection(parameters(nodes["node2"]))
    assert "(320)" in str(caught.value)
    assert f"the primary is {nodes['node1']['address']}" in str(caught.value)


@needs_openssl
def test_brokers_that_take_only_tls(tmp_path):
    """Their ports are TLS ports; the supervisor has their certificate."""
    authority = Authority(tmp_path / "authority")
    files = f"ssl-ca: {authority.file}", f"ssl-cert: {authority.certificate('broker')}"
    found = Cluster(tmp_path, ("require-encryption: yes", *files))
    found.up()
    try:
        all_settled(found)
        assert all(node["address"].startswith("ssl:127.0.0.1:") for node in found.status()["nodes"])
        ok(found, "kill", "node1")
        wait_for("another primary", lambda: found.primary not in ("", "node1"), 60)
        all_settled(found)
    finally:
        found.down()


def test_kill_promotes_another_and_restarts_the_dead(cluster):
    ok(cluster, "kill", "node1")
    wait_for("another primary", lambda: cluster.primary not in ("", "node1"), 60)
    all_settled(cluster)
    assert cluster.node("node1")["state"] == "ready"
    assert cluster.node("node1")["starts"] == 2
    wait_for("the line", lambda: "the primary node1 died (signal 9 (SIGKILL))" in log(cluster), 60)


def test_stop_start_and_the_end_of_a_backup(cluster):
    ok(cluster, "stop", "node3")
    wait_for("node3 down", lambda: cluster.node("node3")["process"] == "down", 60)
    wait_for("the line", lambda: "node3 ended: exit code 0" in log(cluster), 60)
    assert cluster.primary == "node1"
    ok(cluster, "start", "node3")
    all_settled(cluster)
    os.kill(cluster.node("node2")["pid"], signal.SIGKILL)
    wait_for("the restart of node2", lambda: cluster.node("node2")["starts"] == 2, 60)
    all_settled(cluster)
    assert cluster.primary == "node1"


def test_a_paused_primary_is_replaced_and_demotes_itself_when_it_wakes(cluster):
    before = cluster.node("node1")["pid"]
    ok(cluster, "pause", "node1")
    wait_for("another primary", lambda: cluster.primary not in ("", "node1"), 60)
    assert cluster.node("node1")["process"] == "paused"
    ok(cluster, "start", "node1")
    all_settled(cluster)
    assert cluster.node("node1")["pid"] == before
    assert cluster.node("node1")["state"] == "ready"


def test_switch_over_to_a_named_backup(cluster):
    before = cluster.node("node1")["pid"]
    ok(cluster, "promote", "node3")
    wait_for("node3 primary", lambda: cluster.primary == "node3", 60)
    all_settled(cluster)
    assert (cluster.node("node1")["state"], cluster.node("node1")["pid"]) == ("ready", before)
    registry = json.loads((cluster.directory / "registry.json").read_text())
    assert max(state["epoch"] for state in registry["brokers"].values()) == 2
    refused = run(cluster, "promote", "node3")
    assert refused.returncode == 1
    assert "primary already" in refused.stderr


def test_a_cluster_that_lost_every_broker_comes_back(cluster):
    for node in cluster.status()["nodes"]:
        os.kill(node["pid"], signal.SIGKILL)
    wait_for("three restarts", lambda: all(n["starts"] == 2 for n in cluster.status()["nodes"]), 60)
    all_settled(cluster)


def test_two_of_three_may_be_away(cluster):
    ok(cluster, "kill", "node2", "--hold")
    wait_for("node2 down", lambda: cluster.node("node2")["process"] == "down", 60)
    ok(cluster, "kill", "node1", "--hold")
    wait_for("node3 primary", lambda: cluster.primary == "node3", 60)
    with pika.BlockingConnection(parameters(cluster.node("node3"))) as connection:
        connection.channel().queue_declare("q")
    ok(cluster, "start", "node1")
    ok(cluster, "start", "node2")
    all_settled(cluster)


BUILT_IN = """
import re, sys
from ha.qpid_cluster import cluster_file, main
cluster_file._BUILT_IN = re.sub(r"port: \\d+", "port: 0", cluster_file._BUILT_IN)
sys.exit(main.main())
"""
"""`qpid-cluster`, with free ports: those of the built-in cluster may be in use here."""


def test_up_without_a_file_runs_a_built_in_cluster(tmp_path):
    command = [sys.executable, "-c", BUILT_IN]
    up = subprocess.Popen([*command, "up"], cwd=tmp_path, stdout=subprocess.DEVNULL)

    def call(*words):
        return subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    try:
        wait_for("primary", lambda: (done := call("status", "--json")).stdout and settled(json.loads(done.stdout)), 60)
        config = tmp_path / "qpid-cluster-data/node2.conf"
        tool = [sys.executable, "-m", "ha.qpid_ha.main", "relocate", "--to", "node2", "--config", str(config)]
        done = subprocess.run(tool, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.startswith("node2 is primary")
        assert oct(config.stat().st_mode & 0o777) == "0o600"
    finally:
        assert call("down").returncode == 0
        up.wait(30)
    rendered = call("render", "-o", "out", "--for", "systemd")
    assert rendered.returncode == 2
    assert "cannot read the cluster file config/cluster.yaml" in rendered.stderr
