"""Three nodes without power control, with the real sbd: a node that is lost is reset by its own watchdog in time."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.pacemaker.campaign import LIMIT, survive
from tests.pacemaker.cluster import Cluster, Setup, running
from tests.pacemaker.disasters import BOOTED, Disaster, cut_primary, freeze_node, start_stack
from tests.pacemaker.lab.host import Node
from tests.pacemaker.lab.lab import FILES
from tests.pacemaker.lab.supervisor import TAME
from tests.pacemaker.trial import Trial
from tests.support.system import needs
from tests.support.wait import wait_for

pytestmark = [pytest.mark.timeout(LIMIT), pytest.mark.slow, needs("/usr/sbin/sbd", "/usr/bin/cc")]

PROOF: Final = "/usr/lib/lab/harmless"
SBD: Final = "/usr/local/sbin/sbd"
"""The lab's, which asks for the proof."""
SBD_LOG: Final = "/var/log/pacemaker/sbd.log"
QUIET: Final = 60.0
"""Seconds under load in which no node may be reset."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    setup = Setup(options={"journal": "yes"}, deployment={"sbd": "watchdog"})
    yield from running(setup, tmp_path_factory.mktemp("sbd"))


def resets(cluster: Cluster) -> list[tuple[float, str]]:
    """When nodes were reset, by their watchdog or by sbd, in seconds since 1970."""
    lines = [line.split() for line in cluster.lab.layout.power_log.read_text().splitlines()]
    return [(float(moment), node) for moment, verb, node in lines if verb in ("watchdog", "reboot")]


def inits(cluster: Cluster) -> dict[str, int]:
    return {node.name: node.init for node in cluster.lab.nodes}


# ---- that it is safe to run it here ---------------------------------------------------------------------------------


def test_the_machine_itself_is_refused() -> None:
    done = subprocess.run([FILES / "harmless"], capture_output=True, text=True)
    assert done.returncode == 1 and "could reset the machine, nothing is started" in done.stderr


def test_a_node_cannot_reset_the_machine(cluster: Cluster) -> None:
    node = cluster.lab.nodes[0]
    node.run(*TAME, PROOF, check=True)
    assert "sys_boot was not dropped" in node.run(PROOF).stderr, "a command of ours may, in its PID namespace"


def test_without_the_proof_there_is_no_sbd(cluster: Cluster) -> None:
    uncovered = ("unshare", "--mount", "sh", "-c", 'umount /proc/sys/kernel; exec "$0" query-watchdog', SBD)
    done = cluster.lab.nodes[0].run(*uncovered)
    assert done.returncode == 1 and "nothing is started: /proc/sys/kernel/panic can be written" in done.stderr
    assert "Discovered 0 watchdog devices" in cluster.lab.nodes[0].run(SBD, "query-watchdog", check=True).stdout


def test_all_is_as_its_readme_says(cluster: Cluster) -> None:
    for node in cluster.lab.nodes:
        assert node.run("pgrep", "-c", "sbd").stdout == "3\n"
    assert "value=true" in cluster.on_any("crm_attribute", "--query", "--name", "have-watchdog")
    assert cluster.on_any("crm_verify", "-LV") == ""


# ---- what it does ---------------------------------------------------------------------------------------------------


def reset_in_time(cluster: Cluster, directory: Path, name: str, disaster: Disaster) -> None:
    """The primary's node is reset, once, and no other one is promoted before."""
    primary, before = cluster.primary(), len(resets(cluster))
    report = survive(cluster, name, directory, disaster)
    [(moment, node)] = resets(cluster)[before:]
    assert node == primary
    effect = report.effects[0]
    reset = moment - (time.time() - time.monotonic()) - effect.happening.moment / 1e6
    promoted = effect.phases.moments["primary"]
    print(f"reset {reset:.1f} s after it, promoted {promoted - reset:.1f} s after the reset")
    assert promoted > reset


def killed(pattern: str) -> Disaster:
    def disaster(cluster: Cluster, trial: Trial) -> None:
        primary = cluster.primary()
        node, before = cluster.node(primary), inits(cluster)[primary]
        trial.happen(f"{pattern} killed at the primary's node", primary, lambda: node.signal(pattern))
        cluster.wait_for(lambda: node.init not in (0, before), BOOTED, f"{primary} is reset and boots")
        trial.served()
        cluster.calm(120)

    return disaster


def test_a_primary_that_is_cut_off_is_reset(cluster: Cluster, tmp_path: Path) -> None:
    reset_in_time(cluster, tmp_path, "cut", cut_primary)


def test_a_node_that_stood_still_is_reset(cluster: Cluster, tmp_path: Path) -> None:
    reset_in_time(cluster, tmp_path, "freeze", freeze_node)


@pytest.mark.parametrize("pattern", ["^sbd: inquisitor", "^pacemakerd", "^corosync"])
def test_a_node_whose_daemon_is_killed_is_reset(cluster: Cluster, tmp_path: Path, pattern: str) -> None:
    reset_in_time(cluster, tmp_path, f"kill-{pattern.strip('^').replace(': ', '-')}", killed(pattern))


def test_a_healthy_node_is_not_reset(cluster: Cluster, tmp_path: Path) -> None:
    before = inits(cluster)

    def quiet(cluster: Cluster, trial: Trial) -> None:
        until = time.monotonic() + QUIET
        wait_for(lambda: time.monotonic() > until or inits(cluster) != before, QUIET + 5, "a minute", poll=0.5)
        trial.served()

    survive(cluster, "quiet", tmp_path, quiet)
    assert inits(cluster) == before


# ---- what an administrator meets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prevent",
    ["rm /run/watchdog", "setsid flock /run/watchdog sleep infinity >/dev/null 2>&1 </dev/null &"],
    ids=["no device", "another holds it"],
)
def test_without_its_watchdog_a_node_stays_out(cluster: Cluster, prevent: str) -> None:
    """sbd ends, and what starts after it is not started."""
    cluster.ready()
    name = cluster.backups()[0]
    node = cluster.node(name)
    stop_stack(node)
    node.run("bash", "-c", prevent, check=True)
    before = len(node.read(SBD_LOG))
    with pytest.raises(AssertionError):
        start_stack(cluster, name)
    assert "'/dev/watchdog' isn't a valid watchdog-device" in node.read(SBD_LOG)[before:]
    assert not node.pids("^pacemakerd")
    node.reboot()
    cluster.calm(120)


def stop_stack(node: Node) -> None:
    """In order: Pacemaker ends, sbd disarms its watchdog, Corosync ends."""
    for pattern in ("^pacemakerd", "^sbd: inquisitor", "^corosync"):
        node.signal(pattern, signal.SIGTERM)
        wait_for(gone(node, pattern), 60, f"the end of {pattern} on {node.name}", poll=0.1)


def gone(node: Node, pattern: str) -> Callable[[], bool]:
    return lambda: not node.pids(pattern)
