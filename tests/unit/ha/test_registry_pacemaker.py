"""Exchanges through Pacemaker's tools, in the helper process; the tools are scripts that keep their data in files.

The same against a real Pacemaker: tests/pacemaker/test_registry.py.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ha.model.environment import Exchanged
from ha.model.membership import HaState, InSync, Member
from ha.registry import attributes
from ha.registry.attributes import AttributeRegistry
from ha.registry.commands import LocalTools, finish
from ha.registry.pacemaker import PacemakerRegistry
from ha.registry.worker import RegistryError
from qpidd_py.errors import ConfigError
from tests.support.wait import wait_for

A, B = Member("id-a", "a", "a:1"), Member("id-b", "b", "b:1")
TIME = 10.0
BUSY = 4.0
"""Seconds after which a tool that hangs is given up: enough for the other tools on a busy machine."""


def state(member: Member, epoch: int, version: int = 0) -> HaState:
    return HaState(member.id, epoch, member.id, InSync(epoch, member.id, version, (A, B)))


def exchange(name: str, state: HaState | None, timeout: float) -> Exchanged:
    return finish(AttributeRegistry(name, LocalTools()).exchange(state, timeout))


CRM_ATTRIBUTE = """#!/bin/sh
echo "crm_attribute $*" >> "$PACEMAKER/log"
while [ $# -gt 0 ]; do
    case $1 in
        --node) node=$2 ;;
        --name) name=$2 ;;
        --update) value=$2 ;;
        --lifetime) [ "$2" = forever ] || exit 64 ;;
    esac
    shift 2
done
[ ! -e "$PACEMAKER/read-only" ] || { echo "Error performing operation: Permission denied" >&2; exit 4; }
mkdir -p "$PACEMAKER/$name" && printf %s "$value" > "$PACEMAKER/$name/$node"
[ ! -e "$PACEMAKER/then" ] || cp "$PACEMAKER"/then/* "$PACEMAKER/nodes"
"""
CIBADMIN = """#!/bin/sh
asked=$NODE
[ "$5" != --node ] || asked=$6
echo "cibadmin $asked" >> "$PACEMAKER/log"
if [ "$1" = --modify ] && [ -e "$PACEMAKER/older" ]; then
    cat "$PACEMAKER/older" > "$PACEMAKER/seal"; echo "Update was older than existing configuration" >&2; exit 103
fi
if [ "$1" = --modify ]; then echo "$3" > "$PACEMAKER/seal"; exit 0; fi
if [ -e "$PACEMAKER/hang-$asked" ]; then echo $$ >> "$PACEMAKER/hung"; exec sleep 60; fi
if [ -e "$PACEMAKER/fail-$asked" ]; then echo "Could not connect to the CIB" >&2; exit 102; fi
name=${4#*@name=\\'} name=${name%%\\'*}
seal=$(cut -d '"' -f 2 "$PACEMAKER/seal" 2> /dev/null)
echo "<xpath-query><cib have-quorum='$(cat "$PACEMAKER/quorum")' admin_epoch='${seal:-0}'/>"
for path in "$PACEMAKER"/nodes/*; do
    node=${path##*/}
    echo "<node id='$node' uname='$node'/><node_state uname='$node' $(cat "$path")/>"
    if [ -e "$PACEMAKER/$name/$node" ] && [ ! -e "$PACEMAKER/behind-$asked" ]; then
        echo "<nvpair id='nodes-$node-$name' name='$name' value='$(cat "$PACEMAKER/$name/$node")'/>"
    fi
