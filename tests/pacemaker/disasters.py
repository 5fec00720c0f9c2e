"""What is done to a cluster, what undoes it, and what it is called.                                             Shell.

Each takes a cluster and a trial that has begun, and returns when everybody is served and the cluster is whole again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.pacemaker.cluster import CLONE, DATA_DIR, PORT, Cluster
from tests.pacemaker.lab.names import PROVISION, SUBNET
from tests.pacemaker.trial import Trial

Disaster = Callable[[Cluster, Trial], None]
BOOTED: Final = 60.0
"""Seconds until a node that was fenced is on again."""
BALLAST: Final = 60_000
"""Messages of 1 KiB; a broker that has none of them takes them over in less than a second."""
RELOAD: Final = "Result of reload-agent operation for qpidd"
"""In Pacemaker's log."""
PAGES: Final = 1_500
"""Messages of 64 KiB, more than a `memory-limit` of 64 MiB keeps in memory."""


# ---- the broker's process -------------------------------------------------------------------------------------------


def kill_broker(cluster: Cluster, trial: Trial) -> None:
    primary = cluster.primary()
    trial.happen("kill -9 of the primary", primary, cluster.killer(primary, signal.SIGKILL))
    trial.served()
    cluster.calm()


def stop_broker(cluster: Cluster, trial: Trial) -> None:
    primary = cluster.primary()
    trial.happen("SIGSTOP of the primary", primary, cluster.killer(primary, signal.SIGSTOP))
    trial.served()
    cluster.calm()


def kill_two_in_a_row(cluster: Cluster, trial: Trial) -> None:
    """The second one as soon as it serves; then one of three is left, and has to wait for another to come back."""
    kill_primary(cluster, trial, "kill -9 of the primary")
    kill_primary(cluster, trial, "kill -9 of the next one")
    cluster.calm()


def kill_primary(cluster: Cluster, trial: Trial, text: str) -> None:
    primary = cluster.primary()
    trial.happen(text, primary, cluster.killer(primary, signal.SIGKILL))
    trial.served()


def fail_during_catchup(cluster: Cluster, trial: Trial) -> None:
    """A backup that has only half of it must not be promoted, even if it is the one that Pacemaker likes best."""
    victim, primary = cluster.backups()[0], cluster.primary()
    cluster.fill("ballast", BALLAST)
    kill = cluster.killer(primary, signal.SIGKILL)
    cluster.killer(victim, signal.SIGKILL)()
    cluster.wait_for(lambda: trial.sampler.states()[victim] == "catchup", 60, f"{victim} catches up", poll=0.001)
    trial.happen(f"kill -9 of the primary while {victim} catches up", primary, kill)
    trial.served()
    assert actives(trial) not in ([victim], [primary])
    cluster.calm()
    cluster.ask(cluster.primary(), "queue.delete", 5.0, queue="ballast")


def hang_disk(cluster: Cluster, trial: Trial) -> None:
    """A sync of the primary's journal does not end; needs a cluster with `disk_faults` on its nodes.  When its role has
    moved, the others can do without it, and it ends."""
    primary = cluster.primary()
    trial.wanted_lines.append((primary, "the disk of its journal has written nothing"))
    node, folder = cluster.node(primary), f"{DATA_DIR}/faults"
    node.run("mkdir", "-p", folder, check=True)
    hang = ("touch", f"{folder}/hang")
    trial.happen("the disk of the primary's journal hangs", primary, lambda: node.run(*hang, check=True))
    cluster.wait_for(lambda: {*actives(trial)} - {primary}, 60, "another primary")
    trial.served()
    node.run("rm", f"{folder}/hang", check=True)
    cluster.calm(120)


def rot_pages(cluster: Cluster, trial: Trial) -> None:
    """The primary cannot read back what waits; needs a cluster with a small `memory-limit`.  Its score falls, the role
    moves, and it copies from the next primary what it lacks: by the same process."""
    primary = cluster.primary()
    pid = cluster.broker_pid(primary)
    cluster.fill("ballast", PAGES, 1 << 16)

    def rot() -> None:
        with open(page_file(pid), "r+b") as pages:
            pages.write(b"rot")
        cluster.ask(primary, "queue.peek", 5.0, queue="ballast")

    trial.happen("the primary's page file rots", primary, rot)
    cluster.wait_for(lambda: {*actives(trial)} - {primary}, 60, "another primary")
    trial.served()
    cluster.calm()
    assert cluster.broker_pid(primary) == pid and not cluster.ask(primary, "ha.status")["alarms"]
    cluster.ask(cluster.primary(), "queue.delete", 5.0, queue="ballast")


