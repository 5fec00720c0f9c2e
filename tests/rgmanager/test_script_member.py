"""Both scripts and members of a cluster: which stop ends which broker, promotion, brokers that hang or refuse."""

from __future__ import annotations

import fcntl
import signal
import subprocess
from collections.abc import Callable

import psutil
import pytest

from tests.rgmanager.conftest import SHELLS
from tests.rgmanager.node import Node
from tests.rgmanager.steps import BOTH, clustered, ok, published
from tests.support.wait import wait_for


@pytest.mark.parametrize("make_node", SHELLS, indirect=True)
def test_primary_and_not(node: Node) -> None:
    clustered(node)
    ok(node, "qpidd", "start")
    assert node.call("qpidd-primary", "status") == (1, "qpidd is not primary")
    hint = ok(node, "qpidd-primary", "stop")
    assert "is not primary and goes on running; stop the service qpidd" in hint
    pid = node.pid
    assert ok(node, "qpidd-primary", "start").endswith("Promoting qpidd: OK")
    assert node.call("qpidd-primary", "status") == (0, "qpidd is primary")
    assert ok(node, "qpidd-primary", "start").endswith("Promoting qpidd: OK"), "again, and nothing changes"
    hint = ok(node, "qpidd", "stop")
    assert "is primary and goes on running; stop or relocate the service qpidd-primary" in hint
    assert "already running" in ok(node, "qpidd", "restart")
    assert node.pid == pid
    assert ok(node, "qpidd-primary", "stop") == "Stopping qpidd: OK"
    assert node.pid is None


def test_restart_of_the_primary(node: Node) -> None:
    ok(clustered(node), "qpidd-primary", "start")
    first = node.pid
    ok(node, "qpidd-primary", "restart")
    assert node.pid not in (None, first)
    assert node.call("qpidd-primary", "status")[0] == 0


def test_start_of_the_primary_starts_the_broker_and_fails_when_that_fails(node: Node) -> None:
    clustered(node, nonsense="1")
    code, text = node.call("qpidd-primary", "start")
    assert (code, "unknown option 'nonsense'" in text, "Promoting" in text) == (1, True, False)


def test_a_refused_promotion_fails_and_leaves_the_broker_running(node: Node) -> None:
    clustered(node, "127.0.0.1:1", "127.0.0.1:2", ha_safety="quorum")
    code, text = node.call("qpidd-primary", "start")
    assert (code, "Promoting qpidd: FAILED: RequestRefused: " in text) == (1, True), text
    assert "1 brokers heard, 2 needed" in text
    assert node.state == "joining"


def test_a_promotion_that_is_refused_for_now_is_tried_again(make_node: Callable[[str], Node]) -> None:
    """A fresh cluster whose members start at the same moment."""
    one, two = make_node("one"), make_node("two")
    for node, other in ((one, two), (two, one)):
        clustered(node, other.address, "127.0.0.1:1", ha_safety="quorum")
    one.set(QPID_PROMOTE_WAIT="20", QPID_HA_OPTIONS=f"--config {one.config} --timeout 2")
    command = [str(one.script("qpidd-primary")), "start"]
    with subprocess.Popen(command, env=one.environment(), stdout=subprocess.PIPE, text=True) as starting:
        wait_for(lambda: one.state == "joining", what="the first broker")
        assert starting.poll() is None
        ok(two, "qpidd", "start")
        output = starting.communicate(timeout=60)[0]
    assert (starting.returncode, "Promoting qpidd: OK" in output) == (0, True), output


def test_a_promotion_is_refused_at_once_while_another_one_is_primary(make_node: Callable[[str], Node]) -> None:
    one, two = make_node("one"), make_node("two")
    for node, other in ((one, two), (two, one)):
        clustered(node, other.address)
    ok(one, "qpidd-primary", "start")
    two.set(QPID_PROMOTE_WAIT="1000", QPID_HA_OPTIONS=f"--config {two.config} --timeout 2")
    code, text = two.call("qpidd-primary", "start", timeout=60)
    assert (code, "is primary" in text) == (1, True), text
    assert one.call("qpidd-primary", "status")[0] == 0