done
echo "</xpath-query>"
"""
CRM_NODE = """#!/bin/sh
echo "$NODE"
"""
ONLINE = "in_ccm='true' crmd='online' join='member' expected='member'"
LOST = "in_ccm='false' crmd='offline' join='down' expected='member'"
GONE = "in_ccm='false' crmd='offline' join='down' expected='down'"


class Cluster:
    """What the tools say."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "nodes").mkdir()
        self.quorum(True)
        self.nodes(node1=ONLINE, node2=ONLINE)

    def quorum(self, there: bool) -> None:
        (self.directory / "quorum").write_text(str(int(there)))

    def nodes(self, **states: str) -> None:
        for name, text in states.items():
            (self.directory / "nodes" / name).write_text(text)

    def after_the_write(self, **states: str) -> None:
        (self.directory / "then").mkdir()
        for name, text in states.items():
            (self.directory / "then" / name).write_text(text)

    def set(self, name: str) -> None:
        (self.directory / name).touch()

    @property
    def log(self) -> list[str]:
        path = self.directory / "log"
        return [" ".join(line.split()[:2]) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    tools, data = tmp_path / "bin", tmp_path / "data"
    tools.mkdir()
    data.mkdir()
    for name, script in {"crm_attribute": CRM_ATTRIBUTE, "cibadmin": CIBADMIN, "crm_node": CRM_NODE}.items():
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("PACEMAKER", str(data))
    monkeypatch.setenv("NODE", "node1")
    return Cluster(data)


def test_without_an_attribute_the_registry_is_empty(cluster: Cluster) -> None:
    assert exchange("", None, TIME).states == ()
    assert cluster.log == ["cibadmin node1"], "one look at our own copy"


def test_each_broker_writes_the_attribute_of_its_node_and_reads_all(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exchange("orders", state(A, 1), TIME).states == (state(A, 1),)
    monkeypatch.setenv("NODE", "node2")
    assert set(exchange("orders", state(B, 2, 5), TIME).states) == {state(A, 1), state(B, 2, 5)}
    assert sorted(path.name for path in (cluster.directory / "qpid-ha-state-orders").iterdir()) == ["node1", "node2"]
    assert exchange("other", None, TIME).states == ()


def test_what_was_written_is_read_back_from_all_nodes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "LAST_PAUSE", BUSY)  # our own node is asked again while a script is slow
    monkeypatch.setattr(attributes, "FRESH", TIME)
    registry = AttributeRegistry("", LocalTools())
    finish(registry.exchange(state(A, 1), TIME))
    assert cluster.log[:2] == ["cibadmin node1", "crm_attribute --node"]
    assert sorted(cluster.log[2:]) == ["cibadmin node1", "cibadmin node2"]
    finish(registry.exchange(state(A, 2), TIME))
    assert cluster.log[4] == "crm_attribute --node", "a look that is not old will do for the next write"


@pytest.mark.parametrize("fault", ["behind-node2", "hang-node2", "fail-node2"])
def test_of_two_nodes_the_other_one_must_have_it(cluster: Cluster, fault: str) -> None:
    cluster.set(fault)
    with pytest.raises(RegistryError, match="node2 may go on without us"):
        exchange("", state(A, 1), BUSY)


@pytest.mark.parametrize("fault", ["behind-node2", "hang-node2", "fail-node2"])
def test_of_three_nodes_two_must_have_it(cluster: Cluster, fault: str) -> None:
    cluster.nodes(node3=ONLINE)
    cluster.set(fault)
    assert exchange("", state(A, 1), TIME).states == (state(A, 1),)


@pytest.mark.parametrize("fault", ["behind-node2", "hang-node2", "fail-node2", ""])
def test_what_a_node_lacks_is_sealed(cluster: Cluster, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own copy must not replace ours when it comes back, however many changes it has."""
    cluster.nodes(node3=ONLINE)
    if fault:
        cluster.set(fault)
    else:  # a node that answers late counts as one that lacks it: a script is slow on a busy machine
        monkeypatch.setattr(attributes, "LAST_PAUSE", BUSY)
    for number in (1, 2):
        exchange("", state(A, number), TIME)
        seal = cluster.directory / "seal"
        assert (seal.read_text() if seal.exists() else "") == (f'<cib admin_epoch="{number}"/>\n' if fault else "")


def test_another_broker_has_sealed_more_at_the_same_time(cluster: Cluster) -> None:
    cluster.nodes(node3=ONLINE)
    cluster.set("behind-node2")
    (cluster.directory / "older").write_text('<cib admin_epoch="2"/>\n')
    assert exchange("", state(A, 1), TIME).states == (state(A, 1),)
    (cluster.directory / "older").write_text('<cib admin_epoch="0"/>\n')
    with pytest.raises(RegistryError):  # less than that is no seal
        exchange("", state(A, 2), BUSY / 2)


def test_what_a_hung_command_leaves_behind_is_killed(cluster: Cluster) -> None:
    cluster.nodes(node3=ONLINE)
    cluster.set("hang-node2")
    hung = cluster.directory / "hung"

    def began() -> list[str]:
        exchange("", state(A, 1), TIME)
        return hung.read_text().split() if hung.exists() else []

    pids = wait_for(began, what="a command that is not killed before it has begun")
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), what="the hung commands are gone")


def test_a_node_that_is_lost_while_we_write_counts_when_it_has_been_fenced(cluster: Cluster) -> None:
    cluster.after_the_write(node2=GONE)
    cluster.set("hang-node2")
    assert exchange("", state(A, 1), TIME).states == (state(A, 1),)


def test_a_node_that_is_lost_while_we_write_does_not_count_before(cluster: Cluster) -> None:
    cluster.after_the_write(node2=LOST)
    cluster.set("hang-node2")
    with pytest.raises(RegistryError, match="node2 may go on without us"):
        exchange("", state(A, 1), BUSY)


@pytest.mark.parametrize("entry", [state(A, 1), None])
def test_who_is_cut_off_writes_nothing(cluster: Cluster, entry: HaState | None) -> None:
    cluster.nodes(node2=LOST)
    with pytest.raises(RegistryError, match="node2 may go on without us"):
        exchange("", entry, BUSY)
    cluster.quorum(False)
    with pytest.raises(RegistryError, match="this partition of the cluster has no quorum"):
        exchange("", entry, BUSY)
    assert not any("crm_attribute" in line for line in cluster.log)


def test_whose_node_was_fenced_is_gone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange("", state(A, 1), TIME)
    cluster.nodes(node1=GONE)
    monkeypatch.setenv("NODE", "node2")
    assert exchange("", None, TIME) == exchange("", None, TIME)
    assert exchange("", state(B, 2), TIME).gone == {A.id}
    cluster.nodes(node1=ONLINE)
    assert exchange("", None, TIME).gone == frozenset()


def test_an_entry_never_goes_back(cluster: Cluster) -> None:
    exchange("", state(A, 5, 2), TIME)
    (found,) = exchange("", state(A, 3), TIME).states
    assert found == state(A, 5, 2)


@pytest.mark.parametrize(
    ("fault", "time", "text"),
    [
        ("read-only", TIME, "crm_attribute ended with code 4: Error performing operation: Permission denied"),
        ("hang-node1", BUSY, "cibadmin has not ended in time"),
        ("fail-node1", TIME, "cibadmin ended with code 102: Could not connect to the CIB"),
    ],
)
def test_tools_that_fail_are_an_error(cluster: Cluster, fault: str, time: float, text: str) -> None:
    cluster.set(fault)
    with pytest.raises(RegistryError, match=text):
        exchange("", state(A, 1), time)


def test_a_machine_without_pacemaker_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RegistryError, match="crm_node is not there: is Pacemaker installed"):
        exchange("", None, TIME)


# ---- the helper process


@pytest.fixture
def registry(cluster: Cluster) -> Iterator[PacemakerRegistry]:
    registry = PacemakerRegistry("orders")
    registry.start()
    yield registry
    registry.close()


def test_a_cluster_name_that_cannot_be_part_of_an_attribute() -> None:
    with pytest.raises(ConfigError, match='option ha-cluster-name: found "o\'clock" with ha-registry=pacemaker'):
        PacemakerRegistry("o'clock")


def test_the_helper_makes_the_exchanges(registry: PacemakerRegistry, cluster: Cluster) -> None:
    pid = registry.pid
    assert registry.exchange(state(A, 1), TIME).states == (state(A, 1),)
    assert registry.exchange(None, TIME).states == (state(A, 1),)
    assert registry.pid == pid
    cluster.quorum(False)
    with pytest.raises(RegistryError, match="this partition of the cluster has no quorum"):
        registry.exchange(None, BUSY)
    assert registry.pid == pid


def test_a_helper_that_has_died_is_started_again(registry: PacemakerRegistry) -> None:
    os.kill(first := registry.pid, signal.SIGKILL)
    wait_for(lambda: not alive(first), TIME, "it has died")
    assert registry.exchange(None, TIME).states == ()
    assert registry.pid not in (0, first)


def test_a_helper_that_dies_in_an_exchange_is_an_error_and_started_again(
    registry: PacemakerRegistry, cluster: Cluster
) -> None:
    cluster.set("hang-node1")
    hung = cluster.directory / "hung"
    first = registry.pid

    def kill() -> None:
        wait_for(hung.exists, TIME, "a command is under way")
        os.kill(first, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RegistryError, match="the process that runs Pacemaker's tools has failed: it has ended"):
        registry.exchange(None, TIME)
    killer.join()
    assert registry.pid not in (0, first)
    (cluster.directory / "hang-node1").unlink()
    assert registry.exchange(None, TIME).states == ()


def test_a_helper_that_stands_still_is_replaced(registry: PacemakerRegistry) -> None:
    registry.exchange(None, TIME)
    first = registry.pid
    os.kill(first, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(RegistryError, match="has failed: timed out"):
        registry.exchange(None, 0.2)
    assert time.monotonic() - began < TIME
    assert not Path(f"/proc/{first}").exists()
    assert registry.exchange(None, TIME).states == ()


def test_the_helper_gets_neither_descriptors_nor_passwords(
    registry: PacemakerRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QPID_HA_PASSWORD", "secret")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        os.set_inheritable(listening.fileno(), True)
        registry.close()
        registry.start()
        registry.exchange(None, TIME)
    process = Path(f"/proc/{registry.pid}")
    environment = process.joinpath("environ").read_bytes().split(b"\0")
    assert not [each for each in environment if each.startswith((b"QPID_", b"NOTIFY_SOCKET"))]
    targets = {os.readlink(path) for path in process.joinpath("fd").iterdir()}
    assert len([target for target in targets if target.startswith("socket:")]) == 1, targets


def test_the_helper_and_its_command_end_with_the_broker(cluster: Cluster) -> None:
    """Also when the broker is killed: nothing of it may still write when its next life has begun."""
    cluster.set("hang-node1")
    reader, writer = os.pipe()
    broker = os.fork()
    if broker == 0:
        registry = PacemakerRegistry("")
        registry.start()
        os.write(writer, f"{registry.pid}\n".encode())
        registry.exchange(state(A, 1), 60.0)
        os._exit(0)
    helper = int(os.read(reader, 100))
    hung = cluster.directory / "hung"
    wait_for(lambda: hung.exists() and hung.read_text().endswith("\n"), TIME, "a command is under way")
    command = int(hung.read_text())
    os.kill(broker, signal.SIGKILL)
    os.waitpid(broker, 0)
    wait_for(lambda: not alive(helper) and not alive(command), TIME, "both have ended")
    os.close(reader)
    os.close(writer)


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that is not reaped here."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