def page_file(pid: int) -> Path:
    """Of that broker; it has no name, and another file system than ours."""
    files = (Path(f"/proc/{pid}/fd") / name for name in os.listdir(f"/proc/{pid}/fd"))
    (found,) = (path for path in files if f"{DATA_DIR}/#" in os.readlink(path))
    return found


# ---- nodes ----------------------------------------------------------------------------------------------------------


def kill_node(cluster: Cluster, trial: Trial) -> None:
    """The former primary returns, empty, and becomes a backup."""
    primary = cluster.primary()
    back = returns(cluster, primary)
    text = "kill of the primary's node"
    if cluster.lab.crm_mon().dc == primary:
        text += ", the DC"  # another controller has to be elected first, which takes a second more
    trial.happen(text, primary, cluster.node(primary).kill_init)
    trial.served()
    back()
    cluster.calm()
    assert primary in cluster.backups()


def freeze_node(cluster: Cluster, trial: Trial) -> None:
    """All of it stands still, and goes on when another one has long been primary, still thinking that it is."""
    primary = cluster.primary()
    thaw: list[Callable[[], None]] = []
    back = returns(cluster, primary)
    trial.happen("the primary's node stands still", primary, lambda: thaw.append(cluster.freeze(primary)))
    trial.served()
    trial.happen("it goes on", primary, thaw[0])
    trial.served()
    back()
    # Without fencing Pacemaker finds the address on two nodes, and may wait a minute for a monitor it has cancelled.
    cluster.calm(150)


def cycle_all(cluster: Cluster, trial: Trial) -> None:
    """Everything that was in memory only is gone, nothing that journals have; service returns by itself."""

    def power_off() -> None:
        for node in cluster.lab.nodes:
            node.off()

    trial.happen("all nodes lose their power", "all", power_off)
    for node in cluster.lab.nodes:
        node.on()
    trial.served(120)
    cluster.calm(120)
    if cluster.setup.journals:
        return
    logs = {node.name: cluster.broker_log(node.name)[-1000:] for node in cluster.lab.nodes}
    said = [line for log in logs.values() for line in log if "total failure" in line]
    assert said, f"no log says what was lost: { {name: log[-20:] for name, log in logs.items()} }"


def replace_node(cluster: Cluster, trial: Trial) -> None:
    """A backup's machine burns; another one with an empty disk takes its name and address."""
    victim = cluster.backups()[0]
    node = cluster.node(victim)
    address = f"{node.address}:{PORT}"
    back = returns(cluster, victim)
    trial.happen("a backup's node is lost for ever", victim, node.wipe)
    trial.served()
    member(cluster, "remove", address)
    back()
    member(cluster, "add", address)
    cluster.calm(120)


def member(cluster: Cluster, action: str, address: str) -> None:
    """As `qpid-ha member`; refused while another change is under way."""

    def done() -> bool:
        primary = cluster.primary()
        return bool(primary) and cluster.ask(primary, "ha.member", 3.0, action=action, address=address) is not None

    cluster.wait_for(done, 30, f"member {action} {address}")


def returns(cluster: Cluster, name: str) -> Callable[[], None]:
    """To be asked for before something happens to a node; what is returned brings it back: the power unit does that
    after fencing, an administrator without."""
    node = cluster.node(name)
    before = node.init

    def back() -> None:
        if cluster.setup.resets:
            cluster.wait_for(lambda: node.init not in (0, before), BOOTED, f"{name} is fenced and boots")
        elif not node.running:
            node.on()

    return back


# ---- the network ----------------------------------------------------------------------------------------------------


def cut_primary(cluster: Cluster, trial: Trial) -> None:
    primary = cluster.primary()
    _unplug(cluster, trial, primary, "cut of the primary's node", cluster.lab.cut)


def cut_backup(cluster: Cluster, trial: Trial) -> None:
    _unplug(cluster, trial, cluster.backups()[0], "cut of a backup's node", cluster.lab.cut)


def link_down(cluster: Cluster, trial: Trial) -> None:
    primary = cluster.primary()
    _unplug(cluster, trial, primary, "link down at the primary's node", cluster.lab.link_down)


def _unplug(cluster: Cluster, trial: Trial, name: str, text: str, how: Callable[[str], None]) -> None:
    if cluster.setup.nodes == 2:
        _unplug_one_of_two(cluster, trial, name, text, how)
        return
    back = returns(cluster, name)
    trial.happen(text, name, lambda: how(name))
    trial.served()
    if not cluster.setup.resets:
        cluster.lab.heal(name)
    back()
    cluster.lab.heal(name)
    trial.served()
    cluster.calm(120)


