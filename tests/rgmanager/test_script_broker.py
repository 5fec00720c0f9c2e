"""The script `qpidd` and a broker by itself."""

from __future__ import annotations

import fcntl
import os
import pwd
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.rgmanager.node import Node
from tests.rgmanager.steps import BOTH, clustered, ok, stale
from tests.support.wait import wait_for, wait_logged


def test_start_status_stop_alone(node: Node) -> None:
    said = ok(node, "qpidd", "start")
    assert said == f"Starting qpidd: OK (pid {node.pid})"
    assert ok(node, "qpidd", "start") == f"Starting qpidd: OK (already running, pid {node.pid})"
    node.set(QPID_HA="/nonexistent")  # not asked without ha-cluster
    assert ok(node, "qpidd", "status") == f"qpidd (pid {node.pid}) is running..."
    assert node.subsys.exists()
    assert "goes on running" in ok(node, "qpidd", "stop", "primary")
    assert node.pid is not None
    assert ok(node, "qpidd", "stop") == "Stopping qpidd: OK"
    assert (node.pid, node.subsys.exists(), node.call("qpidd", "status")[0]) == (None, False, 3)
    wait_logged(node, "stopping: SIGTERM")


def test_the_broker_takes_neither_our_lock_nor_our_variables_along(node: Node) -> None:
    ok(clustered(node), "qpidd-primary", "start")
    with node.script("qpidd").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    environment = Path(f"/proc/{node.pid}/environ").read_bytes().split(b"\0")
    names = {line.partition(b"=")[0].decode() for line in environment}
    assert {name for name in names if name.startswith("QPID_")} <= {"QPID_CONFIG", "QPID_WAIT"}
    assert "names no option" not in node.log
    assert os.getsid(node.pid or 0) != os.getsid(0)


def test_a_crash_leaves_a_pid_file_and_start_does_not_mind(node: Node) -> None:
    ok(node, "qpidd", "start")
    pid = node.kill()
    wait_for(lambda: node.pid is None, what="the end of the broker")
    code, text = node.call("qpidd", "status")
    assert (code, "dead" in text) == (1, True)
    ok(node, "qpidd", "start")
    assert node.pid not in (None, pid)


def test_stop_does_not_touch_a_process_that_got_the_pid_of_a_dead_broker(node: Node) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        stale(node, f"{stranger.pid}\n")
        ok(node, "qpidd", "stop")
        ok(node, "qpidd", "start")
        ok(node, "qpidd", "stop")
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_restart(node: Node) -> None:
    ok(node, "qpidd", "restart")
    pids = [node.pid]
    for action in ("restart", "force-reload"):
        ok(node, "qpidd", action)
        pids.append(node.pid)
    assert None not in pids
    assert len(set(pids)) == 3


def test_restart_only_if_it_was_started(node: Node) -> None:
    ok(node, "qpidd", "start")
    first = node.pid
    node.subsys.unlink()
    for action in ("condrestart", "try-restart"):
        ok(node, "qpidd", action)
        assert node.pid == first
    pids = [first]
    for action in ("condrestart", "try-restart"):
        node.subsys.touch()
        ok(node, "qpidd", action)
        pids.append(node.pid)
    assert None not in pids
    assert len(set(pids)) == 3


def test_a_start_that_fails_says_why(node: Node) -> None:
    node.configure(nonsense="1")
    code, text = node.call("qpidd", "start")
    assert (code, "FAILED: qpidd: unknown option 'nonsense'" in text) == (1, True), text
    assert not node.subsys.exists()


def test_a_broker_whose_configuration_was_broken_can_be_stopped(node: Node) -> None:
    ok(node, "qpidd", "start")
    node.configure(nonsense="1")
    assert ok(node, "qpidd", "stop") == "Stopping qpidd: OK"


def test_a_broker_whose_program_was_removed_can_be_stopped(node: Node) -> None:
    ok(node, "qpidd", "start")
    node.set(QPIDD="/nonexistent")
    assert ok(node, "qpidd", "stop") == "Stopping qpidd: OK"


def test_a_broker_that_does_not_stop_is_killed(node: Node) -> None:
    node.set(QPID_WAIT="1")
    ok(node, "qpidd", "start")
    pid = node.pause()
    text = ok(node, "qpidd", "stop")
    assert f"qpidd (pid {pid}) is killed: it has not stopped within 1 s" in text
    assert (node.pid, node.call("qpidd", "status")[0]) == (None, 3)


def test_another_start_or_stop_is_waited_for_and_not_for_ever(node: Node) -> None:
    node.set(QPID_LOCK_WAIT="0")
    with node.script("qpidd").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for script in BOTH:
            for action in ("start", "stop", "restart"):
                code, text = node.call(script, action)
                assert (code, "another start or stop has not ended within 0 s" in text) == (1, True), text
        assert node.call("qpidd", "status")[0] == 3, "status does not wait"
        ok_held = node.call("qpidd", "start", QPID_HA_LOCK_HELD="yes")
    assert ok_held[0] == 0, "who holds it says so"


def test_names_in_a_relative_call(node: Node) -> None:
    """The lock is on the script, wherever it was called from."""
    directory = node.script("qpidd").parent
    done = subprocess.run(["./qpidd", "stop"], cwd=directory, env=node.environment(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_broker_runs_as_the_user_of_the_settings(open_node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start as another user")
    node, user = open_node, pwd.getpwnam("nobody")
    if subprocess.run(
        ["runuser", "-u", user.pw_name, "--", node.broker, "--version"], capture_output=True, check=False
    ).returncode:
        pytest.skip(f"{user.pw_name} may not run the programs of this tree")
    for directory in (node.data_dir.parent, node.log_file.parent):
        os.chown(directory, user.pw_uid, user.pw_gid)
    node.set(QPID_USER=user.pw_name)
    ok(node, "qpidd", "start")
    assert psutil.Process(node.pid).uids().effective == user.pw_uid
    assert ok(node, "qpidd", "status") == f"qpidd (pid {node.pid}) is running..."
    assert ok(node, "qpidd", "stop") == "Stopping qpidd: OK"
    ok(node, "qpidd", "start")
    node.pause()
    node.set(QPID_USER=user.pw_name, QPID_WAIT="1")
    ok(node, "qpidd", "stop")
    assert not (node.data_dir / "lock").exists(), "nothing of ours is left where the user has to write"
    ok(node, "qpidd", "start")
