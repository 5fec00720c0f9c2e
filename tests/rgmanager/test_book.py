"""The scenarios of the book, and some that it leaves out: three brokers, the real scripts, a driver like rgmanager.

Clients publish and consume all the time.  In each scenario nothing that was confirmed may be missing, also where all
brokers fail at the same time: the example has journals.
"""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.qpid_cluster.rolling import restart_all
from testkit.judge import Verdict
from tests.rgmanager.cluster import PRIMARY, TIMEOUT, Cluster, qpidd_service
from tests.rgmanager.load import Load
from tests.rgmanager.manager import DISABLED, FAILED, STARTED
from tests.rgmanager.node import PASSWORD, Node
from tests.support.slow import mostly_slow
from tests.support.wait import wait_for

Figures = dict[str, float]


def nothing_lost(verdict: Verdict) -> None:
    assert verdict.confirmed > 0
    assert verdict.valid, verdict


def killed_by_scripts(cluster: Cluster, since: int) -> list[str]:
    """Stops that have ended a living process."""
    lines = cluster.driver.outputs[since:]
    return [line for line in lines if "Stopping qpidd: OK" in line and "not running" not in line]


def settled(cluster: Cluster, load: Load, figures: Figures, name: str, begin: float) -> None:
    """Everything is whole again and the clients go on; the outage is noted, for the figures."""
    end = cluster.settle()
    load.progress()
    figures[name] = load.outage(begin, end)


def test_crash_of_the_primary(cluster: Cluster, load: Load, figures: Figures) -> None:
    old, since = cluster.primary, len(cluster.driver.outputs)
    begin = time.monotonic()
    old.kill()
    new = cluster.promoted(not_on=old)
    settled(cluster, load, figures, "crash of the primary", begin)
    assert cluster.primary is new
    assert old.state == "ready"
    assert killed_by_scripts(cluster, since) == []
    assert set(cluster.driver.addresses.values()) == {new.name}
    nothing_lost(load.finish())


def test_crash_of_a_backup(cluster: Cluster, load: Load, figures: Figures) -> None:
    primary, backup = cluster.primary, cluster.backups[0]
    begin, pid = time.monotonic(), backup.kill()
    cluster.wait(lambda: backup.pid not in (None, pid), "the backup again")
    settled(cluster, load, figures, "crash of a backup", begin)
    assert cluster.primary is primary
    nothing_lost(load.finish())


def test_shutdown_of_the_primarys_node(cluster: Cluster, load: Load, figures: Figures) -> None:
    old = cluster.primary
    pid = old.pid
    cluster.driver.disable(qpidd_service(old.name))
    cluster.service(qpidd_service(old.name), DISABLED)
    assert (old.pid, old.state) == (pid, "active"), "by itself it leaves a primary running"
    begin = time.monotonic()
    cluster.driver.relocate(PRIMARY)
    new = cluster.promoted(not_on=old)
    load.progress()
    figures["shutdown of the primary's node"] = load.outage(begin, time.monotonic())
    assert old.pid is None, "the node can be shut down"
    cluster.driver.enable(qpidd_service(old.name))
    cluster.settle()
    assert cluster.primary is new
    nothing_lost(load.finish())


def test_relocation_alone_leaves_a_process_on_the_node(cluster: Cluster, load: Load, figures: Figures) -> None:
    old = cluster.primary
    begin, pid, target = time.monotonic(), old.pid, cluster.backups[-1]
    cluster.driver.relocate(PRIMARY, target.name)
    assert cluster.promoted(not_on=old) is target
    settled(cluster, load, figures, "relocation of the primary service", begin)
    assert old.pid not in (None, pid)
    assert old.state == "ready"
    nothing_lost(load.finish())


def test_a_switch_over_behind_the_managers_back(cluster: Cluster, load: Load, figures: Figures) -> None:
    """`qpid-ha relocate`: the manager misses its primary, is told by the others where it is, and follows."""
    old, target = cluster.primary, cluster.backups[-1]
    since, begin, pid = len(cluster.driver.outputs), time.monotonic(), old.pid
    old.ask("ha.relocate", to=target.name)
    assert cluster.promoted(not_on=old) is target
    settled(cluster, load, figures, "qpid-ha relocate", begin)
    assert set(cluster.driver.addresses.values()) == {target.name}
    assert (old.pid, old.state, killed_by_scripts(cluster, since)) == (pid, "ready", [])
    nothing_lost(load.finish())