def _unplug_one_of_two(
    cluster: Cluster, trial: Trial, name: str, text: str, how: Callable[[str], None]
) -> None:  # fmt: skip
    """Both sides are alike: the side that fences first goes on, and that may be the one that clients cannot reach."""
    inits = {node.name: node.init for node in cluster.lab.nodes}
    trial.happen(text, name, lambda: how(name))
    fenced = f"{text}: one of two is fenced"
    cluster.wait_for(lambda: any(node.init != inits[node.name] for node in cluster.lab.nodes), BOOTED, fenced)
    cluster.lab.heal(name)
    trial.served()
    cluster.wait_for(lambda: all(node.running for node in cluster.lab.nodes), BOOTED, "both nodes are on")
    cluster.calm(120)


def cut_traffic(cluster: Cluster, trial: Trial) -> None:
    """Two networks: that of clients and brokers dies at the primary's node, that of Corosync lives."""
    primary = cluster.primary()
    node = cluster.node(primary)
    rules = [("ipproto", "tcp", port, str(PORT), "iif", "lo", "blackhole") for port in ("dport", "sport")]

    def rule(action: str) -> None:
        for words in rules:
            node.run("ip", "rule", action, "pref", "10", "to", SUBNET + "0/24", *words, check=True)

    text = "the network of clients and brokers dies at the primary's node"
    trial.happen(text, primary, lambda: rule("add"))
    cluster.wait_for(lambda: {*actives(trial)} - {primary}, 60, "another primary")
    trial.served()
    rule("del")
    trial.served()
    cluster.calm()


# ---- the cluster's daemons ------------------------------------------------------------------------------------------


def kill_corosync(cluster: Cluster, trial: Trial) -> None:
    """Pacemaker ends with it; without fencing the broker goes on, and it is not told that another one was promoted."""
    primary = cluster.primary()
    node = cluster.node(primary)
    back = returns(cluster, primary)
    trial.happen("corosync killed at the primary's node", primary, lambda: node.signal("^corosync", signal.SIGKILL))
    cluster.wait_for(lambda: {*actives(trial)} - {primary}, 60, "another primary")
    trial.served()
    back()
    if not cluster.setup.resets:
        start_stack(cluster, primary)
    trial.served()
    cluster.calm(120)


def kill_controld(cluster: Cluster, trial: Trial) -> None:
    """Its node is fenced, or it is started again, as the others like it; clients may not even notice."""
    primary = cluster.primary()
    node = cluster.node(primary)
    daemon = "pacemaker-controld$"
    trial.happen("pacemaker-controld killed", primary, lambda: node.signal(daemon, signal.SIGKILL))
    trial.served()
    cluster.calm(120)


def start_stack(cluster: Cluster, name: str) -> None:
    """Corosync and Pacemaker, as the node's boot does."""
    cluster.node(name).run("env", *cluster.lab.environment(), "bash", str(PROVISION / "40-pacemaker.sh"), check=True)


# ---- on purpose -----------------------------------------------------------------------------------------------------


def actives(trial: Trial) -> list[str]:
    """Nodes whose brokers say that they are active; without fencing more than one may, for a while."""
    return [node for node, state in trial.sampler.states().items() if state == "active"]


def standby(cluster: Cluster, trial: Trial) -> None:
    primary = cluster.primary()
    set_standby = ("crm_attribute", "-N", primary, "-n", "standby")
    trial.happen("standby", primary, lambda: cluster.on_any(*set_standby, "-v", "on"))
    cluster.wait_for(lambda: {*actives(trial)} - {primary}, 60, "another primary")
    trial.served()
    cluster.on_any(*set_standby, "-D")
    cluster.calm()


def move(cluster: Cluster, trial: Trial) -> None:
    """The planned switch-over: an administrator names the next primary."""
    primary, target = cluster.primary(), cluster.backups()[0]
    words = ("crm_resource", "--move", "-r", CLONE, "--promoted", "-N", target)
    trial.happen(f"planned switch-over to {target}", primary, lambda: cluster.on_any(*words))
    cluster.wait_for(lambda: trial.sampler.primary() == target, 60, f"{target} is primary")
    trial.served()
    cluster.on_any("crm_resource", "--clear", "-r", CLONE)
    cluster.calm()