@pytest.mark.parametrize("script", BOTH)
def test_a_hung_broker_is_found_by_the_time_limit_and_killed_by_either_stop(node: Node, script: str) -> None:
    """It may be primary, and that cannot be known."""
    ok(clustered(node), "qpidd-primary", "start")
    pid = node.pause()
    code, text = node.call(script, "status")
    assert (code, "TimeoutError" in text) == (1, True), text
    text = ok(node, script, "stop")
    assert f"qpidd (pid {pid}) is killed: TimeoutError" in text
    assert (node.pid, node.call("qpidd", "status")[0]) == (None, 3)


@pytest.mark.parametrize("script", BOTH)
def test_a_broker_that_does_not_let_us_in_is_stopped_by_either(node: Node, script: str) -> None:
    clustered(node)
    ok(node, "qpidd", "start")
    node.set(QPID_HA_OPTIONS=f"-b ha/wrong@{node.address} --timeout 5")
    code, text = node.call("qpidd", "status")
    assert (code, "does not answer: AuthenticationFailure" in text) == (1, True), text
    text = ok(node, script, "stop")
    assert "cannot say whether it is primary: AuthenticationFailure" in text
    assert node.pid is None


@pytest.mark.parametrize("make_node", SHELLS, indirect=True)
def test_the_last_primary_refuses_once_and_is_stopped(node: Node) -> None:
    ok(clustered(node), "qpidd-primary", "start")
    published(node)
    pid = node.pid
    text = ok(node, "qpidd-primary", "stop")
    assert f"qpidd (pid {pid}) refuses to stop: " in text
    assert "1 queues with 1 messages would be lost" in text
    assert text.endswith("Stopping qpidd: OK"), "and it was not killed"
    assert (node.pid, node.call("qpidd", "status")[0]) == (None, 3)


def test_a_last_primary_that_refused_long_ago_is_stopped(node: Node) -> None:
    """What it wrote down then is no answer to us."""
    ok(clustered(node), "qpidd-primary", "start")
    published(node)
    node.signal(signal.SIGTERM)
    wait_for(lambda: "is refused" in node.log, what="the refusal")
    assert ok(node, "qpidd-primary", "stop").endswith("Stopping qpidd: OK")


def test_a_last_primary_waits_for_the_backup_that_is_catching_up(make_node: Callable[[str], Node]) -> None:
    """`three` cannot join (its ha-replicate is another one), which looks like that; `two` comes while we wait."""
    one, two, three = (make_node(name) for name in ("one", "two", "three"))
    clustered(one, two.address, three.address)
    clustered(two, one.address, three.address)
    clustered(three, one.address, two.address, ha_replicate="configuration")
    one.set(QPID_SYNC_WAIT="60", QPID_HA_OPTIONS=f"--config {one.config} --timeout 2")
    ok(one, "qpidd-primary", "start")
    ok(three, "qpidd", "start")
    published(one)
    command = [str(one.script("qpidd-primary")), "stop"]
    with subprocess.Popen(command, env=one.environment(), stdout=subprocess.PIPE, text=True) as stopping:
        wait_for(lambda: "is refused" in one.log, what="the refusal")
        ok(two, "qpidd", "start")
        output = stopping.communicate(timeout=90)[0]
    assert (stopping.returncode, output.strip().endswith("Stopping qpidd: OK")) == (0, True), output
    ok(two, "qpidd-primary", "start")
    assert [message["body"] for message in two.ask("queue.peek", queue="q", limit=10)] == ["kept"]


# ---- one failure, seen as two (QPID-5942)