def test_hung_primary(cluster: Cluster, load: Load, figures: Figures) -> None:
    """Found by the time limit of the status check, killed by whichever service is first."""
    old, begin = cluster.primary, time.monotonic()
    pid = old.pause()
    new = cluster.promoted(not_on=old)
    settled(cluster, load, figures, "hung primary", begin)
    assert cluster.primary is new
    assert old.pid not in (None, pid)
    nothing_lost(load.finish())


class Tool:
    """What `qpid-cluster rolling-restart --manager rgmanager` asks of `clusvcadm`, done by the driver."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.states = cluster.states

    def stop(self, node: str) -> None:
        self._cluster.driver.disable(qpidd_service(node))

    def start(self, node: str) -> None:
        self._cluster.driver.enable(qpidd_service(node), node)

    def move(self, node: str) -> None:
        self._cluster.driver.relocate(PRIMARY, node)

    def moved(self) -> None:
        pass


def test_files_are_changed_and_all_brokers_restarted_one_by_one(
    cluster: Cluster, load: Load, figures: Figures
) -> None:  # fmt: skip
    """A password that is changed everywhere fails no status: else all brokers would be restarted together."""
    before = {node.pid for node in cluster.nodes.values()}
    files = {node.config: node.config.read_text() for node in cluster.nodes.values()}
    for file, text in files.items():
        file.write_text(text.replace(f"ha-password={PASSWORD}", "ha-password=changed"))
        assert file.read_text() != text
    checked = dict(cluster.driver.checked)
    cluster.wait(lambda: all(cluster.driver.checked[name] > checked[name] + 1 for name in checked), "status of all")
    for file, text in files.items():
        file.write_text(f"{text}tcp-nodelay=yes\n")
    assert {node.pid for node in cluster.nodes.values()} == before
    begin, said = time.monotonic(), list[str]()
    restart_all(Tool(cluster), cluster.wait, said.append)
    settled(cluster, load, figures, "rolling restart", begin)
    assert not {node.pid for node in cluster.nodes.values()} & before and len(said) == 4
    nothing_lost(load.finish())
    for file, text in files.items():
        file.write_text(text)


@pytest.mark.slow
def test_death_of_the_primarys_node(cluster: Cluster, load: Load, figures: Figures) -> None:
    old, begin = cluster.primary, time.monotonic()
    cluster.driver.node_down(old.name)
    cluster.promoted(not_on=old)
    load.progress()
    figures["death of the primary's node (fenced at once)"] = load.outage(begin, time.monotonic())
    assert (old.pid, cluster.driver.state(qpidd_service(old.name))) == (None, ("stopped", ""))
    cluster.driver.node_up(old.name)
    cluster.settle()
    nothing_lost(load.finish())


@pytest.mark.slow
def test_two_failures_in_a_row(cluster: Cluster, load: Load, figures: Figures) -> None:
    """The new primary dies as soon as it has all backups again."""
    first, begin = cluster.primary, time.monotonic()
    first.kill()
    second = cluster.promoted(not_on=first)
    cluster.settle()
    load.progress()
    second.kill()
    cluster.promoted(not_on=second)
    settled(cluster, load, figures, "two failures in a row (each)", begin)
    nothing_lost(load.finish())


def test_all_fail(cluster: Cluster, load: Load, figures: Figures) -> None:
    """They come back by themselves, with all that was confirmed: the rendered configuration has journals."""
    since, begin = len(cluster.driver.outputs), time.monotonic()
    waiting = {id for id in load.confirmed_ids() if id.startswith("plain1:")}
    for node in cluster.nodes.values():
        node.kill()
    settled(cluster, load, figures, "all fail", begin)
    assert killed_by_scripts(cluster, since) == [], "one failure seen as two: nothing that was just started is killed"
    assert waiting, "messages that no client but the journals had"
    nothing_lost(load.finish())
    line = "promoted, and no other broker holds more"
    wait_for(lambda: any(line in node.log for node in cluster.nodes.values()), what=line)


@pytest.mark.slow
def test_both_services_stopped(cluster: Cluster, load: Load) -> None:
    """The backups first, then the last primary: it refuses nothing, since its journal has what was confirmed.  They
    start again with all of it.  (A primary without a journal refuses: `test_script_member.py`.)"""
    since = len(cluster.driver.outputs)
    waiting = {id for id in load.confirmed_ids() if id.startswith("plain1:")}
    last, pid = cluster.primary, cluster.primary.pid
    for name in cluster.nodes:
        cluster.driver.disable(qpidd_service(name))
        cluster.service(qpidd_service(name), DISABLED)
    assert [node.pid for node in cluster.nodes.values() if node.pid] == [pid]
    assert (cluster.primary, last.state) == (last, "active")
    cluster.driver.disable(PRIMARY)
    cluster.service(PRIMARY, DISABLED)
    assert [node.pid for node in cluster.nodes.values()] == [None, None, None]
    assert cluster.driver.outputs[-1].endswith("Stopping qpidd: OK")
    assert not [line for line in cluster.driver.outputs[since:] if "refuses to stop" in line]
    assert cluster.driver.addresses == {}
    for name in cluster.driver.services:
        cluster.driver.enable(name)
    cluster.settle()
    assert waiting, "messages that no client but the journals had"
    nothing_lost(load.finish())


def test_a_stop_that_fails(cluster: Cluster, load: Load) -> None:
    """Somebody else holds the lock for too long: rgmanager gives the service up, and the primary goes on serving."""
    node = cluster.primary
    pid = node.pid
    cluster.configure(node, QPID_LOCK_WAIT="0")
    with node.script("qpidd").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cluster.driver.relocate(PRIMARY)
        cluster.service(PRIMARY, FAILED)
    load.progress()
    cluster.configure(node)
    cluster.driver.disable(PRIMARY)
    cluster.service(PRIMARY, DISABLED)
    cluster.driver.enable(PRIMARY, node.name)
    cluster.settle()
    assert (cluster.primary, node.pid) == (node, pid), "the promotion of a primary changes nothing"
    nothing_lost(load.finish())


def test_two_promotions_at_once(cluster: Cluster, load: Load) -> None:
    """Two managers that do not know of each other.  Both may be told that they succeeded, but then one has deposed the
    other; when they are done, at most one is primary, and both scripts say so."""
    old = cluster.primary
    cluster.driver.disable(PRIMARY)
    cluster.service(PRIMARY, DISABLED)
    cluster.service(qpidd_service(old.name), STARTED, old.name)
    rivals = [node for node in cluster.nodes.values() if node is not old]
    starts = [_starting(node) for node in rivals]
    assert {start.wait(TIMEOUT) for start in starts} <= {0, 1}
    wait_for(lambda: len(_primaries(rivals)) <= 1, TIMEOUT, lambda: f"primaries: {_primaries(rivals)}")
    for node in rivals:
        assert node.call("qpidd-primary", "stop")[0] == 0
    cluster.driver.enable(PRIMARY)
    cluster.settle()
    nothing_lost(load.finish())


def _primaries(nodes: list[Node]) -> list[str]:
    return [node.name for node in nodes if node.call("qpidd-primary", "status")[0] == 0]


def _starting(node: Node) -> subprocess.Popen[bytes]:
    command = [str(node.script("qpidd-primary")), "start"]
    return subprocess.Popen(command, env=node.environment(), stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("round", mostly_slow(range(2), 1))
def test_one_failure_seen_as_two_on_one_node(lonely: Cluster, round: int) -> None:
    """QPID-5942: with one node left, both services are recovered there, at the same moment and each by itself."""
    cluster, node = lonely, lonely.nodes["node1"]
    since = len(cluster.driver.outputs)
    pid = node.kill()
    cluster.wait(lambda: node.pid not in (None, pid), "the broker again")
    wait_for(lambda: _recovered(cluster, since), TIMEOUT, lambda: cluster.driver.report)
    cluster.service(PRIMARY, STARTED, "node1")
    cluster.service(qpidd_service("node1"), STARTED, "node1")
    assert node.state == "active"
    assert killed_by_scripts(cluster, since) == []


def _recovered(cluster: Cluster, since: int) -> bool:
    """Both services have noticed, and both have started again."""
    done = "\n".join(cluster.driver.outputs[since:])
    return all(f"{script} start -> 0" in done for script in ("qpidd", "qpidd-primary"))


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("lonely"), ha_safety="manager", ha_registry="none") as cluster:
        cluster.driver.node_up("node1")
        cluster.service(PRIMARY, STARTED, "node1")
        cluster.service(qpidd_service("node1"), STARTED, "node1")
        yield cluster


def test_the_driver_finds_a_script_that_kills_what_was_just_started(tmp_path: Path) -> None:
    """That the check above can fail: `stop` of a running broker shows among the outputs."""
    with Cluster(tmp_path, ha_safety="manager", ha_registry="none") as cluster:
        cluster.driver.node_up("node1")
        cluster.service(PRIMARY, STARTED, "node1")
        cluster.driver.disable(PRIMARY)
        cluster.service(PRIMARY, DISABLED)
        assert len(killed_by_scripts(cluster, 0)) == 1