def change_parameter(cluster: Cluster, trial: Trial) -> None:
    """Pacemaker restarts all brokers together for a parameter that the agent does not call reloadable."""
    before = {node.name: cluster.broker_pid(node.name) for node in cluster.lab.nodes}
    for name, value in (("heartbeat", "2s"), ("options", "--no-such-option 1"), ("port", "abc")):
        set_parameter(cluster, trial, name, value)
    for name in ("heartbeat", "options", "port"):
        cluster.on_any("crm_resource", "--delete-parameter", name, "-r", "qpidd")
    cluster.calm()
    assert {node.name: cluster.broker_pid(node.name) for node in cluster.lab.nodes} == before


def change_after_demotion(cluster: Cluster, trial: Trial) -> None:
    """Pacemaker calls `reload-agent` on no node whose last action was a demote: the monitor there has to apply it."""
    demoted = cluster.primary()
    move(cluster, trial)
    before = pacemaker_log(cluster, demoted).count(RELOAD)
    change_parameter(cluster, trial)
    assert pacemaker_log(cluster, demoted).count(RELOAD) == before, "then there is no need for it any more"


def set_parameter(cluster: Cluster, trial: Trial, name: str, value: str) -> None:
    words = ("crm_resource", "--set-parameter", name, "--parameter-value", value, "-r", "qpidd")
    before = {node.name: applied(cluster, node.name) for node in cluster.lab.nodes}
    trial.happen(f"parameter {name} set to {value}", cluster.primary(), lambda: cluster.on_any(*words))

    def all_applied() -> bool:
        return all(applied(cluster, node) > number for node, number in before.items())

    cluster.wait_for(all_applied, 60, f"all nodes apply it, more often than {before}")
    trial.served()
    cluster.calm()


def applied(cluster: Cluster, name: str) -> int:
    """How often the agent has applied or refused changed parameters there."""
    log = pacemaker_log(cluster, name)
    return log.count("reads its configuration; other parameters") + log.count("changed parameters are refused")


def pacemaker_log(cluster: Cluster, name: str) -> str:
    """The agent writes to it, too."""
    return (cluster.node(name).disk / "var/log/pacemaker/pacemaker.log").read_text(errors="replace")


def restart_all(cluster: Cluster, trial: Trial) -> None:
    """What READMEs warn of: Pacemaker stops all brokers together.  With journals nothing is lost."""
    before = {cluster.broker_pid(node.name) for node in cluster.lab.nodes}
    primary = cluster.primary()
    words = ("crm_resource", "--restart", "--resource", CLONE)
    trial.happen("plain restart", primary, lambda: cluster.node(primary).run(*words, check=True, timeout=200))
    trial.served(120)
    cluster.calm(120)
    assert not before & {cluster.broker_pid(node.name) for node in cluster.lab.nodes}


def rolling_restart(cluster: Cluster, trial: Trial) -> None:
    """Every broker gets a new process, and nobody is without service for longer than a move takes."""
    before = {cluster.broker_pid(node.name) for node in cluster.lab.nodes}
    primary = cluster.primary()
    words = ("qpid-cluster", "rolling-restart", "--manager", "pacemaker", "--timeout", "120")
    trial.happen("rolling restart", primary, lambda: cluster.node(primary).run(*words, check=True, timeout=300))
    trial.served()
    cluster.calm()
    assert not before & {cluster.broker_pid(node.name) for node in cluster.lab.nodes}
    assert "cli-" not in cluster.on_any("cibadmin", "--query", "--scope", "constraints"), "no ban is left"


DISASTERS: Final[dict[str, Disaster]] = {
    "kill9": kill_broker,
    "sigstop": stop_broker,
    "two-in-a-row": kill_two_in_a_row,
    "catchup": fail_during_catchup,
    "hung-disk": hang_disk,
    "rot": rot_pages,
    "node": kill_node,
    "freeze": freeze_node,
    "power-cycle": cycle_all,
    "replace": replace_node,
    "cut-primary": cut_primary,
    "cut-backup": cut_backup,
    "link-down": link_down,
    "cut-traffic": cut_traffic,
    "corosync": kill_corosync,
    "controld": kill_controld,
    "standby": standby,
    "move": move,
    "parameter": change_parameter,
    "parameter-after-demotion": change_after_demotion,
    "restart": restart_all,
    "rolling-restart": rolling_restart,
}
LOSES: Final = frozenset({"power-cycle", "restart"})
"""Where no broker survives."""


def names(*without: str) -> Sequence[str]:
    """All but these."""
    return [name for name in DISASTERS if name not in without]