def test_stop_waits_for_a_promotion_that_is_under_way_and_spares_its_primary(node: Node) -> None:
    clustered(node)
    ok(node, "qpidd", "start")
    with node.script("qpidd").open() as file:  # as qpidd-primary does it between start and promotion
        fcntl.flock(file, fcntl.LOCK_EX)
        command = [str(node.script("qpidd")), "stop"]
        with subprocess.Popen(command, env=node.environment(), stdout=subprocess.PIPE, text=True) as stop:
            wait_for(lambda: [child.name() for child in psutil.Process(stop.pid).children()] == ["flock"])
            node.ask("ha.promote")
            fcntl.flock(file, fcntl.LOCK_UN)
            output = stop.communicate(timeout=60)[0]
    assert (stop.returncode, "is primary and goes on running" in output) == (0, True)
    assert node.call("qpidd-primary", "status")[0] == 0


def test_without_the_lock_it_would_kill_what_was_just_started(node: Node) -> None:
    """That the test above can fail."""
    clustered(node)
    ok(node, "qpidd", "start")
    with node.script("qpidd").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert node.call("qpidd", "stop", QPID_HA_LOCK_HELD="yes") == (0, "Stopping qpidd: OK")
    assert node.pid is None


# ---- settings and the configuration change while the broker runs, as for a rolling restart


CHANGES = {
    "port": {"port": "1"},
    "password": {"ha_password": "changed"},
    "password file": {"ha_password_file": "/nonexistent"},
    "directory": {"data_dir": "/nonexistent/elsewhere"},
    "nonsense": {"no_such_option": "1"},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_file_fails_no_service(node: Node, what: str) -> None:
    """Otherwise rgmanager would restart all brokers within a second, and nobody keeps the messages."""
    ok(clustered(node), "qpidd-primary", "start")
    pid = node.pid
    clustered(node, **CHANGES[what])
    for script in BOTH:
        ok(node, script, "status")
    assert "is primary and goes on running" in ok(node, "qpidd", "stop")
    assert node.pid == pid
    ok(node, "qpidd-primary", "stop")
    assert node.pid is None
    assert not list(node.directory.glob("subsys.conf*")), "a password may be in it"


def without_password(node: Node) -> None:
    lines = node.config.read_text().splitlines(keepends=True)
    node.config.write_text("".join(line for line in lines if not line.startswith("ha-password=")))


@pytest.mark.parametrize("make_node", SHELLS, indirect=True)
def test_a_restart_takes_the_changed_file(node: Node) -> None:
    """Also the password of a file: the copy has the one that the broker was started with."""
    secret = node.directory / "secret"
    secret.write_text("one\n")
    secret.chmod(0o600)
    clustered(node, ha_password_file=str(secret))
    without_password(node)
    ok(node, "qpidd", "start")
    kept = node.directory / "subsys.conf"
    assert kept.stat().st_mode & 0o777 == 0o600
    secret.write_text("two\n")
    elsewhere = node.directory / "var" / "new"
    clustered(node, ha_password_file=str(secret), data_dir=str(elsewhere))
    without_password(node)
    ok(node, "qpidd", "status")
    ok(node, "qpidd", "restart")
    assert (elsewhere / "lock").exists() and node.pid is None
    ok(node, "qpidd", "status")
    ok(node, "qpidd", "stop")
    assert not (elsewhere / "lock").exists()


@pytest.mark.parametrize("content", ["", "# 1\n", "# 1 /nonexistent\nport=1\n", "\0\xff\n"])
def test_a_copy_that_says_nothing_is_not_used(node: Node, content: str) -> None:
    """An earlier version has started the broker, the disk was full, or the broker has died since."""
    ok(clustered(node), "qpidd-primary", "start")
    kept = node.directory / "subsys.conf"
    kept.write_text(content)
    for script in BOTH:
        ok(node, script, "status")
    kept.unlink()
    kept.mkdir()
    for script in BOTH:
        ok(node, script, "status")
    ok(node, "qpidd-primary", "restart")
