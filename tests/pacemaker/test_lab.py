"""The lab itself, with a toy service: promotion, virtual address, power, cables, fencing; nothing outlives it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pacemaker.lab import files, requirements
from tests.pacemaker.lab import lab as lab_module
from tests.pacemaker.lab.lab import BOOT_SCRIPTS, FIRST_SCRIPTS, Lab, LabError
from tests.pacemaker.lab.names import CLIENTS_ADDRESS, PROJECT, PROVISION
from tests.pacemaker.lab.toy_figures import PORT, says
from tests.support.wait import wait_for

SLOW = 20.0
"""Seconds for a fail-over of the toy, which takes 2 to 4."""
BOOT_DELAY = 4.0


@pytest.fixture(scope="module")
def lab(lab_possible: None) -> Iterator[Lab]:
    with Lab(3, fencing=True, boot_delay=BOOT_DELAY) as lab:
        lab.cib_load(files.toy_cib([node.name for node in lab.nodes], fencing=True))
        lab.wait(lambda state: state.promoted("toy") and state.where("vip"), 60, "a promoted toy")
        yield lab


@pytest.fixture
def promoted(lab: Lab) -> str:
    """The node with the promoted toy in a whole cluster."""
    for node in lab.nodes:
        lab.heal(node.name)
        node.on()
    if lab.settled(60, failures=True).failures:
        lab.refresh()
    return lab.settled(60).promoted("toy")[0]


def fail_over(lab: Lab, old: str) -> str:
    """Waits until another node answers as promoted at the virtual address; which."""
    began = time.monotonic()

    def other() -> str:
        match says(lab):
            case [name, "promoted"] if name != old:
                return name
        return ""

    name = wait_for(other, SLOW, f"another than {old} is promoted", poll=0.02)
    print(f"{old} -> {name} after {time.monotonic() - began:.2f} s")
    return name


def test_a_client_reaches_the_promoted_instance_at_the_virtual_address(lab: Lab, promoted: str):
    assert wait_for(lambda: says(lab), 60, "an answer") == [promoted, "promoted"]
    other = lab.others(promoted)[0]
    assert says(lab, other.address) == [other.name, "unpromoted"]
    state = lab.crm_mon()
    assert state.where("vip") == [promoted] and state.online == {"node1", "node2", "node3"}
    assert state.attributes[promoted]["master-toy"] == "100"


def test_nodes_are_machines_of_their_own(lab: Lab):
    one, two = lab.node(1), lab.node(2)
    one.run("sh", "-c", "echo here >/etc/only-here; echo there >/run/only-here", check=True)
    assert one.read("/etc/only-here") == "here\n" and one.read("/run/only-here") == "there\n"
    assert two.read("/etc/only-here") == "" and not Path("/etc/only-here").exists()
    assert one.run("hostname").stdout == "node1\n" and two.run("cat", "/proc/1/comm").stdout != ""
    assert socket.gethostname() != "node1"
    assert one.run("ps", "-C", "corosync", "-o", "pid=").stdout.split() != []
    assert len(one.pids("/usr/lib/pacemaker/pacemaker-controld")) == 1
    with two.inside(), socket.create_connection((one.address, PORT), 1) as connection:
        assert connection.getsockname()[0] == two.address
    assert CLIENTS_ADDRESS in lab.clients.run("ip", "-o", "addr", "show", "dev", "br0").stdout
    assert "p-node1" not in subprocess.run(["ip", "link"], capture_output=True, text=True).stdout


def test_provisioning_may_be_repeated(lab: Lab):
    node = lab.node(1)
    before = node.read("/etc/hosts")
    for script in (*FIRST_SCRIPTS, *BOOT_SCRIPTS):
        node.run("env", *lab.environment(), "bash", str(PROVISION / script), check=True)
    assert node.read("/etc/hosts") == before
    assert len(node.pids("^corosync")) == len(node.pids("^pacemakerd")) == 1


def test_power_off_and_on(lab: Lab, promoted: str):
    node = lab.node(promoted)
    node.run("sh", "-c", "echo kept >/var/lib/kept; echo lost >/run/lost", check=True)
    node.off()
    assert not node.running and says(lab, node.address) == []
    assert node.read("/var/lib/kept") == "kept\n" and "corosync" in node.read("/var/log/corosync/corosync.log")
    assert fail_over(lab, promoted) != promoted
    node.on()
    lab.settled(60, failures=True)
    assert node.read("/var/lib/kept") == "kept\n" and node.read("/run/lost") == ""
    with pytest.raises(LabError, match="unknown verb"):
        lab.ask(f"explode {promoted}")


def test_a_cut_node_is_fenced_and_an_empty_one_takes_its_place(lab: Lab, promoted: str):
    node = lab.node(promoted)
    node.run("touch", "/var/lib/old-machine", check=True)
    lab.cut(promoted)
    assert node.run("ping", "-c1", "-W1", CLIENTS_ADDRESS).returncode != 0
    assert node.run("cat", "/sys/class/net/eth0/carrier").stdout == "1\n"
    assert fail_over(lab, promoted) != promoted
    assert f"reboot {promoted}" in lab.layout.power_log.read_text() and not node.running
    node.wipe()
    node.on()
    assert node.run("ping", "-c1", "-W1", CLIENTS_ADDRESS).returncode != 0, "a cable that is cut stays cut"
    lab.heal(promoted)
    lab.settled(60, failures=True)
    assert not node.path("/var/lib/old-machine").exists()


def test_a_pulled_cable_is_noticed_by_the_node(lab: Lab, promoted: str):
    other = lab.others(promoted)[0]
    lab.link_down(other.name)
    wait_for(lambda: other.run("cat", "/sys/class/net/eth0/carrier").stdout == "0\n", 60, "no carrier")
    lab.heal(other.name)
    wait_for(lambda: other.run("cat", "/sys/class/net/eth0/carrier").stdout == "1\n", 60, "carrier")


def test_the_fence_agent_is_one_for_pacemaker(lab: Lab):
    node = lab.node(1)
    assert 'name="fence_lab"' in node.run("stonith_admin", "--metadata", "-a", "fence_lab", check=True).stdout
    assert node.run("fence_lab", "-o", "status", "-n", "node2").returncode == 0
    assert node.run("fence_lab", stdin="action=list\n").stdout.split() == ["node1,", "node2,", "node3,"]
    assert node.run("fence_lab", stdin="action=dance\nplug=node2\n").returncode == 1


def test_two_labs_cannot_share_a_directory(lab: Lab):
    with pytest.raises(LabError, match="another lab runs"), Lab(1, directory=lab.layout.directory):
        pass


def test_a_directory_that_is_not_empty_is_left_alone(lab_possible: None, tmp_path: Path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(LabError, match="not empty"), Lab(1, directory=tmp_path):
        pass
    assert (tmp_path / "precious").exists()


def test_a_node_that_fails_to_boot_is_noticed_at_once(
    lab_possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lab_module, "LOGS", tmp_path / "logs")
    (tmp_path / "cluster.env").write_text("QPID_NODES=node1 QPID_ADDRESSES=10.77.0.11; no-such-command\n")
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"(?s)did not boot.*no-such-command"), Lab(1, config=tmp_path) as lab:
        lab.settled(60)
    assert time.monotonic() - began < 30
    assert list((tmp_path / "logs").rglob("boot.log"))


@pytest.mark.parametrize(
    ("user", "missing", "reason"),
    [
        (1000, "", "the lab needs root"),
        (0, "corosync", "the lab needs the packages corosync"),
        (0, "crm_mon", "the lab needs the packages pacemaker-cli-utils"),
    ],
)
def test_why_there_is_no_lab(monkeypatch: pytest.MonkeyPatch, user: int, missing: str, reason: str):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda program, path: None if program == missing else f"/usr/sbin/{program}")
    monkeypatch.setattr(requirements, "AGENT", Path("/"))
    assert requirements.problem.__wrapped__() == reason


ORPHAN = """
import sys, time
from pathlib import Path
from tests.pacemaker.lab.lab import Lab
lab = Lab(1, directory=Path(sys.argv[1])).__enter__()
print(lab.clients.supervisor, lab.node(1).init, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("victim", ["test", "supervisor"])
def test_everything_dies_with_the_test(lab_possible: None, tmp_path: Path, victim: str):
    directory = Path(f"/tmp/lab-orphan-{os.getpid()}")
    words = [sys.executable, "-c", ORPHAN, str(directory)]
    test = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    try:
        supervisor, init = (Path("/proc") / pid for pid in test.stdout.readline().split())
        assert supervisor.exists() and init.exists()
        os.kill(test.pid if victim == "test" else int(supervisor.name), signal.SIGKILL)
        wait_for(lambda: not init.exists() and gone(supervisor), 60, "the end of all processes")
        assert "lab-orphan" not in Path("/proc/mounts").read_text() and not list((directory / "disks").iterdir())
    finally:
        test.kill()
        test.communicate()
        shutil.rmtree(directory)


def gone(process: Path) -> bool:
    """It has ended, though its parent may not have asked yet."""
    try:
        return "State:\tZ" in (process / "status").read_text()
    except FileNotFoundError:
        return True
